"""Hours that take seconds: the real queue, controller and policies on a clock that jumps from timer to timer."""

from __future__ import annotations

import asyncio
import gc
import logging
import tracemalloc
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

from bench.results import Result
from bench.scale_bed import CASE
from runner.base import log
from runner.core.engine.job import Outcome, RunResult
from runner.core.kube.cache import Change, Summary
from runner.core.queue import reasons
from runner.core.queue.line import ConcurrencyLimit
from runner.core.queue.queue import Dispatcher, WorkQueue
from runner.core.queue.reasons import ReconcileRequest, RunReason
from runner.core.reconcile import decisions
from runner.core.reconcile.controller import Controller
from runner.core.reconcile.decisions import Result as Ending
from runner.core.reconcile.decisions import RetryTerms
from runner.core.reconcile.reconcile import Reconciler
from runner.core.watches.watch import Watch
from runner.values.objects import GVK, ObjectKey
from tests.kit.virtual_time import virtually
from tests.kit.watch_values import kind_value, scope_value, watch_value

_HOUR = 3600.0
_DAY = 24 * _HOUR
_RUN = 0.3
"""Seconds of a run."""
_WORKERS = 4
_SUMMARY = Summary(
    "uid", "1", 1, deleting=False, paused=False, finalizers=(), annotations_digest=b"", content_digest=b""
)


class _Objects:
    """In the place of the informer: objects that are there and do not change."""

    def __init__(self, count: int) -> None:
        self.keys = {ObjectKey("bench", f"object-{number:05}") for number in range(count)}
        self._listed = asyncio.Event()

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self.keys

    def created(self) -> list[tuple[ObjectKey, float]]:
        return []

    def age(self) -> float | None:
        return 0.0

    def summary(self, key: ObjectKey) -> Summary | None:
        return _SUMMARY if key in self.keys else None

    async def follow(self, changed: Callable[[Change], None]) -> None:
        for key in self.keys:
            changed(Change(key, None, _SUMMARY, initial=True))
        self._listed.set()

    async def known_namespaces(self) -> AsyncGenerator[str]:
        await self._listed.wait()
        yield ""


class _Runs:
    """In the place of the reconciler: runs take time and all end the same way; what comes next is decided as ever."""

    def __init__(self, watch: Watch, outcome: Outcome, period: float) -> None:
        self._retry = watch.policy.retry
        self._outcome = outcome
        self._period = period
        self.began: list[float] = []
        self.times: Counter[ObjectKey] = Counter()

    async def reconcile(self, request: ReconcileRequest) -> Ending:
        time = asyncio.get_running_loop().time
        self.began.append(time())
        self.times[request.key] += 1
        await asyncio.sleep(_RUN)
        result = RunResult(self._outcome, recap=None, failures=(), message="", requeue_after=None, duration=_RUN)
        settled = request.reason is not reasons.PRESENT
        again = (
            decisions.resync_delay(self._period, request.key.name, time(), settled=settled) if self._period else None
        )
        terms = RetryTerms(self._retry, again, finalizing=False, limit=None, deleted_for=0.0)
        return decisions.after_run(result, terms, failed_runs=request.failed_runs).result

    async def sweep(self) -> None:
        """Nothing is kept of any object."""

    async def follow(self) -> None:
        """No dependent changes."""

    async def drain(self) -> None:
        """No status is kept."""

    def supersede(self, key: ObjectKey, reason: RunReason) -> None:
        """Nothing changes."""


def runs_of_a_hopeless_object() -> tuple[int, int]:
    """Count the runs of an object whose runs all fail, in its first 30 seconds and in its first hour."""
    runs = _Runs(_watch(), Outcome.FAILED, period=0)
    _virtually(_go_on(runs, 1, _HOUR))
    return sum(moment <= 30 for moment in runs.began), sum(moment <= _HOUR for moment in runs.began)


def a_day_of_resyncs(count: int) -> list[Result]:
    """Run `count` objects each hour for a day; see what it leaves in memory, and whether any was forgotten."""
    runs = _Runs(_watch(), Outcome.SUCCEEDED, period=_HOUR)
    grown = _virtually(_go_on(runs, count, _DAY))
    fewest, most = min(runs.times.values()), max(runs.times.values())
    return [
        Result(CASE, "growth by a day of periodic runs, of each object", grown / count, "bytes", 64),
        Result(CASE, "periodic runs of a day, the object with the fewest", fewest, "runs", 22, "higher"),
        Result(CASE, "periodic runs of a day, the object with the most", most, "runs", 28),
    ]


def _watch() -> Watch:
    return watch_value(gvk=GVK("bench.example.com", "v1", "Load"))


async def _go_on(runs: _Runs, count: int, seconds: float) -> int:
    """Run a controller for as long; return by how many bytes what it holds grew after its first tenth."""
    informer = _Objects(count)
    controller = _controller(informer, runs)
    following = asyncio.create_task(controller.follow())
    working = asyncio.create_task(controller.work())
    await asyncio.sleep(seconds / 10)
    before = _held(runs)
    await asyncio.sleep(seconds - seconds / 10)
    after = _held(runs)
    if following.done():
        following.result()
    controller.queue.close()
    await working
    following.cancel()
    return after - before


def _controller(informer: _Objects, runs: _Runs) -> Controller:
    queue = WorkQueue(ConcurrencyLimit.of(_WORKERS), Dispatcher(ConcurrencyLimit.of(_WORKERS)))
    kind = kind_value(scope_value(_watch(), informer), queue=queue, runs=runs, status=runs)
    return Controller(kind, cast("Reconciler", runs))


def _held(runs: _Runs) -> int:
    """Bytes that Python holds, but for what the benchmark itself notes."""
    runs.began.clear() if runs.times.total() > 100 else None
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _virtually(work: Any) -> Any:
    log.configure(level=logging.ERROR, encoder="json")
    tracemalloc.start()
    try:
        return virtually(work)
    finally:
        tracemalloc.stop()
