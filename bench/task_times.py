"""How long each task of a run took, by the moments at which its events were created.

A task lasts from the event of its start to that of the next task's: with all that Ansible does for it, skipped tasks
and the callbacks' own time included. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from runner.core.engine.job import Event

_NEXT = frozenset({"playbook_on_task_start", "playbook_on_handler_task_start", "playbook_on_stats"})


@dataclass(frozen=True, slots=True)
class TaskTime:
    """One task of a run."""

    action: str
    """Short name of the module or action: `set_fact`."""
    skipped: bool
    seconds: float


def times(events: Iterable[Event]) -> Iterator[TaskTime]:
    """Yield the tasks of a run on one host, in order."""
    start: Event | None = None
    skipped = False
    for event in sorted(events, key=lambda event: int(event["counter"])):
        if event["event"] in _NEXT:
            if start is not None:
                yield TaskTime(_action(start), skipped, (_moment(event) - _moment(start)).total_seconds())
            start, skipped = event, False
        skipped |= event["event"] == "runner_on_skipped"


def _action(start: Event) -> str:
    return str(start["event_data"].get("task_action", "")).rpartition(".")[2]


def _moment(event: Event) -> datetime:
    return datetime.fromisoformat(event["created"])
