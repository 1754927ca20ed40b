"""Reconcile loop of one watch: one attempt at one object for each request.

Order: read the object from the cache, plan the run, report `Running`, run Ansible, write the status, remove the
finalizer. Every way out returns a `Result`, which the controller turns into a requeue, a retry or nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from runner import log
from runner.controller import decisions
from runner.controller.annotations import AnnotationOverrides
from runner.controller.attempt import Attempt, WatchScope
from runner.controller.decisions import Decision, Done, RequeueAfter, Result, Retry, RetryTerms, Terminal
from runner.controller.drift import DriftChecks
from runner.controller.finalizers import CONFLICT_BACKOFF, FinalizerRemoval
from runner.controller.owner_check import OwnerCheck
from runner.controller.planning import ApprovedRun, PlanReconciler, PlanTerms
from runner.controller.pruning import CONFIRM_AFTER, Pruner
from runner.controller.run_access import RunAccess
from runner.controller.run_events import ObjectEvents
from runner.controller.runs import Runs
from runner.controller.skipping import NOTHING_NEW, RunInputs, RunSkipper
from runner.engine import output
from runner.engine.artifacts import new_ident
from runner.engine.job import Job, Outcome, RunResult
from runner.errors import (
    ApiError,
    ApiUnavailableError,
    ConflictError,
    InvalidError,
    KindNotFoundError,
    LeaseLostError,
    NotFoundError,
    RunDetachedError,
    TerminalError,
)
from runner.events.recorder import EventRecorder
from runner.kube import decode
from runner.kube.client import Client, PatchType
from runner.kube.discovery import Discovery
from runner.objects import Object, ObjectRef, deleted_for, is_paused, uid_of
from runner.ownership import OwnerState
from runner.references.state import references_of
from runner.replicas.lease_guard import LeaseGuard
from runner.status import report
from runner.status.conditions import Condition
from runner.status.report import StatusReport
from runner.status.writer import StatusWriter
from runner.watches.policy import Backoff
from runner.workqueue.request import ReconcileRequest, RunReason

REQUEST_BACKOFF = Backoff(1.0)
"""Before the next attempt if a request to the API server failed, and not the run."""

_TOO_DEEP = f"the object nests deeper than {decode.MAX_DEPTH} levels, so a run cannot receive it; flatten it"
_UNANNOUNCED = {RunReason.RESYNC, RunReason.DEPENDENT, RunReason.PRUNE}


@dataclass(frozen=True, slots=True)
class Services:
    """Parts of the operator that all reconcilers share."""

    client: Client
    discovery: Discovery
    access: RunAccess
    events: EventRecorder


@dataclass(frozen=True, slots=True)
class Features:
    """Optional parts of a reconciler; None if the watch does not use them."""

    skipping: RunSkipper | None
    pruner: Pruner | None
    drift: DriftChecks | None


class Reconciler:
    """Reconciles the objects of one watch."""

    def __init__(
        self,
        scope: WatchScope,
        services: Services,
        runs: Runs,
        status: StatusWriter,
        planning: PlanReconciler,
        features: Features,
    ) -> None:
        watch = scope.watch
        self._watch = watch
        self._informer = scope.informer
        self._scope = scope
        self._services = services
        self._runs = runs
        self._status = status
        self._skipping = features.skipping
        self._planning = planning
        self._pruner = features.pruner
        self._drift = features.drift
        self._owners = OwnerCheck(watch.gvk, services.client, scope.informer, scope.registry)
        self._finalizers = FinalizerRemoval(services.client, watch.finalizer.name if watch.finalizer else "")
        scope.registry.subscribe(self._finalizers.forget)
        self._log = log.get(__name__, gvk=str(watch.gvk))

    async def reconcile(self, request: ReconcileRequest) -> Result:
        """Make one attempt at the object, unless it is gone or another replica's."""
        obj = self._informer.get(request.key)
        if obj is None:
            if self._pruner is not None:
                await self._pruner.gone(request.key)
            self._scope.registry.forget(request.key)
            await self._runs.remove_folder(request.key)
            return Done(None)
        with self._scope.ownership.hold(self._watch.gvk, request.key) as guard:
            if guard is None:
                return Done(None)
            try:
                async with guard.guard():
                    return await self._reconcile(obj, request, guard)
            except LeaseLostError as error:
                self._log.error(
                    "Lost the lease of the object; canceled the attempt", why=str(error), **request.key._asdict()
                )
                return Done(None)
            except RunDetachedError as error:
                self._log.info("The run continues without this operator", why=str(error), **request.key._asdict())
                return Done(None)

    async def sweep(self) -> None:
        """Remove records about objects that no longer exist."""
        if self._pruner is not None:
            await self._pruner.sweep()

    async def _reconcile(self, obj: Object, request: ReconcileRequest, guard: LeaseGuard) -> Result:
        plan = decisions.plan(self._watch, obj)
        if plan is None or (plan.finalizing and self._finalizers.is_done(obj)):
            return Done(None)
        try:
            resource = await self._services.discovery.find(self._watch.gvk)
            return await self._attempt(Attempt(request, obj, plan, resource, guard, new_ident(datetime.now(UTC))))
        except (ConflictError, InvalidError) as error:
            self._log.info("Conflict with another writer; retrying", error=str(error), **request.key._asdict())
            return Retry(CONFLICT_BACKOFF, ran=False)
        except (NotFoundError, KindNotFoundError):
            # The object or its kind is gone; the watch delivers the event.
            return Done(None)
        except (ApiError, ApiUnavailableError) as error:
            self._log.warning("Request to the API server failed; retrying", error=str(error), **request.key._asdict())
            return Retry(REQUEST_BACKOFF, ran=False)

    async def _attempt(self, attempt: Attempt) -> Result:
        """Run the attempt's plan, unless the object is paused, invalid or unchanged; then report the run."""
        if is_paused(attempt.obj):
            return await self._pause(attempt)
        await self._end_contention(attempt)
        try:
            overrides = self._overrides(attempt)
            applies = overrides.mode == "apply"
            attempt = await self._runs.resume(
                attempt, applies=applies and attempt.request.reason is not RunReason.DRIFT
            )
            if not applies:
                return await self._plan(attempt, overrides)
            if attempt.resumed is not None:
                return await self._run(attempt, overrides, None)
            return await self._begin(attempt, overrides)
        except TerminalError as error:
            return await self._refuse(attempt, str(error))

    async def _begin(self, attempt: Attempt, overrides: AnnotationOverrides) -> Result:
        """Run the object, or check it for drift, unless nothing changed or it was deleted."""
        basis = None
        if self._skipping is not None:
            skipping = await self._skipping.decide(attempt)
            if skipping.skip and not (self._pruner and await self._pruner.is_pending(attempt)):
                return self._skip(attempt, overrides, skipping.due)
            attempt, basis = attempt.because(skipping.why) if skipping.why else attempt, skipping.basis
        state = await self._owners.before_run(attempt)
        if state is not OwnerState.EXISTS:
            return self._ignore(attempt, state)
        checks = attempt.request.reason is RunReason.DRIFT
        return await (self._check_drift if checks else self._run)(attempt, overrides, basis)

    async def _check_drift(self, attempt: Attempt, overrides: AnnotationOverrides, basis: RunInputs | None) -> Result:
        """Check the object for drift, and run it if the watch repairs drift."""
        drifted: tuple[str, ...] = ()
        if self._drift is not None:
            drifted = await self._drift.check(attempt, *self._callbacks(attempt))
        if not drifted:
            return Done(self._terms(attempt, overrides).resync_after)
        return await self._run(replace(attempt, request=replace(attempt.request, details=drifted)), overrides, basis)

    async def _run(
        self,
        attempt: Attempt,
        overrides: AnnotationOverrides,
        basis: RunInputs | None,
        approved: ApprovedRun | None = None,
    ) -> Result:
        """Execute the run, report it, and decide what follows."""
        objects = await self._pruner.begin(attempt) if self._pruner is not None else None
        access = self._services.access.open(
            self._watch,
            attempt,
            *self._callbacks(attempt),
            approval=approved.plan if approved else None,
            objects=objects,
        )
        async with access as grant:
            job = await self._runs.job(attempt, overrides, grant)
            attempt = await self._announce(attempt)
            run = await self._runs.run(job, attempt, grant, objects.coverage if objects is not None else None)
        pruned = None
        if self._pruner is not None:
            pruned = await self._pruner.end(attempt, objects, run, may_delete=approved is None)
        if approved is not None and approved.plan.refused:
            await self._runs.recorded(job)
            return await self._planning.refused(attempt, approved, self._status)
        terms = self._terms(attempt, overrides, terminating=attempt.key.namespace in grant.stats.terminating)
        decision = decisions.after_run(run, terms, failed_runs=attempt.request.failed_runs)
        conditions = self._ignored_references(attempt) + report.ignored(attempt.obj, job.ignored_variables)
        conditions += report.limited(attempt.obj, overrides.limited)
        if pruned is not None:
            conditions += report.prunable(attempt.obj, pruned.report)
            if pruned.report.deleted:
                self._events(attempt).pruned(pruned.report.deleted)
        planned, plan = await self._planning.ended(attempt, approved, run)
        drift = report.drift_ended(attempt.obj) if run.outcome is Outcome.SUCCEEDED else StatusReport(())
        beside = StatusReport((*conditions, *planned, *drift.conditions), plan=plan, drift=drift.drift)
        await self._report(attempt, job, run, decision, grant.stats.forbidden(), beside)
        await self._runs.recorded(job)
        attempt.guard.check()
        if self._skipping is not None and basis is not None and grant.read_set is not None:
            await self._skipping.record(self._latest(attempt), basis, grant.read_set, run)
        self._advise(attempt, decision)
        if decision.release:
            await self._finalizers.remove(attempt.resource, self._latest(attempt).obj, attempt.guard)
        confirms = approved is None and pruned is not None and pruned.confirm and isinstance(decision.result, Done)
        return RequeueAfter(CONFIRM_AFTER, RunReason.PRUNE) if confirms else decision.result

    def _overrides(self, attempt: Attempt) -> AnnotationOverrides:
        if self._informer.is_cut(attempt.key):
            raise TerminalError(_TOO_DEEP)
        return self._runs.overrides(attempt.obj)

    async def _plan(self, attempt: Attempt, overrides: AnnotationOverrides) -> Result:
        state = await self._owners.before_run(attempt)
        if state is not OwnerState.EXISTS:
            return self._ignore(attempt, state)
        conditions = self._ignored_references(attempt) + report.limited(attempt.obj, overrides.limited)
        terms = PlanTerms(overrides, self._terms(attempt, overrides), *self._callbacks(attempt), conditions)
        decision = await self._planning.reconcile(attempt, terms, self._status)
        if isinstance(decision, ApprovedRun):
            return await self._run(decision.attempt, overrides, None, decision)
        self._advise(attempt, decision)
        return decision.result

    def _callbacks(self, attempt: Attempt) -> tuple[Callable[[], None], Callable[[], Awaitable[OwnerState]]]:
        """Return what the proxy calls during the attempt's run: see `RunAccess.open`."""
        owner = ObjectRef.of(self._watch.gvk, attempt.obj)
        terminates = partial(self._runs.namespace_terminates, attempt.key)
        return terminates, partial(self._owners.during_run, attempt.resource, owner)

    # Ways out without a run.

    async def _pause(self, attempt: Attempt) -> Result:
        self._events(attempt).paused()
        await self._write(attempt, report.paused())
        return Done(None)

    async def _refuse(self, attempt: Attempt, why: str) -> Result:
        """Report an object that cannot run as it is."""
        await self._write(attempt, report.unusable(why))
        self._events(attempt).unusable(why)
        self._log.error("Object cannot run; waiting for a change", error=why, **attempt.key._asdict())
        return Terminal()

    def _skip(self, attempt: Attempt, overrides: AnnotationOverrides, due: float | None) -> Result:
        """Skip the run of an object that is unchanged. `due`: when its role requested the next run."""
        reason = attempt.request.reason.value
        self._scope.metrics.skipped.labels(str(self._watch.gvk), reason).inc()
        self._log.info("Run skipped", reason=reason, why=NOTHING_NEW, **attempt.key._asdict())
        if due is not None:
            return RequeueAfter(due - datetime.now(UTC).timestamp())
        return Done(self._terms(attempt, overrides).resync_after)

    def _ignore(self, attempt: Attempt, state: OwnerState) -> Result:
        """Run nothing for an object that was deleted. The event that the watch delivers later starts what follows."""
        self._log.info(
            "Run skipped: the object was deleted, and the watch has not delivered the event yet",
            reason=attempt.request.reason.value,
            uid=uid_of(attempt.obj),
            state=state.value,
            **attempt.key._asdict(),
        )
        return Done(self._runs.period or None)

    # Before and after a run.

    async def _end_contention(self, attempt: Attempt) -> None:
        """Remove a `Contended` condition of an earlier process. If contention continues, it is reported again."""
        quiet = report.contention_ended(attempt.obj)
        if attempt.request.reason is RunReason.PRESENT and quiet.conditions:
            await self._write(attempt, quiet)

    async def _announce(self, attempt: Attempt) -> Attempt:
        """Add our finalizer and write the `Running` condition, as far as they are missing."""
        if attempt.plan.add_first is not None:
            attempt.guard.check()
            obj = await self._services.client.patch(
                attempt.resource, attempt.key, attempt.plan.add_first, content_type=PatchType.JSON
            )
            attempt = replace(attempt, obj=obj)
        if attempt.request.reason not in _UNANNOUNCED:
            await self._write(attempt, report.run_began(attempt.obj))
        return attempt

    async def _report(
        self,
        attempt: Attempt,
        job: Job,
        run: RunResult,
        decision: Decision,
        missing: Sequence[str],
        beside: StatusReport,
    ) -> None:
        """Write the run's conditions, and `beside`. `missing`: sentences about rights that the run lacked."""
        final = isinstance(decision.result, Terminal)
        failed = report.FailureDetails(missing, decision.advice, output.pointer(job), final=final)
        ended = replace(
            report.run_ended(run, failed).with_conditions(beside.conditions), plan=beside.plan, drift=beside.drift
        )
        ended = report.observed(attempt.obj, ended)
        await self._status.write(attempt.resource, self._latest(attempt).obj, ended, attempt.guard)

    def _ignored_references(self, attempt: Attempt) -> tuple[Condition, ...]:
        found = references_of(self._watch.references, attempt.obj)
        return report.ignored_references(attempt.obj, [*map(str, found.foreign)], [*map(str, found.excess)])

    def _advise(self, attempt: Attempt, decision: Decision) -> None:
        for sentence in decision.advice:
            self._events(attempt).given_up(sentence)
            self._log.warning("No further run", why=sentence, job=attempt.ident, **attempt.key._asdict())

    async def _write(self, attempt: Attempt, change: StatusReport) -> None:
        await self._status.write(attempt.resource, attempt.obj, report.observed(attempt.obj, change), attempt.guard)

    def _events(self, attempt: Attempt) -> ObjectEvents:
        return ObjectEvents(self._services.events, ObjectRef.of(self._watch.gvk, attempt.obj))

    def _latest(self, attempt: Attempt) -> Attempt:
        """Return the attempt with the object as the cache has it: the role may have changed it."""
        cached = self._informer.get(attempt.key)
        return replace(attempt, obj=cached) if cached is not None and uid_of(cached) == uid_of(attempt.obj) else attempt

    def _terms(self, attempt: Attempt, overrides: AnnotationOverrides, *, terminating: bool = False) -> RetryTerms:
        finalizer, now = self._watch.finalizer, datetime.now(UTC)
        period = self._runs.period if overrides.reconcile_period is None else overrides.reconcile_period
        settled = attempt.request.reason not in {RunReason.PRESENT, RunReason.DRIFT}
        delay = (
            decisions.resync_delay(period, uid_of(attempt.obj), now.timestamp(), settled=settled)
            if period > 0
            else None
        )
        return RetryTerms(
            retry=self._watch.policy.retry,
            resync_after=delay,
            finalizing=attempt.plan.finalizing,
            limit=finalizer.limit if finalizer else None,
            deleted_for=deleted_for(attempt.obj, now),
            terminating=terminating,
            references=bool(self._watch.references),
        )
