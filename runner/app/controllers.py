"""Controllers of the watches, and the order of their features."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from runner import log
from runner.config import paths
from runner.config.settings import Settings
from runner.content.digest import ContentDigest
from runner.controller import planning
from runner.controller.attempt import Attempt, WatchScope
from runner.controller.controller import Controller
from runner.controller.decisions import RUN_MARK
from runner.controller.drift import DRIFT, DriftChecks
from runner.controller.hooks import Hooks
from runner.controller.hosts import RunHosts
from runner.controller.own_hooks import Annotations, FinalizerRemoval, IgnoredReferences, Pause, Refusals, RunReports
from runner.controller.owner_check import OwnerCheck
from runner.controller.planning import PlanReconciler
from runner.controller.prune_records import PruneDeletion, PruneRecords
from runner.controller.pruning import PRUNE, Pruner
from runner.controller.reconcile import Reconciler
from runner.controller.run_access import AccessObserver, RunAccess
from runner.controller.run_log import RunObserver
from runner.controller.runs import JobFactory, Runs, bounds_of
from runner.controller.skipping import RunSkipper
from runner.dependents.watching import Dependents
from runner.engine.job import Engine
from runner.events.recorder import EventRecorder
from runner.features.loopguard.guard import LoopGuard
from runner.features.loopguard.reports import ContentionReporter
from runner.features.rollout.hooks import ROLLOUT, Rollout
from runner.features.rollout.page import RolloutTable
from runner.features.rollout.store import RolloutStore
from runner.kube.client import Client, Selection
from runner.kube.credentials import auth
from runner.kube.discovery import Discovery
from runner.kube.informer import Informer
from runner.lease_guard import Leadership
from runner.monitoring.background import Background
from runner.monitoring.metrics import Metrics
from runner.objects import Object, ObjectRef
from runner.plan.page import LatestPlans
from runner.prune import store as prune_store
from runner.prune.sharing import OperatorUses
from runner.references.watching import REFERENCE, References
from runner.status.writer import StatusWriter
from runner.watches.watch import Watch
from runner.workqueue.concurrency import ConcurrencyLimit
from runner.workqueue.queue import Dispatcher

_REASONS = (REFERENCE, PRUNE, ROLLOUT, DRIFT)
"""Reasons of the features."""

_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Shared:
    """Parts of the operator that all kinds share."""

    settings: Settings
    metrics: Metrics
    environment: Mapping[str, str]
    """Added to the operator's own environment for runs."""
    search_path: paths.SearchPath
    client: Client
    discovery: Discovery
    engine: Engine
    pods: Engine | None
    """Engine of the watches whose runs are in pods; None if there are none."""
    access: RunAccess
    observers: Sequence[AccessObserver]
    guard: LoopGuard
    references: References
    leadership: Leadership
    recorders: Sequence[RunObserver]
    background: Background
    dependents: Dependents
    dispatcher: Dispatcher
    events: EventRecorder
    uses: OperatorUses | None
    """Uses of all resources, if a watch prunes objects."""
    plans: LatestPlans
    rollouts: RolloutTable = field(default_factory=RolloutTable)

    def executed(self, watch: Watch) -> ContentDigest:
        """Return the digest of what a watch executes."""
        environ = {**os.environ, **self.environment}
        return ContentDigest(watch, self.search_path, self.settings.ansible_args, environ, Path.cwd())


def uses(settings: Settings, watches: Sequence[Watch], run: Callable[[ObjectRef, str], None]) -> OperatorUses | None:
    """Return the recorder of the objects that all resources use; None if no watch prunes objects."""
    pruning = [watch.gvk for watch in watches if watch.prune.then != "off"]
    if pruning and not settings.inject_owner_ref:
        _log.warning("prune has no effect with --inject-owner-ref=false", gvks=[*map(str, pruning)])
        return None
    return OperatorUses(run) if pruning else None


def make(watch: Watch, shared: Shared) -> Controller:
    """Return the controller of a watch."""
    settings = shared.settings
    finalizer = watch.finalizer.name if watch.finalizer else ""
    selection = Selection(labels=watch.selector, fields=watch.field_selector)
    informer = Informer(shared.client, shared.discovery, watch.gvk, settings.namespaces, selection, finalizer)
    scope = WatchScope(
        *(watch, informer, shared.leadership, shared.metrics, shared.events, bounds_of(watch, settings)),
        background=shared.background,
        marks=(*planning.MARKS, RUN_MARK),
    )
    scope.registry.subscribe(partial(shared.dependents.forget, watch.gvk))
    engine = shared.pods if watch.pods is not None and shared.pods is not None else shared.engine
    owners = OwnerCheck(scope, shared.client)
    jobs = JobFactory(scope, settings, shared.environment)
    runs = Runs(scope, engine, shared.recorders, shared.access, owners.during_run, jobs)
    status = _status(scope, shared)
    refusals = Refusals(scope, status)
    contention = ContentionReporter(scope, shared.discovery, status, shared.guard)
    executed = shared.executed(watch)
    contents = (executed, shared.executed(watch.as_finalizer()) if watch.finalizer else executed)
    pruner, rollout = _pruner(scope, shared, executed), _rollout(scope, shared, executed)
    # The order of all calls. Before a run, each feature can skip those below it. After a run, the first acts first.
    features: list[Hooks | None] = [
        RunReports(scope),  # reports the run before the removal of the finalizer lets the object go
        refusals,
        FinalizerRemoval(scope, shared.client, refusals) if watch.finalizer else None,  # nothing else for this object
        Pause(scope),  # before the features that send requests, or fail for an invalid object
        contention,  # ends its condition even if the run is skipped
        Annotations(scope),  # reads settings of the features below
        IgnoredReferences(scope),
        runs,  # continues the run of an earlier operator, which cannot be skipped
        rollout,  # after `runs`, and before the features whose requests and plans an object that waits does not need
        _skipper(scope, shared, executed, pruner),  # before the check of the owner, which can need a request
        owners,  # before plans and checks, which would be useless for a deleted object
        RunHosts(watch, shared.client) if watch.inventory else None,  # plans and checks need them too
        PlanReconciler(scope, shared.client, runs, status, contents, pruner, shared.plans),
        DriftChecks(scope, watch.policy.drift, runs, status, shared.plans),  # an approved run needs no check
        pruner,  # records the objects of a run that no other feature can skip any more
    ]
    present = [feature for feature in features if feature is not None]
    reconciler = Reconciler(scope, shared.client, shared.discovery, runs, status, refusals, present)
    workers = watch.pods.most if watch.pods is not None else settings.workers_for(watch.gvk)
    limit = ConcurrencyLimit.of(workers)
    account, selector = watch.service_account or None, watch.selector or None
    _log.info("Watching", gvk=str(watch.gvk), workers=workers, selector=selector, service_account=account)
    shared.metrics.add_reasons(watch.gvk, _REASONS)
    controller = Controller(scope, reconciler, runs, shared.references, limit, shared.dispatcher)
    if rollout is not None:
        rollout.run, shared.rollouts.kinds[watch.gvk] = controller.queue.add, rollout.progress
    return controller


def _rollout(scope: WatchScope, shared: Shared, executed: ContentDigest) -> Rollout | None:
    watch = scope.watch
    if watch.rollout is None:
        return None
    space = auth.OwnNamespaces.of_process(shared.settings.leader_election_namespace).others or "default"
    selection = Selection(labels=watch.selector, fields=watch.field_selector)
    store = RolloutStore(shared.client, space, watch.gvk, shared.settings.namespaces, selection)
    return Rollout(scope, watch.rollout, store, executed)


def _status(scope: WatchScope, shared: Shared) -> StatusWriter:
    watch = scope.watch

    def refused(obj: Object, why: str) -> None:
        scope.about(obj).refused(why)

    writer = StatusWriter(
        *(shared.client, watch.gvk, shared.leadership, refused),
        enabled=watch.manage_status,
        health=watch.health_conditions,
    )
    scope.registry.subscribe(writer.forget)
    return writer


def _skipper(scope: WatchScope, shared: Shared, executed: ContentDigest, pruner: Pruner | None) -> RunSkipper | None:
    if not scope.watch.skip_unchanged:
        return None
    must_run: Callable[[Attempt], Awaitable[bool]] = pruner.is_pending if pruner is not None else _never
    return RunSkipper(scope, shared.client, shared.dependents, shared.references, executed, must_run)


async def _never(_attempt: Attempt) -> bool:
    return False


def _pruner(scope: WatchScope, shared: Shared, executed: ContentDigest) -> Pruner | None:
    watch, client, recorder = scope.watch, shared.client, shared.uses
    if recorder is None:
        return None
    deletion = PruneDeletion(scope, client, shared.discovery, shared.observers, recorder, watch.service_account)
    space = auth.pod_namespace(auth.HostEnvironment.of_process())
    state = prune_store.storage(client, space, shared.settings.runner_dir)
    found = PruneRecords(scope, client, shared.discovery, prune_store.RecordStore(state))
    return Pruner(scope, executed, recorder, found, deletion)
