from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        return {**result, **self._execute_module("new_style", {"text": self._task.args["text"]}, task_vars=task_vars)}
