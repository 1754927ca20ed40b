"""Controllers of the watches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from runner.app import features
from runner.base import log
from runner.core.kube.client import Selection
from runner.core.kube.informer import Informer
from runner.core.queue.line import ConcurrencyLimit
from runner.core.queue.queue import Dispatcher, WorkQueue
from runner.core.queue.reasons import RUN_MARK
from runner.core.reconcile.attempt import WatchScope
from runner.core.reconcile.controller import Controller
from runner.core.reconcile.feature import Kind, Operator
from runner.core.reconcile.own_hooks import OwnerCheck, Refusals
from runner.core.reconcile.reconcile import Reconciler
from runner.core.reconcile.run_access import RunAccess
from runner.core.reconcile.run_log import RunObserver
from runner.core.reconcile.runs import JobFactory, Runs, bounds_of
from runner.core.status.writer import StatusWriter
from runner.core.watches.watch import Watch
from runner.engines.plugin import OpenEngine

_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class RunParts:
    """Parts of the operator for the runs of all kinds."""

    access: RunAccess
    recorders: Sequence[RunObserver]
    dispatcher: Dispatcher


def make(watch: Watch, engine: OpenEngine, operator: Operator, of_runs: RunParts) -> Controller:
    """Return the controller of a watch."""
    kind = _kind(watch, engine, operator, of_runs)
    kind.hooks.extend(features.hooks(kind))
    account, selector = watch.service_account or None, watch.selector or None
    workers = kind.queue.limit.workers
    _log.info("Watching", gvk=str(watch.gvk), workers=workers, selector=selector, service_account=account)
    operator.metrics.add_reasons(watch.gvk, features.REASONS)
    return Controller(kind, Reconciler(kind))


def _kind(watch: Watch, engine: OpenEngine, operator: Operator, of_runs: RunParts) -> Kind:
    settings = operator.settings
    finalizer = watch.finalizer.name if watch.finalizer else ""
    selection = Selection(labels=watch.selector, fields=watch.field_selector)
    informer = Informer(operator.client, operator.discovery, watch.gvk, settings.namespaces, selection, finalizer)
    scope = WatchScope(
        *(watch, informer, operator.leadership, operator.metrics, operator.events),
        bounds=bounds_of(watch, settings),
        own=features.OWN_STATUS,
        background=operator.background,
        marks=(*features.MARKS, RUN_MARK),
    )
    scope.registry.subscribe(partial(operator.dependents.forget, watch.gvk))
    owners = OwnerCheck(scope, operator.client)
    jobs = JobFactory(scope, settings, operator.environment)
    runs = Runs(scope, engine.engine, of_runs.recorders, of_runs.access, owners.during_run, jobs)
    status = _status(scope, operator)
    most = engine.most(watch)
    workers = settings.workers_for(watch.gvk) if most is None else most
    queue = WorkQueue(ConcurrencyLimit.of(workers), of_runs.dispatcher)
    return Kind(
        operator=operator,
        scope=scope,
        queue=queue,
        status=status,
        refusals=Refusals(scope, status),
        owners=owners,
        runs=runs,
        executed=operator.executed(watch),
    )


def _status(scope: WatchScope, operator: Operator) -> StatusWriter:
    watch = scope.watch
    writer = StatusWriter(
        *(operator.client, watch.gvk, operator.leadership, lambda obj, why: scope.about(obj).refused(why), scope.own),
        enabled=watch.manage_status,
        health=watch.health_conditions,
    )
    scope.registry.subscribe(writer.forget)
    return writer
