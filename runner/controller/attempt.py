"""Values that the parts of one controller share: the scope of a watch, and one attempt at one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from runner.controller import decisions
from runner.controller.annotations import NO_OVERRIDES, AnnotationBounds, AnnotationOverrides
from runner.controller.decisions import RetryTerms, RunPlan
from runner.controller.run_events import ObjectEvents
from runner.engine.job import UnrecordedRun
from runner.events.recorder import EventQueue
from runner.kube.discovery import ApiResource
from runner.kube.informer import Informer
from runner.monitoring.metrics import Metrics
from runner.objects import Object, ObjectKey, ObjectRef, deleted_for, metadata, uid_of
from runner.plan.approved import ApprovedPlan
from runner.prune.run_objects import RunUses
from runner.replicas.lease_guard import LeaseGuard, ShardOwnership
from runner.status.conditions import Condition
from runner.unchanged.last_run import RunInputs
from runner.watches.watch import Watch
from runner.workqueue.request import ReconcileRequest, RunReason


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
class ApprovedRun:
    """A plan that a user approved, and its hash."""

    plan: ApprovedPlan
    hash: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to reconcile one object. The features add their parts before the run."""

    request: ReconcileRequest
    obj: Object
    """The object as the run receives it."""
    plan: RunPlan
    resource: ApiResource
    guard: LeaseGuard
    ident: str
    """Ident of the run."""
    overrides: AnnotationOverrides = NO_OVERRIDES
    """Settings of the object's annotations."""
    conditions: tuple[Condition, ...] = ()
    """Conditions to write with the result of the run, or of the plan."""
    resumed: UnrecordedRun | None = None
    """The run to continue, which an earlier operator began; None: begin one."""
    inputs: RunInputs | None = None
    """Digests of the run's inputs; None if the run is not recorded."""
    objects: RunUses | None = None
    """Recorder of the objects that the run uses and creates; None if they are not recorded."""
    approved: ApprovedRun | None = None
    """The plan that the run executes; None if it needs none."""

    @property
    def key(self) -> ObjectKey:
        """Key of the object."""
        return self.request.key

    @property
    def generation(self) -> int:
        """Generation of the object; 0 if its kind has none."""
        found = metadata(self.obj).get("generation")
        return found if isinstance(found, int) else 0

    @property
    def purpose(self) -> str:
        """Purpose of the run, as in a `RunRecord`."""
        return "finalize" if self.plan.finalizing else "apply"

    @property
    def is_stopped(self) -> bool:
        """True if the run was ended because its plan does not contain one of its writes."""
        return self.approved is not None and bool(self.approved.plan.refused)

    def because(self, *details: str) -> Attempt:
        """Add details to the reason of the run."""
        return replace(self, request=replace(self.request, details=(*self.request.details, *details)))


@dataclass(frozen=True, slots=True)
class WatchScope:
    """Parts that the controller, the reconciler and the features of one watch share."""

    watch: Watch
    informer: Informer
    ownership: ShardOwnership
    metrics: Metrics
    events: EventQueue
    bounds: AnnotationBounds
    registry: ForgetRegistry = field(default_factory=ForgetRegistry)

    def about(self, obj: Object) -> ObjectEvents:
        """Return the Events about an object."""
        return ObjectEvents(self.events, ObjectRef.of(self.watch.gvk, obj))

    def latest(self, attempt: Attempt) -> Object:
        """Return the object as the cache has it: the role may have changed it."""
        cached = self.informer.get(attempt.key)
        return cached if cached is not None and uid_of(cached) == uid_of(attempt.obj) else attempt.obj

    def terms(self, attempt: Attempt, *, terminating: bool = False) -> RetryTerms:
        """Return the limits of an attempt's result. `terminating`: see `RetryTerms`."""
        finalizer, now = self.watch.finalizer, datetime.now(UTC)
        own = attempt.overrides.reconcile_period
        period = self.bounds.period if own is None else own
        settled = attempt.request.reason not in {RunReason.PRESENT, RunReason.DRIFT}
        uid = uid_of(attempt.obj)
        delay = decisions.resync_delay(period, uid, now.timestamp(), settled=settled) if period > 0 else None
        return RetryTerms(
            retry=self.watch.policy.retry,
            resync_after=delay,
            finalizing=attempt.plan.finalizing,
            limit=finalizer.limit if finalizer else None,
            deleted_for=deleted_for(attempt.obj, now),
            terminating=terminating,
            references=bool(self.watch.references),
        )
