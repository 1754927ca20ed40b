"""Values that the parts of one controller share: the scope of a watch, and one attempt at one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from runner.controller.decisions import RunPlan
from runner.engine.job import UnrecordedRun
from runner.kube.discovery import ApiResource
from runner.kube.informer import Informer
from runner.monitoring.metrics import Metrics
from runner.objects import Object, ObjectKey
from runner.replicas.lease_guard import LeaseGuard, ShardOwnership
from runner.watches.watch import Watch
from runner.workqueue.request import ReconcileRequest


class ForgetRegistry:
    """Subscribers that keep state of one kind's objects, so that one call drops all of it."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[ObjectKey], object]] = []

    def subscribe(self, forget: Callable[[ObjectKey], object]) -> None:
        """Call `forget` for each object that is gone, or that moves to or from another replica."""
        self._subscribers.append(forget)

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of an object. Calling it twice does no harm."""
        for forget in self._subscribers:
            forget(key)


@dataclass(frozen=True, slots=True)
class WatchScope:
    """Parts that the controller and the reconciler of one watch share."""

    watch: Watch
    informer: Informer
    ownership: ShardOwnership
    metrics: Metrics
    registry: ForgetRegistry = field(default_factory=ForgetRegistry)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to reconcile one object."""

    request: ReconcileRequest
    obj: Object
    plan: RunPlan
    resource: ApiResource
    guard: LeaseGuard
    ident: str
    """Ident of the run."""
    resumed: UnrecordedRun | None = None
    """The run to continue; None: begin one."""

    @property
    def key(self) -> ObjectKey:
        """Key of the object."""
        return self.request.key

    def resuming(self, run: UnrecordedRun) -> Attempt:
        """Continue a run that an earlier operator began."""
        return replace(self, ident=run.record.ident, resumed=run)

    def because(self, detail: str) -> Attempt:
        """Add a detail to the reason of the run."""
        return replace(self, request=replace(self.request, details=(*self.request.details, detail)))
