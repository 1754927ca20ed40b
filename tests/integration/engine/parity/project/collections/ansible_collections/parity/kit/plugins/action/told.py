from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        inner = self._execute_module("parity.kit.by_action", {"text": "through " + self._task.args.get("text", "")}, task_vars=task_vars)
        return {**result, **inner, "collections": self._task.collections, "resolved": self._task.resolved_action}
