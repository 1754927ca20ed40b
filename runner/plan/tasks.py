"""Tasks that a run in check mode did not execute, and those that would change other hosts than localhost. Pure.

ansible-core reports these in events of skipped tasks, 2.18 to 2.21 alike:
- A module without check mode: `remote module (NAME) does not support check mode`.
- An action plugin without it: `This action (NAME) does not support check mode.`, or a similar text.
- `command` and `shell`: `Command would have run if not in check mode`; with `creates` or `removes`, these report a
  change instead.
- `raw`: skipped without any reason. A condition or an empty loop always has a reason.
- A condition of the role with `ansible_check_mode`, in `false_condition`.

ansible-runner omits the result of a skipped task from the event's data. It is in the event's output, if the verbosity
is at least `VERBOSITY` and the output has the format that `OUTPUT` selects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.engine.job import Event

VERBOSITY = 1
"""Verbosity from which the output contains results."""
OUTPUT = {
    "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "true",
    "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
    "ANSIBLE_CALLBACK_FORMAT_PRETTY": "false",
}
"""Environment of Ansible that selects the format of the output."""
_HIDDEN = "it was skipped, and no_log hides the reason"
_UNKNOWN = "it was skipped, and its output does not contain the reason"
_RESULT = re.compile(r"skipping: .*? => (?=\{)", re.DOTALL)
_ALL_ITEMS = "All items skipped"
_COMMAND = "Command would have run if not in check mode"
_SKIPPED = frozenset({"runner_on_skipped", "runner_item_on_skipped"})
_OK = frozenset({"runner_on_ok", "runner_item_on_ok"})
_CHECK_MODE = re.compile(r"check.?mode", re.IGNORECASE)
_SKIPS_SILENTLY = frozenset({"raw", "ansible.builtin.raw", "ansible.legacy.raw"})
_SUPPORTING = re.compile(
    r"kubernetes\.core\..+|operator_sdk\.util\..+"
    r"|ansible\.builtin\.(?:assert|copy|debug|fail|file|include_.+|import_.+|set_fact|set_stats|stat|template)"
)
"""Actions that support check mode, so that only a condition can be the hidden reason why such a task was skipped."""
_LOCALHOST = "localhost"
_OF_CLUSTER = re.compile(r"kubernetes\.core\..+|operator_sdk\.util\..+")
"""Actions that change objects, which the plan contains, wherever they are executed."""
_MOST = 100
"""Number of tasks that a run reports at most."""


@dataclass(frozen=True, slots=True)
class UnplannedTask:
    """A task that the run did not execute, or not with certainty. `path` is `file:line`, empty if unknown."""

    task: str
    path: str
    action: str
    reason: str


@dataclass(slots=True)
class UnplannedTasks:
    """Collects the tasks from the events of one run."""

    found: dict[tuple[str, str], UnplannedTask] = field(default_factory=dict)
    more: int = 0
    """Number of further tasks."""
    hosts: dict[str, dict[str, str]] = field(default_factory=dict)
    """Tasks that would change a host, with their actions, by the name of the host."""

    def event(self, event: Event) -> None:
        """Read one event of ansible-runner."""
        data = event.get("event_data")
        if event.get("event") not in _SKIPPED | _OK or not isinstance(data, dict):
            return
        result = data.get("res")
        if not isinstance(result, dict):
            result = _printed(str(event.get("stdout") or "")) if event.get("event") in _SKIPPED else {}
        action = str(data.get("resolved_action") or data.get("task_action") or "")
        self._note_host(data, result, action)
        reason = _reason(action, result, is_ok=event.get("event") in _OK)
        if not reason:
            return
        task = UnplannedTask(
            task=str(data.get("task") or ""),
            path=str(data.get("task_path") or ""),
            action=action,
            reason=reason,
        )
        if (task.path, task.task) in self.found:
            return
        if len(self.found) < _MOST:
            self.found[task.path, task.task] = task
        else:
            self.more += 1

    def _note_host(self, data: Mapping[str, Any], result: Mapping[str, Any], action: str) -> None:
        delegated = result.get("_ansible_delegated_vars")
        host = (delegated if isinstance(delegated, dict) else {}).get("ansible_delegated_host") or data.get("host")
        if result.get("changed") is True and host != _LOCALHOST and not _OF_CLUSTER.fullmatch(action):
            tasks = self.hosts.setdefault(str(host), {})
            if len(tasks) < _MOST:
                tasks[str(data.get("task") or "")] = action

    @property
    def tasks(self) -> tuple[UnplannedTask, ...]:
        """The tasks in their order."""
        return tuple(self.found.values())


def _printed(output: str) -> dict[str, Any]:
    """Return the result in the output of a skipped task; empty if there is none."""
    begin = _RESULT.search(output)
    try:
        found, _ = json.JSONDecoder().raw_decode(output, begin.end()) if begin else ({}, 0)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _reason(action: str, result: Mapping[str, Any], *, is_ok: bool) -> str:
    """Return why a task was not executed because of check mode; empty if this was not the reason."""
    message = str(result.get("msg") or "")
    if is_ok:
        # With `creates` or `removes`, command and shell report a change that they did not make.
        return message if message == _COMMAND else ""
    condition = str(result.get("false_condition") or "")
    if "ansible_check_mode" in condition:
        return f"the role skips it in check mode: {condition}"
    if condition or result.get("skip_reason") or result.get("skipped_reason") or message == _ALL_ITEMS:
        return ""  # each item of a loop has an event of its own
    if _CHECK_MODE.search(message):
        return message
    return _without_reason(action, result)


def _without_reason(action: str, result: Mapping[str, Any]) -> str:
    if not result:
        return _UNKNOWN
    if action in _SKIPS_SILENTLY:
        return f"{action} does not run in check mode"
    return _HIDDEN if "censored" in result and not _SUPPORTING.fullmatch(action) else ""
