"""Tasks of a run, from the events of ansible-runner.

A task has name, location, action, times and result, and its loop items have labels and results. No arguments are
recorded, and of a result only the message of a failure. The number of tasks and items and the length of texts are
bounded.
Source: https://ansible.readthedocs.io/projects/runner/en/stable/intro/#runner-artifact-job-events-host-and-playbook-events
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import orjson

from runner.core.engine.events import TASK_STARTS, failure_message, moment
from runner.core.engine.job import Event, TaskFailure
from runner.core.masking.masker import TOO_SLOW
from runner.values.errors import shortened

TaskState: TypeAlias = Literal[
    "running", "ok", "changed", "skipped", "failed", "ignored", "rescued", "unreachable", "cut short"
]

MOST_TASKS = 500
"""Maximum number of tasks of a run."""
MOST_ITEMS = 50
"""Maximum number of items of a task, beside failed ones."""
_LONGEST_NAME, _LONGEST_MESSAGE, _LONGEST_LABEL = 300, 2000, 120
_LABEL_MARGIN = 30
_MOST_FAILED_ITEMS = 10
_MASKING = 0.2
"""Seconds of CPU time to mask all texts again."""
ENDS: Mapping[str, TaskState] = {
    "runner_on_ok": "ok",
    "runner_on_skipped": "skipped",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
}
ITEM_ENDS: Mapping[str, TaskState] = {
    "runner_item_on_ok": "ok",
    "runner_item_on_skipped": "skipped",
    "runner_item_on_failed": "failed",
}
BAD: frozenset[TaskState] = frozenset({"failed", "unreachable"})


@dataclass(slots=True)
class ItemRecord:
    """One item of a task with a loop."""

    label: str
    state: TaskState
    message: str
    """Message of a failure."""


@dataclass(slots=True)
class TaskRecord:
    """One task of a run."""

    name: str
    path: str
    """`file:line`; empty if unknown."""
    action: str
    began: float
    """Return the seconds since the epoch."""
    ended: float | None = None
    state: TaskState = "running"
    message: str = ""
    """Message of a failure."""
    items: list[ItemRecord] = field(default_factory=list)
    """The first items, and the first failed ones."""
    item_count: int = 0
    """Number of items, including those that are not recorded."""

    @property
    def failures(self) -> list[str]:
        """Messages of the recorded failed items."""
        return [item.message for item in self.items if item.state in BAD]


@dataclass(slots=True)
class Timeline:
    """The latest tasks of a run."""

    masked: Callable[[str], str]
    """Masks known secrets in a text."""
    tasks: deque[TaskRecord] = field(default_factory=lambda: deque(maxlen=MOST_TASKS))
    count: int = 0
    """Number of started tasks, including removed ones."""

    def add(self, event: Event) -> bool:
        """Process an event; return whether anything changed."""
        kind, data = str(event.get("event", "")), event.get("event_data")
        data = data if isinstance(data, dict) else {}
        if kind in TASK_STARTS:
            self._close(moment(event), "ok")
            self.count += 1
            self.tasks.append(
                TaskRecord(
                    name=self._cut(data.get("task"), _LONGEST_NAME),
                    path=self._cut(data.get("task_path"), _LONGEST_NAME),
                    action=self._cut(data.get("task_action"), _LONGEST_NAME),
                    began=moment(event),
                )
            )
            return True
        if not self.tasks:
            return False
        if kind in ITEM_ENDS:
            self._item(ITEM_ENDS[kind], data)
            return True
        if kind in ENDS:
            self._ended(ENDS[kind], data, moment(event))
            return True
        return False

    def end(self, when: float, failures: Iterable[TaskFailure] | None, *, whole: bool) -> None:
        """Record the end of the run. `failures` are those that were not rescued; None: unknown.

        `whole`: Ansible ended by itself. Texts are masked again, because more secrets can be known now.
        """
        self._close(when, "ok" if whole else "cut short")
        left = {(self._cut(failure.task, _LONGEST_NAME), failure.path) for failure in failures or ()}
        until = time.thread_time() + _MASKING
        for task in self.tasks:
            if failures is not None and task.state in BAD and (task.name, task.path) not in left:
                task.state = "rescued"
            if time.thread_time() > until:
                task.name, task.message = TOO_SLOW, task.message and TOO_SLOW
                task.items = []
            else:
                task.name, task.message = self.masked(task.name), self.masked(task.message)
                for item in task.items:
                    item.label, item.message = self.masked(item.label), self.masked(item.message)

    def _item(self, state: TaskState, data: Mapping[str, Any]) -> None:
        task, result = self.tasks[-1], data.get("res")
        result = result if isinstance(result, dict) else {}
        task.item_count += 1
        failed = state in BAD
        if len(task.items) >= MOST_ITEMS and not (failed and len(task.failures) < _MOST_FAILED_ITEMS):
            return
        if state == "ok" and result.get("changed") is True:
            state = "changed"
        label = result.get("_ansible_item_label", result.get("item"))
        message = self._cut(failure_message(data, ()), _LONGEST_NAME) if failed else ""
        task.items.append(ItemRecord(self._cut(_label(label), _LONGEST_LABEL), state, message))

    def _ended(self, state: TaskState, data: Mapping[str, Any], when: float) -> None:
        task = self.tasks[-1]
        result = data.get("res")
        if state == "ok" and isinstance(result, dict) and result.get("changed") is True:
            state = "changed"
        if state in BAD:
            task.message = self._cut(failure_message(data, tuple(task.failures)), _LONGEST_MESSAGE)
            state = "ignored" if data.get("ignore_errors") else state
        task.ended = when
        # The worst result of several hosts counts.
        if task.state not in BAD or state in BAD:
            task.state = state

    def _close(self, when: float, state: TaskState) -> None:
        """Close the last task if it is still running."""
        if self.tasks and self.tasks[-1].ended is None:
            self.tasks[-1].ended, self.tasks[-1].state = when, state

    def _cut(self, text: object, longest: int) -> str:
        return shortened(self.masked(str(text or "")), longest)


def _label(item: object) -> str:
    """Return the beginning of an item's label; JSON if it is not a text, and nothing if `no_log` hides it.

    The rest is masked and cut to the displayed length, so no part of a secret that is cut here is displayed.
    """
    if item is None:
        return ""
    text = item if isinstance(item, str) else orjson.dumps(item, default=str).decode()
    return text[: _LONGEST_LABEL * _LABEL_MARGIN]
