"""Plan runs: the operator's own runs, in check mode, behind a proxy that plans each write.

Owns: everything that a plan run has instead of the operator's: no watches, status, Events, Leases and kept run folders.
Jobs, engine, proxy and masking are those of a real run. The cluster receives reads and dry runs only.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from runner.agent import proxies
from runner.app.features import CALLBACKS, OWN_STATUS
from runner.app.proxy import open_proxy
from runner.base import log
from runner.base.config import paths
from runner.base.config.settings import Settings
from runner.base.credentials import auth
from runner.base.events.bodies import ApiEvent
from runner.core.engine.artifacts import new_ident
from runner.core.engine.run_engine import RunEngine
from runner.core.engine.run_root import RunRoot
from runner.core.engine.starter import ColdStarter
from runner.core.kube import answers, service_accounts
from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import ApiResource, Discovery
from runner.core.kube.informer import Informer
from runner.core.queue import reasons
from runner.core.queue.reasons import ReconcileRequest
from runner.core.reconcile import decisions
from runner.core.reconcile.attempt import Attempt, WatchScope, overrides_of
from runner.core.reconcile.metrics import Metrics
from runner.core.reconcile.run_access import RunAccess
from runner.core.reconcile.runs import JobFactory, Runs, bounds_of
from runner.core.watches.watch import Watch
from runner.engines.warm.engine import WarmChoice, WarmEngine
from runner.engines.warm.plugin import ENGINE
from runner.features.hosts.run_hosts import RunHosts
from runner.features.plan.changes import Plan, ResourcePlan, State
from runner.features.plan.runs import PlanRuns, plan_environment
from runner.features.plan.tasks import UnplannedTask
from runner.features.plan.trial.overlay import Overlay
from runner.features.rollout.fields import ROLLOUT_POLICY
from runner.features.rollout.member import Member
from runner.features.rollout.state import State as RolloutState
from runner.features.rollout.steps import Fleet
from runner.sdk.preview import deletion
from runner.sdk.preview.progress import Progress
from runner.sdk.preview.selection import ResourceSelection, Selector, Target
from runner.values.errors import ApiError, ApiUnavailableError, OperatorError, UnauthorizedError
from runner.values.lease_guard import Leadership, LeaseGuard
from runner.values.objects import GVK, PAUSED, ObjectRef, OwnerState, is_deleting, is_paused, key_of

_FLEET = 3
"""Number of resources from which the fork server loads the modules of the runs first."""


@dataclass(frozen=True, slots=True)
class PlanRuntime:
    """Connections and processes that all plan runs share."""

    client: Client
    choice: WarmChoice
    warm: WarmEngine
    cold: RunEngine
    access: RunAccess
    environment: Mapping[str, str]

    @classmethod
    @asynccontextmanager
    async def open(cls, client: Client, settings: Settings) -> AsyncIterator[Self]:
        """Start the engine and the proxy; end them when the block is left."""
        async with AsyncExitStack() as stack:
            choice, root, starter = (
                WarmChoice(settings.engine),
                RunRoot(settings.runner_dir, callbacks=CALLBACKS),
                ColdStarter(),
            )
            stack.push_async_callback(root.close)
            warm = WarmEngine(root, starter, settings.warm_without, settings.run_memory_limit)
            stack.push_async_callback(warm.close, 0.0)
            cold = RunEngine(root, starter, settings.run_memory_limit)
            stack.push_async_callback(cold.close, 0.0)
            _, access = await open_proxy(stack, client, 0, inject=settings.inject_owner_ref)
            search_path = settings.search_path(os.environ, Path.cwd())
            environment = {name: value for name, value in paths.AS_DEPLOYED.items() if name not in os.environ}
            environment |= paths.ansible_environment(search_path, os.environ, Path.cwd())
            environment |= proxies.variables(os.environ)
            yield cls(client, choice, warm, cold, access, environment)


async def plan(settings: Settings, watches: Sequence[Watch], selection: ResourceSelection, progress: Progress) -> Plan:
    """Plan the requested resources.

    Raises:
        OperatorError: the cluster cannot be reached, or there is no such resource.
    """
    credentials = await auth.load(settings.kubeconfig, settings.context, auth.HostEnvironment.of_process())
    with tempfile.TemporaryDirectory(prefix="ansible-operator-plan-", ignore_cleanup_errors=True) as folder:
        async with Client(credentials) as client:
            await _connect(client)
            watches = await service_accounts.resolve(client, watches)
            targets = await Selector(client, watches, settings.namespaces).find(selection)
            progress.count(0, len(targets))
            own = replace(settings, runner_dir=Path(folder))
            async with PlanRuntime.open(client, own) as runtime:
                return await Planner(own, runtime, progress).plan(targets, steps(targets, selection))


async def _connect(client: Client) -> None:
    """Check that the API server responds, so that its absence is one clear error."""
    place = f"{client.credentials.base_url} (credentials: {client.credentials.origin})"
    try:
        await client.request("GET", "/version")
    except UnauthorizedError as error:
        raise OperatorError(
            f"{place} rejects the credentials: {error}; renew them, or set --kubeconfig, --context or KUBECONFIG"
        ) from error
    except ApiError as error:
        raise OperatorError(f"{place} responds with an error: {error}") from error
    except ApiUnavailableError as error:
        raise OperatorError(f"cannot reach {place}: {error}; {answers.advice(error.__cause__)}") from error


class Planner:
    """Plans resources."""

    def __init__(self, settings: Settings, runtime: PlanRuntime, progress: Progress) -> None:
        """The run folders are below `settings.runner_dir`, which no other process may use."""
        self._settings = settings
        self._runtime = runtime
        self._progress = progress
        self._overlays: dict[ObjectRef, Overlay] = {}
        """What complete runs wrote and read."""
        self._runs: dict[GVK, PlanRuns] = {}

    async def plan(self, targets: Sequence[Target], step_of: Mapping[ObjectRef, int]) -> Plan:
        """Plan the targets, several at the same time, as many as the operator would run. `step_of`: see `steps`."""
        watches = {target.watch.gvk: target.watch for target in targets}
        for watch in watches.values():
            self._runtime.choice.check(watch.more.get(ENGINE), f"engine of {watch.gvk}")
        await self._prepare(watches.values(), len(targets))
        workers = {gvk: asyncio.Semaphore(self._settings.workers_for(gvk)) for gvk in watches}
        slots = asyncio.Semaphore(max(self._settings.most_runs(watches), 1))
        planned = 0

        async def one(target: Target) -> ResourcePlan:
            nonlocal planned
            async with workers[target.watch.gvk], slots:
                run_plan = await self.one(target)
            planned += 1
            self._progress.count(planned, len(targets))
            return run_plan

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(target)) for target in targets]
        plans = [replace(run_plan := task.result(), step=step_of.get(run_plan.resource, 0)) for task in tasks]
        try:
            return Plan(await self._with_unwritten(plans))
        except OperatorError as error:
            log.get(__name__).warning("Cannot find objects that are no longer written", error=str(error))
            return Plan(plans)

    async def _with_unwritten(self, plans: Sequence[ResourcePlan]) -> list[ResourcePlan]:
        """Add the objects that each resource owns, and that its complete run did not use."""
        namespaces = {ref.key.namespace for ref in self._overlays}
        scopes = namespaces if len(namespaces) <= _FLEET and "" not in namespaces else {""}
        owned = [obj for scope in scopes for obj in await deletion.dependents(self._runtime.client, scope, [])]
        return [
            replace(run_plan, unwritten=tuple(deletion.unwritten(run_plan.resource.uid, owned, overlay)))
            if (overlay := self._overlays.get(run_plan.resource)) is not None
            else run_plan
            for run_plan in plans
        ]

    async def _prepare(self, watches: Iterable[Watch], count: int) -> None:
        """Load the modules of many runs once; for a few runs, this would take longer than they do."""
        warm = [watch for watch in watches if self._runtime.choice.is_warm(watch.more.get(ENGINE))]
        contents = [content for watch in warm for content in watch.contents]
        if contents and count >= _FLEET:
            self._runtime.warm.expect(contents, plan_environment(self._runtime.environment))
            await self._runtime.warm.settle()

    async def one(self, target: Target) -> ResourcePlan:
        """Plan one resource, and for a deletion what Kubernetes deletes with it."""
        run_plan = await self._run(target)
        if not is_deleting(target.obj) or run_plan.state == "failed" or is_paused(target.obj):
            return run_plan
        try:
            collected = await deletion.find(self._runtime.client, target.resource, target.obj)
        except OperatorError as error:
            return replace(run_plan, state="failed", message=f"cannot find what Kubernetes deletes: {error}")
        planned = {(change.verb, change.gvk, change.key) for change in run_plan.changes}
        changes = [
            *run_plan.changes,
            *(change for change in collected.changes if (change.verb, change.gvk, change.key) not in planned),
        ]
        unknown = [UnplannedTask("", "", "", collected.unknown)] if collected.unknown else []
        state: State = "partial" if run_plan.state == "partial" or unknown else "complete"
        return replace(
            run_plan,
            state=state,
            message="",
            changes=tuple(changes),
            unplanned=(*run_plan.unplanned, *unknown),
            finalizing=True,
        )

    async def _run(self, target: Target) -> ResourcePlan:
        ref = ObjectRef.of(target.watch.gvk, target.obj)
        content = decisions.run_content(target.watch, target.obj)
        if is_paused(target.obj):
            return ResourcePlan(ref, "skipped", message=f"the annotation {PAUSED} pauses its runs")
        if content is None:
            return ResourcePlan(ref, "skipped", message="it is being deleted, and has no finalizer of this operator")
        reason = reasons.DELETED if is_deleting(target.obj) else reasons.CHANGED
        attempt = Attempt(
            request=ReconcileRequest(ref.key, reason, (), failures=0, failed_runs=0, waited=0.0),
            obj=target.obj,
            executes=content,
            resource=target.resource,
            guard=LeaseGuard(lambda: True),
            ident=new_ident(datetime.now(UTC)),
        )
        try:
            runs, attempt = self._prepared(target.watch, attempt)
            attempt = await RunHosts(target.watch, self._runtime.client, None).before(attempt)
            run = await runs.run(attempt, _overlay(target))
        except OperatorError as error:
            return ResourcePlan(ref, "failed", message=str(error), finalizing=content.finalizing)
        if run.plan.state == "complete" and not content.finalizing and ref.uid:
            self._overlays[ref] = run.overlay
        return run.plan

    def _prepared(self, watch: Watch, attempt: Attempt) -> tuple[PlanRuns, Attempt]:
        client, settings = self._runtime.client, self._settings
        bounds = bounds_of(watch, settings)
        if watch.gvk not in self._runs:
            informer = Informer(client, Discovery(client), watch.gvk, settings.namespaces, Selection(), "")
            scope = WatchScope(watch, informer, Leadership(), Metrics(), _NoEvents(), bounds, OWN_STATUS)
            jobs = JobFactory(scope, settings, self._runtime.environment)
            engine = self._runtime.warm if self._runtime.choice.is_warm(watch.more.get(ENGINE)) else self._runtime.cold
            runs = Runs(scope, engine, (), self._runtime.access, _exists, jobs)
            self._runs[watch.gvk] = PlanRuns(runs, OWN_STATUS, lambda _: None, self._progress.start)
        return self._runs[watch.gvk], replace(attempt, overrides=overrides_of(attempt.obj, bounds))


def steps(targets: Sequence[Target], selection: ResourceSelection) -> dict[ObjectRef, int]:
    """Return the step of a rollout for each resource, from 1, if all were outdated; empty unless all are selected."""
    step_of: dict[ObjectRef, int] = {}
    if selection.name or selection.namespace or selection.files:
        return step_of
    for watch in {target.watch.gvk: target.watch for target in targets}.values():
        policy = watch.more.get(ROLLOUT_POLICY)
        if policy is None:
            continue
        objects = [target.obj for target in targets if target.watch is watch]
        members = [Member.of(obj, policy.labels, watch.mode) for obj in objects]
        fleet = Fleet.of(policy, RolloutState("another content"), members)
        for member in members:
            if (place := fleet.ranks.get(member.uid)) is not None:
                step_of[ObjectRef(watch.gvk, member.key)] = 1 + sum(place >= limit for limit in fleet.limits)
    return step_of


def _overlay(target: Target) -> Overlay:
    """Return the writes before the run: that of an object that is not applied."""
    overlay = Overlay()
    if not target.is_applied:
        existed = target.before is not None
        overlay.record(target.resource, key_of(target.obj), target.before, target.obj, existed=existed)
    return overlay


class _NoEvents:
    """Queue that drops Events: a plan run writes none."""

    def record(self, what: ApiEvent) -> None:
        """Drop an Event."""


async def _exists(_resource: ApiResource, _owner: ObjectRef) -> OwnerState:
    return OwnerState.EXISTS
