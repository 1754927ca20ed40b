"""Tasks whose changes a plan does not contain, and those that would change other hosts than localhost. Pure.

Rule: a plan names what it cannot see. Each task that reports a change is a planned write, a change of a host, or an
unplanned task with its file and line. `_OF_CLUSTER` names the modules that send their requests in check mode too. For
all other modules, a write during the task counts. A task that check mode skips, that runs in the background, or whose
request was refused is unplanned.

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
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.core.engine.events import TASK_STARTS, moment
from runner.core.engine.job import Event
from runner.features.plan.trial.overlay import Overlay

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
_LOST = "its result exceeds MAX_EVENT_RES, so it may contain a change"
_ALL_ITEMS = "All items skipped"
_COMMAND = "Command would have run if not in check mode"
_SKIPPED = frozenset({"runner_on_skipped", "runner_item_on_skipped"})
_OK = frozenset({"runner_on_ok", "runner_item_on_ok"})
_FAILED = frozenset({"runner_on_failed", "runner_item_on_failed"})
_CHECK_MODE = re.compile(r"check.?mode", re.IGNORECASE)
_SKIPS_SILENTLY = frozenset({"raw", "ansible.builtin.raw", "ansible.legacy.raw"})
_SUPPORTING = re.compile(
    r"kubernetes\.core\..+|operator_sdk\.util\..+"
    r"|ansible\.builtin\.(?:assert|copy|debug|fail|file|include_.+|import_.+|set_fact|set_stats|stat|template)"
)
"""Actions that support check mode, so that only a condition can be the hidden reason why such a task was skipped."""
_LOCALHOST = "localhost"
_OF_CLUSTER = re.compile(
    r"(?:kubernetes\.core|community\.okd|redhat\.openshift)\.k8s(?:_json_patch|_service)?|operator_sdk\.util\..+"
)
"""Actions that send their requests in check mode too, so that the plan contains their changes."""
_SENDS_NOTHING = re.compile(r"kubernetes\.core\..+|(?:community\.okd|redhat\.openshift)\..+")
_NEUTRAL = re.compile(
    r"(?:ansible\.(?:builtin|legacy)\.)?"
    r"(?:add_host|assert|debug|fail|group_by|include_.+|import_.+|meta|pause|set_fact|set_stats|setup|stat|wait_for)"
)
"""Actions that change nothing, although a role can let them report a change."""
_IN_BACKGROUND = "it runs in the background, so that the plan can lack its changes"
_WITHOUT_REQUESTS = "it reports a change, but sends no request in check mode"
_OUTSIDE = "it reports a change outside the cluster"
_MOST = 100
"""Number of tasks that a run reports at most, and of those that would change a host."""


@dataclass(frozen=True, slots=True)
class UnplannedTask:
    """A task whose changes the plan can lack. `path` is `file:line`, empty if unknown."""

    task: str
    path: str
    action: str
    reason: str


@dataclass(slots=True)
class UnplannedTasks:
    """Collects the tasks from the events of one run."""

    overlay: Overlay = field(default_factory=Overlay)
    """What the run has sent so far."""
    tasks_by_key: dict[tuple[str, ...], UnplannedTask] = field(default_factory=dict)
    more: int = 0
    """Number of further tasks."""
    hosts: dict[str, dict[str, str]] = field(default_factory=dict)
    """Tasks that would change a host, with their actions, by the name of the host."""
    named: int = 0
    """Number of refusals whose tasks are known."""
    paths: dict[str, bool] = field(default_factory=dict)
    """Places of all tasks that were reached, as `file:line`, and whether they were executed on a host."""
    began: float = 0.0
    """When the latest task began, in seconds since the epoch."""
    clock: Callable[[], float] | None = None
    """Clock of the operator, if the run has another one, as in a pod; None: they have the same clock."""
    ahead: float = math.inf
    """Seconds from such a clock to that of the operator, by the event that arrived with the least delay."""

    def event(self, event: Event) -> None:
        """Read one event of ansible-runner."""
        data, kind = event.get("event_data"), event.get("event")
        at = self._at(event)
        if kind in TASK_STARTS:
            self.began = at
        if kind not in _SKIPPED | _OK | _FAILED or not isinstance(data, dict):
            return
        action = str(data.get("resolved_action") or data.get("task_action") or "")
        path = str(data.get("task_path") or "")
        self.paths[path] = self.paths.get(path, False) or kind not in _SKIPPED
        if kind in _FAILED:  # by a refusal since the last one
            for refusal in self.overlay.refusals[self.named :]:
                self._add(data, action, str(refusal), str(refusal))
            self.named = len(self.overlay.refusals)
            return
        result = data.get("res")
        if not isinstance(result, dict):
            result = _printed(str(event.get("stdout") or "")) if kind in _SKIPPED else {}
        host = _host(data, result)
        is_changed = result.get("changed") is True and not _OF_CLUSTER.fullmatch(action)
        if is_changed and (host == _LOCALHOST or _SENDS_NOTHING.fullmatch(action)):
            ahead = self.ahead if self.clock is not None else 0.0
            is_changed = not self.overlay.has_written(self.began + ahead, at + ahead)
        reason = _reason(action, result) if kind in _SKIPPED else _unseen(action, result, host if is_changed else "")
        if reason:
            self._add(data, action, reason)
        elif is_changed and host != _LOCALHOST:
            tasks, task = self.hosts.setdefault(host, {}), str(data.get("task") or "")
            if task in tasks or len(tasks) < _MOST:
                tasks[task] = action
            else:
                self._add(data, action, f"it changes a host, of which a plan lists at most {_MOST} tasks")

    def _at(self, event: Event) -> float:
        """Return when an event happened. If the run has another clock, compare it with that of the operator."""
        at = moment(event)
        if self.clock is not None and at:
            self.ahead = min(self.ahead, self.clock() - at)
        return at

    def _add(self, data: Mapping[str, Any], action: str, reason: str, *distinct: str) -> None:
        """Add a task once for all its items and hosts, or once for each value of `distinct`."""
        path, task = (str(data.get(name) or "") for name in ("task_path", "task"))
        key = (path, task, *distinct)
        if key in self.tasks_by_key:
            return
        if len(self.tasks_by_key) < _MOST:
            self.tasks_by_key[key] = UnplannedTask(task, path, action, reason)
        else:
            self.more += 1

    @property
    def tasks(self) -> tuple[UnplannedTask, ...]:
        """The tasks in their order."""
        return tuple(self.tasks_by_key.values())


def _printed(output: str) -> dict[str, Any]:
    """Return the result in the output of a skipped task; empty if there is none."""
    _, begin, text = output.partition("skipping: ")[2].partition(" => {")
    try:
        result, _ = json.JSONDecoder().raw_decode("{" + text) if begin else ({}, 0)
    except (ValueError, RecursionError):
        return {}
    return result if isinstance(result, dict) else {}


def _host(data: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    delegated = result.get("_ansible_delegated_vars")
    return str(
        (delegated if isinstance(delegated, dict) else {}).get("ansible_delegated_host") or data.get("host") or ""
    )


def _unseen(action: str, result: Mapping[str, Any], changed: str) -> str:
    """Return why the plan lacks the changes of a task that was executed; empty if it has them.

    `changed` is the host that the task would change; empty if it would change none, or only objects in the plan.
    """
    if action and not result and not _SUPPORTING.fullmatch(action):
        return _LOST
    message = str(result.get("msg") or "")
    if message == _COMMAND:  # with `creates` or `removes`, command and shell report a change that they did not make
        return message
    if result.get("ansible_job_id") and not result.get("finished"):
        return _IN_BACKGROUND
    if not changed or _NEUTRAL.fullmatch(action):
        return ""
    if _SENDS_NOTHING.fullmatch(action):
        return _WITHOUT_REQUESTS
    return _OUTSIDE if changed == _LOCALHOST else ""


def _reason(action: str, result: Mapping[str, Any]) -> str:
    """Return why a task was skipped because of check mode; empty if this was not the reason."""
    message = str(result.get("msg") or "")
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
