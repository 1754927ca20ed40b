"""Reports about objects that a dependent or a reference runs again and again: the condition `Contended`, and Events."""

from __future__ import annotations

import asyncio

from runner.base import log
from runner.base.events.bodies import ApiEvent
from runner.core.kube.discovery import Discovery
from runner.core.queue import reasons
from runner.core.reconcile.attempt import Attempt, WatchScope
from runner.core.reconcile.hooks import Hooks, Skip
from runner.core.status import report
from runner.core.status.conditions import ended, make
from runner.core.status.report import StatusReport
from runner.core.status.writer import StatusWriter
from runner.features.loopguard.feature import CONTENDED
from runner.features.loopguard.guard import Contention, LoopGuard
from runner.values.errors import ApiError, ApiUnavailableError, LeaseLostError
from runner.values.objects import Object, ObjectKey, ObjectRef

_RETRY_DELAY = 10.0
"""Seconds after a condition that could not be written."""


def contended(reason: str, sentence: str) -> StatusReport:
    """Return the change for an object whose runs are slowed down because its dependents or references keep changing."""
    return StatusReport((make(CONTENDED, "True", reason, sentence),))


def contention_ended(obj: Object) -> StatusReport:
    """Return the change that ends `Contended`; empty if the object does not have that condition."""
    return StatusReport(ended(obj, CONTENDED, "Quiet"))


class ContentionReporter(Hooks):
    """Reports contention for one watch's objects."""

    def __init__(self, scope: WatchScope, discovery: Discovery, status: StatusWriter, guard: LoopGuard) -> None:
        self._scope = scope
        self._discovery = discovery
        self._status = status
        self._pending: dict[ObjectKey, Contention | None] = {}
        self._failed: dict[ObjectKey, Contention | None] = {}
        """Reports that are written again after a delay."""
        self._added = asyncio.Event()
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))
        gvk = scope.watch.gvk
        guard.reports[gvk] = self.report
        scope.registry.subscribe(lambda key: guard.forget(ObjectRef(gvk, key)))

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Remove a `Contended` condition of an earlier process. If contention continues, it is reported again."""
        quiet = contention_ended(attempt.obj)
        if attempt.request.reason is reasons.PRESENT and quiet.conditions:
            change = report.observed(attempt.obj, quiet)
            await self._status.write(attempt.resource, attempt.obj, change, attempt.guard)
        return attempt

    def report(self, key: ObjectKey, contention: Contention | None) -> None:
        """Report that an object's runs are slowed down, or (None) that they no longer are. The latest report counts."""
        self._failed.pop(key, None)
        self._pending[key] = contention
        self._added.set()

    def _repeat(self, key: ObjectKey) -> None:
        if key in self._failed:
            self.report(key, self._failed[key])

    async def sweep(self) -> None:
        """Write reports until canceled."""
        while True:
            await self._added.wait()
            self._added.clear()
            while self._pending:
                key = next(iter(self._pending))
                await self._write(key, self._pending.pop(key))

    async def _write(self, key: ObjectKey, contention: Contention | None) -> None:
        obj = self._scope.informer.get(key)
        gvk = self._scope.watch.gvk
        with self._scope.leadership.hold() as guard:
            if obj is None or guard is None:
                return
            try:
                resource = await self._discovery.find(gvk)
                change = (
                    contended(contention.reason, contention.sentence())
                    if contention is not None
                    else contention_ended(obj)
                )
                await self._status.write(resource, obj, report.observed(obj, change), guard)
            except (ApiError, ApiUnavailableError, LeaseLostError) as error:
                self._log.info("Cannot write a condition; retrying", error=str(error), **key._asdict())
                if key not in self._pending:  # else there is a later report
                    self._failed[key] = contention
                    asyncio.get_running_loop().call_later(_RETRY_DELAY, self._repeat, key)
                return
        if contention is not None:
            about = ObjectRef.of(gvk, obj)
            what = contention.reason, "SlowedDown", contention.sentence()
            self._scope.events.record(ApiEvent(about, contention.ref, "Warning", *what))
