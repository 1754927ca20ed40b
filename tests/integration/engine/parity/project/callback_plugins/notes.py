"""Writes what it is told to a file in `work`."""

import json
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: notes
type: notification
short_description: notes
description: notes
options:
  prefix:
    description: prefix
    default: note
    ini: [{section: callback_notes, key: prefix}]
    env: [{name: PARITY_NOTES_PREFIX}]
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "notes"
    CALLBACK_NEEDS_ENABLED = True

    def set_options(self, task_keys=None, var_options=None, direct=None):
        super().set_options(task_keys=task_keys, var_options=var_options, direct=direct)
        self.prefix = self.get_option("prefix")

    def _note(self, *words):
        with open(os.path.join(os.environ["PARITY_WORK"], "notes"), "a") as file:
            file.write(json.dumps([self.prefix, *words], default=str) + "\n")

    def v2_on_any(self, *args, **kwargs):
        self._note("any", [type(argument).__name__ for argument in args], sorted(kwargs))

    def v2_playbook_on_start(self, playbook):
        self._note("start", os.path.basename(playbook._file_name))

    def v2_playbook_on_play_start(self, play):
        self._note("play", play.get_name(), sorted(play.get_variable_manager()._extra_vars))

    def v2_playbook_on_task_start(self, task, is_conditional):
        self._note("task", task.get_name(), is_conditional, task.action, task.args)

    def v2_playbook_on_handler_task_start(self, task):
        self._note("handler", task.get_name())

    def v2_playbook_on_include(self, included_file):
        self._note("include", os.path.basename(included_file._filename), [host.name for host in included_file._hosts])

    def v2_runner_on_start(self, host, task):
        self._note("begins", host.get_name(), task.get_name())

    def v2_runner_on_ok(self, result):
        told = {key: value for key, value in result._result.items() if key in {"changed", "msg", "ansible_facts", "results"}}
        self._note("ok", result._host.get_name(), result.task_name, told, result.is_changed(), sorted(result._task_fields))

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._note("failed", result.task_name, ignore_errors, result._result.get("msg"))

    def v2_runner_on_skipped(self, result):
        self._note("skipped", result.task_name, result._result.get("skip_reason"))

    def v2_runner_item_on_ok(self, result):
        self._note("item", result.task_name, result._result.get("item"))

    def v2_runner_item_on_skipped(self, result):
        self._note("item skipped", result.task_name, result._result.get("item"))

    def v2_runner_retry(self, result):
        self._note("retry", result.task_name, result._result.get("attempts"))

    def v2_playbook_on_notify(self, handler, host):
        self._note("notify", handler.get_name(), host.get_name())

    def v2_playbook_on_stats(self, stats):
        self._note("stats", stats.summarize("localhost"), stats.custom)
