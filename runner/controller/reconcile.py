"""One object, one request: what is to be done, done, and its status written on every way out.

The way through: take the object from the informer, ask `finalizers` what it wants, announce the run, run the job, write
what came of it, take the finalizer off, and say when to come back. Knows nothing of queues or watches.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from runner import log
from runner.controller import finalizers, resync
from runner.controller import result as verdicts
from runner.controller.annotations import Wishes, wishes_of
from runner.controller.finalizers import Plan
from runner.controller.jobs import JobFactory
from runner.controller.result import Done, RequeueAfter, Retry, Terminal, Terms, Verdict
from runner.controller.run_access import Access, Grant
from runner.controller.run_events import RunStory, Telling
from runner.controller.run_log import Recorder
from runner.controller.skipping import NOTHING_NEW, Basis, Skipping
from runner.dependents.loop_guard import Contention
from runner.engine import output
from runner.engine.artifacts import new_ident
from runner.engine.job import Engine, Event, Job, Outcome, RunResult, canceled
from runner.errors import (
    PASSING,
    ApiError,
    ApiUnavailableError,
    ConflictError,
    InvalidError,
    KindNotFoundError,
    LeaseLostError,
    NotFoundError,
    TerminalError,
)
from runner.events.bodies import Reference
from runner.events.recorder import Events
from runner.kube.client import Client, PatchType
from runner.kube.discovery import ApiResource, Discovery
from runner.kube.informer import Informer
from runner.monitoring.metrics import Metrics
from runner.objects import Object, ObjectKey, deleted_for, is_paused, key_of, uid_of
from runner.proxy.identity import RunStats
from runner.replicas.lease_guard import Hold, Holding
from runner.status import report
from runner.status.writer import StatusWriter
from runner.unchanged.last_run import Footprint
from runner.watches.policy import Backoff
from runner.watches.watch import Watch
from runner.workqueue.queue import Reason, Request

TROUBLE_BACKOFF = Backoff(1.0)
"""Before the next attempt when it was not the run that failed."""
CONFLICT_BACKOFF = Backoff(0.005, cap=1.0)
"""Before the next attempt of a write that another writer was quicker than."""

_QUIET = {Reason.RESYNC, Reason.DEPENDENT}


@dataclass(slots=True)
class _Running:
    """A run that goes on."""

    task: asyncio.Task[RunResult]
    finalizing: bool
    stats: RunStats
    deleted: bool = False
    """Whether the object's deletion was asked for meanwhile."""
    why_ended: str = ""

    def end(self, why: str) -> None:
        if not self.why_ended:
            self.why_ended = why
            self.task.cancel()


@dataclass(frozen=True, slots=True)
class _Considered:
    """A request, after a look at whether it needs a run."""

    request: Request
    verdict: Verdict | None = None
    """What comes instead of a run."""
    basis: Basis | None = None
    """What the run is made of, where that is kept."""


class Reconciler:
    """Reconciles the objects of one watch."""

    def __init__(  # noqa: PLR0913 - each is a part of the way through, given by the wiring
        self,
        watch: Watch,
        *,
        client: Client,
        discovery: Discovery,
        informer: Informer,
        engine: Engine,
        access: Access,
        holding: Holding,
        jobs: JobFactory,
        recorder: Recorder,
        metrics: Metrics,
        events: Events,
        skipping: Skipping | None,
        period: float,
        health_conditions: bool,
    ) -> None:
        self._watch = watch
        self._client = client
        self._discovery = discovery
        self._informer = informer
        self._engine = engine
        self._access = access
        self.holding = holding
        """Says which objects are ours."""
        self._jobs = jobs
        self._recorder = recorder
        self._metrics = metrics
        self._events = events
        self._skipping = skipping
        self._period = period if watch.reconcile_period is None else watch.reconcile_period
        health = health_conditions if watch.health_conditions is None else watch.health_conditions
        self._status = StatusWriter(client, watch.gvk, enabled=watch.manage_status, health=health)
        self._running: dict[ObjectKey, _Running] = {}
        self._released: dict[ObjectKey, str] = {}
        """Uids of objects whose finalizer has done its work: they may be seen for longer than they are there."""
        self._log = log.get(__name__, gvk=str(watch.gvk))

    async def reconcile(self, request: Request) -> Verdict:
        """Bring one object to what its role makes of it."""
        obj = self._informer.get(request.key)
        if obj is None:
            await self._jobs.forget(request.key)
            self.forget(request.key)
            return Done(None)
        with self.holding.hold(self._watch.gvk, request.key) as hold:
            if hold is None:
                return Done(None)
            try:
                async with hold.guard():
                    return await self._reconcile(obj, request, hold)
            except LeaseLostError as error:
                self._log.error(
                    "Ended, since another replica may take the object", why=str(error), **request.key._asdict()
                )
                return Done(None)

    def forget(self, key: ObjectKey) -> None:
        """Keep nothing of what was read for an object: it is gone, or another replica's."""
        self._released.pop(key, None)
        self._access.forget(self._watch, key)

    async def _reconcile(self, obj: Object, request: Request, hold: Hold) -> Verdict:
        plan = finalizers.plan(self._watch, obj)
        if plan is None or (plan.finalizing and self._released.get(request.key) == uid_of(obj)):
            return Done(None)
        try:
            resource = await self._discovery.find(self._watch.gvk)
            return await self._run_plan(resource, obj, plan, request, hold)
        except (ConflictError, InvalidError) as error:
            self._log.info("Another writer was quicker", error=str(error), **request.key._asdict())
            return Retry(CONFLICT_BACKOFF, ran=False)
        except (NotFoundError, KindNotFoundError):
            # The object, or its kind, went away meanwhile; its watch says the rest.
            return Done(None)
        except (ApiError, ApiUnavailableError) as error:
            self._log.warning("Reconcile is repeated", error=str(error), **request.key._asdict())
            return Retry(TROUBLE_BACKOFF, ran=False)

    async def sweep(self) -> None:
        """Once all objects are known, remove what is kept of those that are gone."""
        await self._informer.synced.wait()
        try:
            await self._jobs.sweep(self._informer.namespaces, lambda key: self._informer.get(key) is not None)
        except OSError as error:
            self._log.warning("What is kept of objects that are gone could not be removed", error=str(error))

    def supersede(self, key: ObjectKey, reason: Reason) -> None:
        """End the object's run, if one goes on that what happened to the object makes pointless."""
        running = self._running.get(key)
        if running is None or running.finalizing:
            return
        running.deleted = running.deleted or reason is Reason.DELETED
        terminating = key.namespace in running.stats.terminating
        sentence = verdicts.superseded(self._watch.policy, reason, terminating=terminating)
        if sentence:
            running.end(sentence)

    def _met_end(self, key: ObjectKey) -> None:
        """A run could not create something, since a namespace is being deleted; a finalizer may wait for it."""
        running = self._running.get(key)
        if running is not None and running.deleted:
            self.supersede(key, Reason.DELETED)

    async def note(self, key: ObjectKey, contention: Contention | None) -> None:
        """Show that an object is slowed down because of what it owns or names, or (None) no longer."""
        obj = self._informer.get(key)
        with self.holding.hold(self._watch.gvk, key) as hold:
            if obj is None or hold is None:
                return
            try:
                resource = await self._discovery.find(self._watch.gvk)
                wanted = (
                    report.contended(contention.reason, contention.sentence())
                    if contention is not None
                    else report.quiet(obj)
                )
                await self._status.write(resource, obj, report.observed(obj, wanted), hold)
            except (ApiError, ApiUnavailableError, LeaseLostError) as error:
                self._log.info("A condition is not written", error=str(error), **key._asdict())
        if contention is not None:
            dependent = Reference(contention.kind, contention.key, contention.uid)
            self._telling(obj).slowed_down(contention.reason, dependent, contention.sentence())

    async def _run_plan(self, resource: ApiResource, obj: Object, plan: Plan, request: Request, hold: Hold) -> Verdict:
        telling = self._telling(obj)
        if is_paused(obj):
            telling.paused()
            await self._status.write(resource, obj, report.observed(obj, report.paused()), hold)
            return Done(None)
        if request.reason is Reason.PRESENT and (quiet := report.quiet(obj)).conditions:
            # Only an earlier operator could say that the circle has ended; where it has not, it is told anew.
            await self._status.write(resource, obj, report.observed(obj, quiet), hold)
        ident = new_ident(datetime.now(UTC))
        try:
            wishes = wishes_of(obj)
            if (considered := await self._consider(obj, plan, wishes, request)).verdict is not None:
                return considered.verdict
            request = considered.request
            with self._access.open(self._watch, resource, obj, ident, hold, finalizing=plan.finalizing) as grant:
                job = self._jobs.make(obj, plan, wishes, request, ident, grant)
                obj = await self._prepare(resource, obj, plan, request, hold)
                story = RunStory(self._events, telling.about, job, finalizing=plan.finalizing)
                result = await self._run(job, request, grant, story, finalizing=plan.finalizing)
        except TerminalError as error:
            await self._status.write(resource, obj, report.observed(obj, report.unusable(str(error))), hold)
            telling.unusable(str(error))
            self._log.error("Object is not run until it changes", error=str(error), **request.key._asdict())
            return Terminal()
        terminating = request.key.namespace in grant.stats.terminating
        terms = replace(self._terms(obj, plan, wishes, request), terminating=terminating)
        decision = verdicts.decide(result, terms, failed_runs=request.failed_runs)
        advice = [*grant.stats.forbidden(), *decision.advice]
        failed = report.Failed(advice, output.pointer(job), final=isinstance(decision.verdict, Terminal))
        wanted = report.ended(result, failed)
        await self._status.write(resource, self._latest(obj), report.observed(obj, wanted), hold)
        hold.check()
        await self._remember(resource, considered.basis, grant.footprint, result, self._latest(obj))
        for sentence in decision.advice:
            telling.given_up(sentence)
            self._log.warning("No further run", why=sentence, job=ident, **request.key._asdict())
        if decision.release:
            await self._release(resource, self._latest(obj), hold)
        return decision.verdict

    async def _consider(self, obj: Object, plan: Plan, wishes: Wishes, request: Request) -> _Considered:
        """Leave a run out that nothing asks for; else name in the request what has, and note what it is made of."""
        skipping = self._skipping
        if skipping is None or plan.finalizing:
            return _Considered(request)
        if not skipping.concerns(request.reason) or plan.add_first is not None:
            return _Considered(request, basis=await skipping.basis(obj))
        now = datetime.now(UTC).timestamp()
        checked = await skipping.check(obj, now)
        if checked.why:
            request = replace(request, details=(*request.details, checked.why))
            return _Considered(request, basis=await skipping.basis(obj))
        self._metrics.skipped.labels(str(self._watch.gvk), request.reason.value).inc()
        self._log.info("Run skipped", reason=request.reason.value, why=NOTHING_NEW, **request.key._asdict())
        if checked.due is not None:
            return _Considered(request, RequeueAfter(checked.due - now))
        return _Considered(request, Done(self._terms(obj, plan, wishes, request).again))

    async def _remember(
        self, resource: ApiResource, basis: Basis | None, footprint: Footprint | None, result: RunResult, obj: Object
    ) -> None:
        """Put a run on record that may not have to be repeated; take the record off where it has to be."""
        if self._skipping is None or basis is None or footprint is None:
            return
        if result.outcome is Outcome.SUCCEEDED:
            asked = result.requeue_after
            due = datetime.now(UTC).timestamp() + asked if asked is not None else None
            await self._skipping.succeeded(resource, obj, basis, footprint, due)
        elif result.outcome is not Outcome.CANCELED:
            await self._skipping.failed(resource, obj)

    async def _prepare(self, resource: ApiResource, obj: Object, plan: Plan, request: Request, hold: Hold) -> Object:
        """Put our finalizer on the object and announce the run, where either is due."""
        if plan.add_first is not None:
            hold.check()
            obj = await self._client.patch(resource, request.key, plan.add_first, content_type=PatchType.JSON)
        if request.reason not in _QUIET:
            await self._status.write(resource, obj, report.observed(obj, report.begun(obj)), hold)
        return obj

    def _telling(self, obj: Object) -> Telling:
        return Telling(self._events, Reference.to(self._watch.gvk, obj))

    async def _run(self, job: Job, request: Request, grant: Grant, story: RunStory, *, finalizing: bool) -> RunResult:
        record = self._recorder.start(job, request)
        story.started(request)

        def take_in(event: Event) -> None:
            record.event(event)
            story.event(event)

        running = _Running(asyncio.create_task(self._engine.run(job, take_in)), finalizing, grant.stats)
        self._running[request.key] = running
        grant.stats.told_of_end = partial(self._met_end, request.key)
        began = asyncio.get_running_loop().time()
        try:
            result = await running.task
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if not running.why_ended or (this is not None and this.cancelling()):
                raise
            result = canceled(running.why_ended, asyncio.get_running_loop().time() - began)
        finally:
            del self._running[request.key]
        record.end(result, grant.stats)
        story.ended(result)
        self._metrics.run_ended(job.gvk, job.key.namespace, result, grant.stats.calls)
        return result

    def _latest(self, obj: Object) -> Object:
        """The object as last seen: the role may have written to it. A patch tests what it was made from anyway."""
        seen = self._informer.get(key_of(obj))
        return seen if seen is not None and uid_of(seen) == uid_of(obj) else obj

    async def _release(self, resource: ApiResource, obj: Object, hold: Hold) -> None:
        """Take our finalizer off, whoever else writes finalizers at the same time.

        Waits while the API server is away: a finalizer that has done its work is not run again.
        """
        name = self._watch.finalizer.name if self._watch.finalizer else ""
        key, uid = key_of(obj), uid_of(obj)
        seen: Object | None = obj
        for attempts in itertools.count():
            hold.check()
            try:
                seen = seen or await self._client.get(resource, key)
                patch = finalizers.removal(name, seen)
                if patch is not None and uid_of(seen) == uid:
                    await self._client.patch(resource, key, patch, content_type=PatchType.JSON)
            except (ConflictError, InvalidError):
                seen = None  # another writer was quicker
            except PASSING as error:
                self._log.warning("Removal of the finalizer is repeated", error=str(error), **key._asdict())
            else:
                self._released[key] = uid
                return
            await asyncio.sleep(CONFLICT_BACKOFF.after(attempts))

    def _terms(self, obj: Object, plan: Plan, wishes: Wishes, request: Request) -> Terms:
        finalizer, now = self._watch.finalizer, datetime.now(UTC)
        period = self._period if wishes.reconcile_period is None else wishes.reconcile_period
        settled = request.reason is not Reason.PRESENT
        return Terms(
            retry=self._watch.policy.retry,
            again=resync.wait(period, uid_of(obj), now.timestamp(), settled=settled) if period > 0 else None,
            finalizing=plan.finalizing,
            limit=finalizer.limit if finalizer else None,
            deleted_for=deleted_for(obj, now),
        )
