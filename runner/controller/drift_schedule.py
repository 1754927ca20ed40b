"""Times of the drift checks of one watch's objects: `drift.period`.

The UID determines the times of an object, a period apart. This spreads the checks of many objects over the period, and
a restart or another replica does not change the times. A check is omitted if a real run is due anyway, because that run
repairs the drift.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from runner.controller.decisions import resync_delay
from runner.objects import ObjectKey
from runner.workqueue.queue import WorkQueue
from runner.workqueue.request import RunReason

_REAL_RUNS_SOON = frozenset({RunReason.REQUEUED, RunReason.RETRY, RunReason.PRUNE})
"""Reasons of delayed runs that a check must not replace in the queue."""


class DriftSchedule:
    """Timers of one watch's objects."""

    def __init__(
        self, queue: WorkQueue, period: float, owns: Callable[[ObjectKey], bool], now: Callable[[], float] = time.time
    ) -> None:
        """`period` is in seconds. `owns` returns whether this replica runs an object now. `now` is since the epoch."""
        self._queue = queue
        self._period = period
        self._owns = owns
        self._now = now
        self._timers: dict[ObjectKey, asyncio.TimerHandle] = {}

    def start(self, key: ObjectKey, uid: str) -> None:
        """Schedule the checks of an object; no effect if it has a schedule."""
        if key not in self._timers:
            self._set(key, resync_delay(self._period, f"drift {uid}", self._now(), settled=False))

    def forget(self, key: ObjectKey) -> None:
        """End the checks of an object."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """End all checks."""
        for key in list(self._timers):
            self.forget(key)

    def _set(self, key: ObjectKey, delay: float) -> None:
        self._timers[key] = asyncio.get_running_loop().call_later(delay, self._due, key)

    def _due(self, key: ObjectKey) -> None:
        self._set(key, self._period)
        entry = self._queue.next_run(key)
        has_run = entry is not None and (entry.stage == "waiting" or entry.reason in _REAL_RUNS_SOON)
        if not has_run and not self._queue.is_running(key) and self._owns(key):
            self._queue.add(key, RunReason.DRIFT)
