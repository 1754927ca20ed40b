"""Follows the dependents of one watch's objects: `Ready` with the result of a run, and when dependents change.

The result of a run contains what the watches of dependents show at that time, without a request. Changes afterwards are
written as long as `Ready` is about the dependents: a failed or started run has priority. Objects are handled one at a
time. While a workload is not ready, its pods are read again with backoff, because no watch shows their reasons.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.base import log
from runner.core.dependents.kind import DependentKind, Owned
from runner.core.engine.job import Outcome
from runner.core.kube import health
from runner.core.kube.cache import Change
from runner.core.kube.health import HealthState
from runner.core.reconcile.attempt import Attempt, WatchScope
from runner.core.reconcile.hooks import NOTHING, Addition, FinishedRun, Hooks
from runner.core.status import report
from runner.core.status.conditions import find
from runner.core.status.kstatus import READY
from runner.core.status.report import StatusReport
from runner.features.ready.pods import PodReasons
from runner.features.ready.readiness import FOLLOWED, KINDS, Known, Readiness, readiness
from runner.values.errors import ApiError, ApiUnavailableError, LeaseLostError
from runner.values.objects import ObjectKey, ObjectRef, conditions_of

if TYPE_CHECKING:
    from runner.core.reconcile.feature import Operator
    from runner.core.status.writer import StatusWriter

_RETRY = 10.0
"""Seconds until a failed write is repeated."""
_PATIENCE = 5.0
"""Seconds to wait for the pods of a workload before the result of a run is written."""
_REFUSALS = 60.0
"""Seconds between two checks which kinds the API server refuses."""


class FollowedDependents(Hooks):
    """See the module."""

    def __init__(self, scope: WatchScope, operator: Operator, status: StatusWriter) -> None:
        self._scope = scope
        self._gvk = scope.watch.gvk
        self._discovery = operator.discovery
        self._dependents = operator.dependents
        self._status = status
        self._pods = PodReasons(scope, operator.client)
        self._objects: dict[ObjectKey, Known] = {}
        self._due: dict[ObjectKey, None] = {}
        self._added = asyncio.Event()
        self._refused: list[tuple[str, str]] = []
        self._log = log.get(__name__, gvk=str(self._gvk))
        scope.registry.subscribe(self._forget)
        operator.dependents.followers[self._gvk] = self._dependent_changed

    async def explained(self, attempt: Attempt, run: FinishedRun) -> FinishedRun:
        """Add why its pods are not ready to the message of a task that waited for a dependent."""
        failures = list(run.result.failures)
        owner = ObjectRef(self._gvk, attempt.key)
        for kind in self._kinds():
            for owned in kind.owned_by(owner):
                start = f"{owned.gvk.kind} {owned.key} is not "
                for number, failure in enumerate(failures):
                    if failure.message.startswith(start) and (reason := await self._reason(kind, owned.key)):
                        waited = failure.message.partition(": ")[0]
                        failures[number] = replace(failure, message=f"{waited}: {reason}")
        return replace(run, result=replace(run.result, failures=tuple(failures)))

    async def _reason(self, kind: DependentKind, key: ObjectKey) -> str | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                return await self._pods.read(kind.resource, key)
        return None

    def status(self, attempt: Attempt, run: FinishedRun) -> StatusReport:
        """Replace the `Ready` of a run that succeeded while a dependent is not ready."""
        has_succeeded = run.result.outcome is Outcome.SUCCEEDED and not run.result.unfinished
        if not has_succeeded or attempt.executes.finalizing or attempt.is_stopped:
            return NOTHING
        known = self._objects.setdefault(attempt.key, Known())
        known.has_run = True
        now, _ = self._readiness(attempt.key, known)
        known.ran(now)
        return NOTHING if now.state is HealthState.READY else StatusReport((), now.conditions)

    async def after(self, attempt: Attempt, run: FinishedRun) -> Addition:  # noqa: ARG002 - see Hooks
        """Read the reasons of pods, and compare again: `status` could not write everything."""
        self._add(attempt.key)
        return Addition()

    def changed(self, change: Change) -> None:
        """Compare again if `Ready` was not about the dependents."""
        known = self._objects.get(change.key)
        if known is not None and known.waits:
            self._add(change.key)

    async def sweep(self) -> None:
        """Write changes until canceled."""
        loop = asyncio.get_running_loop()
        check = loop.time() + _REFUSALS
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(check):
                    await self._added.wait()
            self._added.clear()
            if loop.time() >= check:
                check = loop.time() + _REFUSALS
                self._check_refusals()
            while self._due:
                key = next(iter(self._due))
                del self._due[key]
                await self._look(key)
                await asyncio.sleep(0)  # other work of the operator comes in between

    def _add(self, key: ObjectKey) -> None:
        self._due[key] = None
        self._added.set()

    def _forget(self, key: ObjectKey) -> None:
        known = self._objects.pop(key, None)
        if known is not None:
            known.set_timer(None)

    def _dependent_changed(self, owner: ObjectRef | None) -> None:
        for key in self._scope.informer.all_keys() if owner is None else [owner.key]:
            self._add(key)

    def _check_refusals(self) -> None:
        """Compare all objects if the API server begins or ceases to refuse a kind in a namespace."""
        spaces = self._scope.informer.namespaces or ("",)
        refused = [(str(kind.gvk), space) for kind in self._kinds() for space in spaces if kind.is_refused(space)]
        if refused != self._refused:
            self._refused = refused
            self._dependent_changed(None)

    def _kinds(self) -> list[DependentKind]:
        return [kind for kind in self._dependents.kinds_of(self._gvk) if (kind.gvk.group, kind.gvk.kind) in KINDS]

    def _has_unwatched(self) -> bool:
        """Return True if the next run can show that an object has dependents of a kind that is not watched."""
        return any((kind.group, kind.kind) in KINDS for kind in self._dependents.unwatched(self._gvk))

    def _readiness(self, key: ObjectKey, known: Known) -> tuple[Readiness, bool]:
        """Return the state by the watches and reads so far, and whether a list or read in progress will complete it."""
        owner, namespace = ObjectRef(self._gvk, key), key.namespace
        is_resumed = self._dependents.is_resumed and (known.has_run or not self._has_unwatched())
        unknown = "" if is_resumed else "the kinds of dependents are not listed yet"
        unready: list[Owned] = []
        is_coming = bool(unknown)
        for kind in self._kinds():
            is_refused = kind.is_refused(namespace)
            if is_refused or not kind.is_listed(namespace):
                unknown, is_coming = unknown or kind.unknown(namespace), is_coming or not is_refused
            unready += [owned for owned in kind.owned_by(owner) if owned.health.state is not HealthState.READY]
        is_coming = is_coming or any(owned.health == health.UNREAD for owned in unready)
        return readiness(unready, namespace, unknown, {known.uid: known.reason}), is_coming

    async def _look(self, key: ObjectKey) -> None:
        """Compare one object, and write a change. An unknown state that will be known soon is not written."""
        obj = self._scope.informer.summary(key)
        if obj is None or obj.deleting or not self._scope.leadership.leads():
            return
        known = self._objects.setdefault(key, Known())
        known.set_timer(None)
        now, is_coming = self._readiness(key, known)
        if now.state is HealthState.UNKNOWN and is_coming:
            return
        delays = [await self._read_pods(now.first, known)] if now.first is not None else []
        if now.first is not None:
            now, _ = self._readiness(key, known)
        if now.text != known.said:
            delays.append(await self._write(key, known, now))
        if wanted := [delay for delay in delays if delay]:
            known.set_timer(asyncio.get_running_loop().call_later(min(wanted), self._add, key))

    async def _read_pods(self, first: Owned, known: Known) -> float:
        """Read why the pods of a workload are not ready, if that is due. Return the seconds until it is due again."""
        loop = asyncio.get_running_loop()
        resource = next((kind.resource for kind in self._kinds() if kind.gvk == first.gvk), None)
        is_early = first.health.state is HealthState.UNKNOWN or first.health == health.NOT_OBSERVED
        if resource is None or is_early or first.gvk.kind == "PersistentVolumeClaim":
            return 0.0
        known.begin(first, loop.time())
        if loop.time() >= known.next_look:
            reason = await self._pods.read(resource, first.key)
            known.looked(reason, loop.time())
        return max(known.next_look - loop.time(), 0.01)

    async def _write(self, key: ObjectKey, known: Known, now: Readiness) -> float:
        """Write a state. Return the seconds until the object is compared again; 0: its next change decides."""
        at = asyncio.get_running_loop().time()
        obj, wait = self._scope.informer.get(key), known.pause(now, at)
        if obj is None or wait:
            return wait
        change = report.observed(obj, StatusReport((), now.conditions, follows=FOLLOWED))
        known.waits = not change.continues(find(conditions_of(obj), READY))
        if known.waits:
            return 0.0
        with self._scope.leadership.hold() as guard:
            if guard is None:
                return 0.0
            try:
                resource = await self._discovery.find(self._gvk)
                await self._status.write(resource, obj, change, guard)
            except (ApiError, ApiUnavailableError, LeaseLostError) as error:
                self._log.info("Cannot write the state of dependents", error=str(error), **key._asdict())
                return _RETRY
        known.wrote(now, at)
        return 0.0
