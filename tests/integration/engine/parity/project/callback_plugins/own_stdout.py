"""A project's own output."""

from ansible.plugins.callback.default import CallbackModule as Default

DOCUMENTATION = """
name: own_stdout
type: stdout
short_description: own
description: own
extends_documentation_fragment: [default_callback]
"""


class CallbackModule(Default):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "own_stdout"

    def v2_runner_on_ok(self, result):
        self._display.display(f"own: {result.task_name} is well")

    def v2_runner_on_skipped(self, result):
        self._display.display(f"own: {result.task_name} is skipped", color="cyan")
