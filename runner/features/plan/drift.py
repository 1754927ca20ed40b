"""Drift checks of one watch's objects: plan runs that detect changes by other clients, and their times.

An object has drift if a run would change something although neither the object nor its role has changed. Drift is
reported once, in the condition `Drifted`, in `status.drift` and in an Event. A check without drift writes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from prometheus_client import Counter

from runner.base import log
from runner.core.engine.job import Outcome
from runner.core.queue.queue import WorkQueue
from runner.core.reconcile.attempt import Attempt, WatchScope
from runner.core.reconcile.decisions import Done, resync_delay
from runner.core.reconcile.hooks import NOTHING, FinishedRun, Hooks, Skip
from runner.core.status import report
from runner.core.status.conditions import timestamp
from runner.core.status.report import StatusReport
from runner.core.status.writer import StatusWriter
from runner.features.plan import published
from runner.features.plan.changes import ObjectChange, ResourcePlan
from runner.features.plan.drift_fields import DriftPolicy
from runner.features.plan.feature import DRIFT
from runner.features.plan.plan_status import drift_ended, drift_found, drift_of
from runner.features.plan.runs import PlanRun, PlanRuns
from runner.values.objects import ObjectKey, uid_of


class DriftSchedule(Hooks):
    """Timers of the checks of one watch's objects.

    The UID determines the times of an object, a period apart. This spreads the checks of many objects over the period,
    and a restart or another replica does not change the times. A check is omitted if a real run is due anyway, because
    that run repairs the drift.
    """

    def __init__(
        self,
        queue: WorkQueue,
        period: float,
        check: Callable[[ObjectKey], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        """`period` is in seconds. `check` requests the check of an object. `now` is since the epoch."""
        self._queue = queue
        self._period = period
        self._check = check
        self._now = now
        self._timers: dict[ObjectKey, asyncio.TimerHandle] = {}

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Schedule the checks of an object when it is reconciled for the first time."""
        self.start(attempt.key, uid_of(attempt.obj))
        return attempt

    async def sweep(self) -> None:
        """End all checks with the operator."""
        try:
            await asyncio.Event().wait()
        finally:
            for key in list(self._timers):
                self.forget(key)

    def start(self, key: ObjectKey, uid: str) -> None:
        """Schedule the checks of an object; no effect if it has a schedule."""
        if key not in self._timers:
            self._set(key, resync_delay(self._period, f"drift {uid}", self._now(), settled=False))

    def forget(self, key: ObjectKey) -> None:
        """End the checks of an object."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _set(self, key: ObjectKey, delay: float) -> None:
        self._timers[key] = asyncio.get_running_loop().call_later(delay, self._due, key)

    def _due(self, key: ObjectKey) -> None:
        self._set(key, self._period)
        entry = self._queue.next_run(key)
        has_run = entry is not None and (entry.stage == "waiting" or entry.reason.repairs)
        if not has_run and not self._queue.is_running(key):
            self._check(key)


_MOST_DETAILS = 20
_RESULTS = ("none", "drifted", "partial", "failed", "canceled")
"""`partial`: no drift, but some tasks were not planned."""


@dataclass(frozen=True, slots=True)
class DriftChecks(Hooks):
    """Checks of one watch's objects."""

    scope: WatchScope
    policy: DriftPolicy | None
    """None: no checks. A run still ends what was reported before."""
    plans: PlanRuns
    writer: StatusWriter
    drifted: set[ObjectKey] = field(default_factory=set)
    """Objects with drift."""

    def __post_init__(self) -> None:
        """Create the series of the kind's metrics."""
        if self.policy is not None:
            gauge = self.scope.metrics.gauge("ansible_operator_drifted_objects", "Objects with drift", ["GVK"])
            gauge.labels(str(self.scope.watch.gvk)).set_function(self.drifted.__len__)
            for result in _RESULTS:
                self._checks(result)
            self.scope.registry.subscribe(self.drifted.discard)

    def _checks(self, result: str) -> Counter:
        """Return the counter of the checks with a result."""
        of_all = self.scope.metrics.counter(
            "ansible_operator_drift_checks", "Drift checks by result", ["GVK", "result"]
        )
        return of_all.labels(str(self.scope.watch.gvk), result)

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Check the object if this is due, and run it only to repair drift."""
        if attempt.request.reason is not DRIFT or attempt.bounds is not None:
            return attempt
        drifted = await self._check(attempt)
        if self.policy is None or not self.policy.repair or not drifted:
            return Skip(Done(self.scope.terms(attempt).resync_after))
        return replace(attempt, request=replace(attempt.request, details=drifted))

    def status(self, attempt: Attempt, run: FinishedRun) -> StatusReport:
        """End the report of drift after a run that succeeded."""
        if run.result.outcome is not Outcome.SUCCEEDED:
            return NOTHING
        self.drifted.discard(attempt.key)
        return drift_ended(attempt.obj)

    async def _check(self, attempt: Attempt) -> tuple[str, ...]:
        """Check an object and report its drift; return a phrase for each object."""
        if attempt.executes.finalizing:
            return ()
        planned = await self.plans.run(attempt)
        attempt = await attempt.learned(planned.result)
        plan = planned.plan
        result = _result(planned)
        self._checks(result).inc()
        logger = log.get(__name__, gvk=str(self.scope.watch.gvk)).bind(**attempt.key._asdict())
        if result == "canceled":
            return ()  # the object changed: its run follows
        if result == "failed":
            logger.warning("Drift check failed; the next one is after the period", error=plan.message)
            return ()
        if not plan.changes:
            await self._end(attempt)
            return ()
        phrases = tuple(map(_phrase, plan.changes))
        if await self._report(attempt, plan, phrases):
            logger.info("Drift: other clients changed what the role sets", objects=phrases[:_MOST_DETAILS])
        return phrases[:_MOST_DETAILS]

    async def _report(self, attempt: Attempt, plan: ResourcePlan, phrases: tuple[str, ...]) -> bool:
        """Report drift; return whether it is new."""
        self.drifted.add(attempt.key)
        old = drift_of(attempt.obj)
        drift = published.drift(plan, timestamp(time.time()))
        is_new: bool = old.get("hash") != drift["hash"]
        if not is_new:
            drift = old
        message = "; ".join(phrases)
        change = report.observed(attempt.obj, drift_found(message, drift))
        await self.writer.write(attempt.resource, attempt.obj, change, attempt.guard)
        if is_new:
            self.scope.about(attempt.obj).record("Warning", "Drifted", "Check", message)
        return is_new

    async def _end(self, attempt: Attempt) -> None:
        """Take back a report of drift that another client has repaired."""
        self.drifted.discard(attempt.key)
        ended = drift_ended(attempt.obj)
        if ended.conditions:
            change = report.observed(attempt.obj, ended)
            await self.writer.write(attempt.resource, attempt.obj, change, attempt.guard)


def _result(planned: PlanRun) -> str:
    plan = planned.plan
    if planned.result.outcome is Outcome.CANCELED:
        return "canceled"
    if plan.state == "failed":
        return "failed"
    if plan.changes:
        return "drifted"
    return "partial" if plan.state == "partial" else "none"


def _phrase(change: ObjectChange) -> str:
    paths = [changed.path for changed in change.fields if changed.path] if change.verb == "change" else []
    return str(change) + (f": {', '.join(paths)}" if paths else "")
