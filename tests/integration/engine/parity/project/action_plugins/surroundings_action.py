import importlib.util
import json
from pathlib import Path

from ansible.plugins.action import ActionBase

HERE = Path(__file__).resolve().parent.parent / "files"


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        seen = {}
        for name in ("look", "look_at_ansible"):
            spec = importlib.util.spec_from_file_location(f"parity_{name}", HERE / f"{name}.py")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            seen[name] = module.look()
        seen["shell"] = self._low_level_execute_command("pwd; umask; echo $0; ulimit -n; echo $SHLVL; env | sort")
        seen["plugins"] = [type(self._connection).__name__, type(self._connection._shell).__name__, self._connection.transport]
        return {**result, "seen": json.loads(json.dumps(seen, default=str))}
