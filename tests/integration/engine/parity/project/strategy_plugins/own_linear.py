from ansible.plugins.strategy.linear import StrategyModule as Linear
from ansible.utils.display import Display

DOCUMENTATION = """
name: own_linear
short_description: linear, and says so
description: [own]
author: nobody
"""


class StrategyModule(Linear):
    def _queue_task(self, host, task, task_vars, play_context):
        Display().display(f"own strategy: {host.name} {task.get_name()}")
        task_vars["of_strategy"] = "own"
        return super()._queue_task(host, task, task_vars, play_context)
