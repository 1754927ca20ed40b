"""Coverage of a run: tasks because of which other tasks may not run, and times of handlers, from the run's events.

Only runs of watches with `prune` record it. Ansible reports skipped tasks, but no tasks of a skipped include, and none
after the end of a play.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runner.engine.job import Event

_PREFIXES = ("", "ansible.builtin.", "ansible.legacy.")
_INCLUDES = frozenset(prefix + name for prefix in _PREFIXES for name in ("include", "include_tasks", "include_role"))
_METAS = frozenset(f"{prefix}meta" for prefix in _PREFIXES)
_STARTS = frozenset({"playbook_on_task_start", "playbook_on_handler_task_start"})
_SKIPPED = frozenset({"runner_on_skipped", "runner_item_on_skipped"})
_FAILED = frozenset({"runner_on_failed", "runner_on_unreachable"})
_NO_HOSTS = frozenset({"playbook_on_no_hosts_matched", "playbook_on_no_hosts_remaining"})
_DIGEST_SIZE = 6


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of a run that has ended."""

    omitting: tuple[str, ...] = ()
    """Digests of tasks because of which other tasks did not run: skipped includes, ends of a play or role, ignored
    failures, plays without hosts. Sorted, with repetitions."""
    failed: bool = False
    """Whether a task failed, and the failure was not ignored. If the run succeeded, it was rescued."""
    handlers: tuple[tuple[float, float], ...] = ()
    """Begin and end of each handler, in seconds since the epoch."""


class CoverageRecorder:
    """Records the coverage of one run."""

    def __init__(self) -> None:
        self._omitting: list[str] = []
        self._failed = False
        self._handlers: list[tuple[float, float]] = []
        self._handler = 0.0
        """Start of the current task if it is a handler; 0 if it is none."""
        self._meta: Mapping[str, Any] | None = None
        """Data of the current task if it is a `meta` task that was not skipped."""

    def event(self, event: Event) -> None:
        """Process an event of ansible-runner."""
        kind, data = event.get("event"), event.get("event_data")
        data = data if isinstance(data, dict) else {}
        if kind in _STARTS:
            self._end_task(event, data)
            self._meta = data if data.get("task_action") in _METAS else None
            self._handler = _time(event) if data.get("is_conditional") is True else 0.0
        elif kind == "playbook_on_stats":
            self._end_task(event, None)
        elif kind in _SKIPPED:
            self._meta = None
            if data.get("task_action") in _INCLUDES:
                self._omit(data)
        elif kind in _FAILED and data.get("ignore_errors"):
            self._omit(data)
        elif kind in _FAILED:
            self._failed = True
        elif kind in _NO_HOSTS:
            self._omit({"task": data.get("play"), "task_action": kind})

    def result(self) -> Coverage:
        """Return the coverage so far."""
        return Coverage(tuple(sorted(self._omitting)), self._failed, tuple(self._handlers))

    def _end_task(self, event: Event, following: Mapping[str, Any] | None) -> None:
        """End the current task. A `meta` task ended its play or role if no task of the same play and role follows."""
        meta = self._meta
        if meta is not None and (
            following is None or any(meta.get(name) != following.get(name) for name in ("play_uuid", "role"))
        ):
            self._omit(meta)
        if self._handler:
            self._handlers.append((self._handler, _time(event)))
        self._meta, self._handler = None, 0.0

    def _omit(self, data: Mapping[str, Any]) -> None:
        """Note a task because of which further tasks may not run. Its line is ignored, because edits change it."""
        file = str(data.get("task_path") or "").rpartition(":")[0]
        text = "\0".join((file, str(data.get("task") or ""), str(data.get("task_action") or "")))
        self._omitting.append(hashlib.blake2b(text.encode(errors="replace"), digest_size=_DIGEST_SIZE).hexdigest())


def _time(event: Event) -> float:
    try:
        return datetime.fromisoformat(str(event.get("created", ""))).timestamp()
    except ValueError:
        return 0.0
