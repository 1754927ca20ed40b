"""One object, one request: what is to be done, done, and its status written on every way out.

The way through: take the object from the informer, ask `finalizers` what it wants, announce the run, run the job, write
what came of it, take the finalizer off, and say when to come back. Knows nothing of queues or watches.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from runner import finalizers, log, status
from runner.access import Access, Grant
from runner.engine.artifacts import new_ident
from runner.engine.job import Engine, Job, Outcome, RunResult
from runner.errors import (
    ApiError,
    ApiUnavailableError,
    ConflictError,
    InvalidError,
    KindNotFoundError,
    NotFoundError,
    TerminalError,
)
from runner.finalizers import Plan
from runner.jobs import JobFactory
from runner.kube.client import Client, PatchType
from runner.kube.discovery import ApiResource, Discovery
from runner.kube.informer import Informer
from runner.metrics import Metrics
from runner.objects import Object, key_of, uid_of
from runner.runlog import RunLog
from runner.status_writer import StatusWriter
from runner.watches import Watch
from runner.wishes import Wishes, wishes_of
from runner.workqueue import Reason, Request

RUN_BACKOFF = 1.0
"""Seconds before the first retry of a failed run."""
CONFLICT_BACKOFF = 0.005
"""Seconds before the first retry of a write that another writer was quicker than."""
JITTER = 0.1
"""Share of a reconcile period by which periodic runs are spread, so that they do not come all at once."""

_QUIET = {Reason.RESYNC, Reason.DEPENDENT}


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing failed. `again`: seconds until the periodic run; None: only when something happens."""

    again: float | None


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """The role asked to be run again in `delay` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again with exponential backoff from `base` seconds."""

    base: float


@dataclass(frozen=True, slots=True)
class Terminal:
    """Do not try again until the object changes."""


Verdict: TypeAlias = Done | RequeueAfter | Retry | Terminal


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
        jobs: JobFactory,
        run_log: RunLog,
        metrics: Metrics,
        period: float,
    ) -> None:
        self._watch = watch
        self._client = client
        self._discovery = discovery
        self._informer = informer
        self._engine = engine
        self._access = access
        self._jobs = jobs
        self._run_log = run_log
        self._metrics = metrics
        self._period = period if watch.reconcile_period is None else watch.reconcile_period
        self._status = StatusWriter(client, watch.gvk, enabled=watch.manage_status)
        self._log = log.get(__name__, gvk=str(watch.gvk))

    async def reconcile(self, request: Request) -> Verdict:
        """Bring one object to what its role makes of it."""
        obj = self._informer.get(request.key)
        if obj is None:
            await self._jobs.forget(request.key)
            return Done(None)
        plan = finalizers.plan(self._watch, obj)
        if plan is None:
            return Done(None)
        try:
            resource = await self._discovery.find(self._watch.gvk)
            return await self._run_plan(resource, obj, plan, request)
        except (ConflictError, InvalidError) as error:
            self._log.info("Another writer was quicker", error=str(error), **request.key._asdict())
            return Retry(CONFLICT_BACKOFF)
        except (NotFoundError, KindNotFoundError):
            # The object, or its kind, went away meanwhile; its watch says the rest.
            return Done(None)
        except (ApiError, ApiUnavailableError) as error:
            self._log.warning("Reconcile is repeated", error=str(error), **request.key._asdict())
            return Retry(RUN_BACKOFF)

    async def _run_plan(self, resource: ApiResource, obj: Object, plan: Plan, request: Request) -> Verdict:
        ident = new_ident(datetime.now(UTC))
        try:
            wishes = wishes_of(obj)
            with self._access.open(self._watch, resource, obj, ident, finalizing=plan.finalizing) as grant:
                job = self._jobs.make(obj, plan, wishes, ident, grant.kubeconfig)
                obj = await self._prepare(resource, obj, plan, request)
                result = await self._run(job, request, grant)
        except TerminalError as error:
            await self._status.write(resource, obj, status.observed(obj, status.failed("Unusable", str(error))))
            self._log.error("Object is not run until it changes", error=str(error), **request.key._asdict())
            return Terminal()
        wanted = status.ended(result, grant.stats.forbidden())
        await self._status.write(resource, self._latest(obj), status.observed(obj, wanted))
        if plan.finalizing and result.outcome is Outcome.SUCCEEDED:
            await self._release(resource, self._latest(obj))
            return Done(None)
        return self._verdict(result, wishes)

    async def _prepare(self, resource: ApiResource, obj: Object, plan: Plan, request: Request) -> Object:
        """Put our finalizer on the object and announce the run, where either is due."""
        if plan.add_first is not None:
            obj = await self._client.patch(resource, request.key, plan.add_first, content_type=PatchType.JSON)
        if request.reason not in _QUIET:
            await self._status.write(resource, obj, status.observed(obj, status.begun(obj)))
        return obj

    async def _run(self, job: Job, request: Request, grant: Grant) -> RunResult:
        record = self._run_log.start(job, request)
        result = await self._engine.run(job, record.event)
        record.end(result, grant.stats)
        self._metrics.run_ended(job.gvk, result.duration, succeeded=result.outcome is Outcome.SUCCEEDED)
        return result

    def _latest(self, obj: Object) -> Object:
        """The object as last seen: the role may have written to it. A patch tests what it was made from anyway."""
        seen = self._informer.get(key_of(obj))
        return seen if seen is not None and uid_of(seen) == uid_of(obj) else obj

    async def _release(self, resource: ApiResource, obj: Object) -> None:
        """Take our finalizer off, whoever else writes finalizers at the same time."""
        name = self._watch.finalizer.name if self._watch.finalizer else ""
        uid, delay = uid_of(obj), CONFLICT_BACKOFF
        while (patch := finalizers.removal(name, obj)) is not None:
            try:
                await self._client.patch(resource, key_of(obj), patch, content_type=PatchType.JSON)
            except (ConflictError, InvalidError):
                await asyncio.sleep(delay)
                delay = min(delay * 2, RUN_BACKOFF)
                obj = await self._client.get(resource, key_of(obj))
                if uid_of(obj) != uid:
                    return
            else:
                return

    def _verdict(self, result: RunResult, wishes: Wishes) -> Verdict:
        if result.outcome is not Outcome.SUCCEEDED:
            return Retry(RUN_BACKOFF)
        if result.requeue_after is not None:
            return RequeueAfter(result.requeue_after)
        period = self._period if wishes.reconcile_period is None else wishes.reconcile_period
        if period <= 0:
            return Done(None)
        return Done(period * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311 - spreads load, guards nothing
