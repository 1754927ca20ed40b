import os

from ansible.errors import AnsibleActionFail, AnsibleActionSkip
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

_state = []


class ActionModule(ActionBase):
    TRANSFERS_FILES = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _state.append(1)
        how = self._task.args.get("how")
        if how == "fail":
            raise AnsibleActionFail("the action fails", result={"extra": 1})
        if how == "skip":
            raise AnsibleActionSkip("the action skips")
        if how == "crash":
            raise ValueError("the action crashes")
        if how == "nothing":
            return None
        if how == "exit":
            os._exit(7)
        if how == "warn":
            Display().warning("the action warns")
        stat = self._execute_remote_stat(self._task.args["path"], task_vars, follow=True)
        put = os.path.join(self._connection._shell.tmpdir or "/nowhere", "put")
        self._transfer_data(put, "put there")
        read = self._low_level_execute_command(f"cat {put}; pwd", chdir="/")
        copied = self._execute_module("stat", {"path": put}, task_vars=task_vars)
        return {**result, "changed": True, "state": len(_state), "stat": stat["isdir"], "read": read["stdout_lines"], "copied": copied["stat"]["size"], "loader": self._loader.get_basedir(), "templated": self._templar.template("{{ 1 + 1 }}"), "ansible_facts": {"of_action": True}}
