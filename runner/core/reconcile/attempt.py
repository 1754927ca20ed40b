"""Values that the parts of one controller share: the scope of a watch, an attempt at an object, and its annotations.

Users who may only write the object set annotations, so they must not exceed the limits of the administrator.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, TypeVar

from runner.base.config import duration
from runner.base.events.recorder import EventQueue
from runner.base.monitoring.background import Background
from runner.core.engine.job import EventSink, Job, RunResult, UnrecordedRun
from runner.core.kube.discovery import ApiResource
from runner.core.kube.informer import Informer
from runner.core.queue import reasons
from runner.core.queue.reasons import RUN_MARK, Mark, ReconcileRequest
from runner.core.reconcile import decisions
from runner.core.reconcile.decisions import RetryTerms, RunContent
from runner.core.reconcile.metrics import Metrics
from runner.core.reconcile.run_log import ObjectEvents
from runner.core.status.conditions import Condition
from runner.core.status.report import OwnStatus, StatusField
from runner.core.watches.policy import MODES, RunMode, mode_of, strictest
from runner.core.watches.watch import NEXT_CHANGE, Watch
from runner.values.errors import TerminalError, shortened
from runner.values.lease_guard import Leadership, LeaseGuard
from runner.values.objects import (
    MODE,
    PREFIX,
    Object,
    ObjectKey,
    ObjectRef,
    annotations_of,
    deleted_for,
    metadata,
    uid_of,
)
from runner.values.slots import EMPTY, Slot, Slots

T = TypeVar("T")

RECONCILE_PERIOD = PREFIX + "reconcile-period"
RUN_TIMEOUT = PREFIX + "run-timeout"
VERBOSITY = PREFIX + "verbosity"
MAX_RUNNER_ARTIFACTS = PREFIX + "max-runner-artifacts"

MAX_VERBOSITY = 7
_LONGEST, _LONGEST_ERROR = 40, 200
"""Characters of a value in a message, and of an error that contains it."""


@dataclass(frozen=True, slots=True)
class AnnotationBounds:
    """Limits of annotations."""

    period: float
    """Seconds between periodic runs without an annotation; 0: off."""
    shortest_period: float
    """Seconds between periodic runs."""
    longest_run: float
    """Seconds that a run may take; 0: no limit."""
    highest_verbosity: int
    mode: RunMode = MODES[0]
    """Least restrictive mode."""


@dataclass(frozen=True, slots=True)
class AnnotationOverrides:
    """Values that annotations override; None if the annotation is missing."""

    reconcile_period: float | None
    """Seconds; 0 turns periodic runs off."""
    run_timeout: float | None
    """Seconds that a run may take; 0: no limit."""
    verbosity: int | None
    max_runner_artifacts: int | None
    """Number of runs; 0 keeps all, -1 none."""
    mode: RunMode
    """Mode of the object's runs: that of the annotation or of the watch, whichever is stricter."""
    warnings: tuple[str, ...]
    """Invalid values, a sentence each."""
    limited: tuple[str, ...]
    """Values beyond the bounds, a sentence each, with the value that is used instead."""


NO_OVERRIDES = AnnotationOverrides(None, None, None, None, MODES[0], (), ())
"""Values of an object without annotations in the least restrictive watch."""


def overrides_of(obj: Object, bounds: AnnotationBounds) -> AnnotationOverrides:
    """Read the annotations.

    Raises:
        TerminalError: a duration or the mode is invalid.
    """
    annotations = annotations_of(obj)
    warnings: list[str] = []
    limited: list[str] = []

    def limit(name: str, used: str) -> None:
        limited.append(f"annotation {name}: {annotations[name][:_LONGEST]!r} is beyond the limit; {used} is used")

    period = _duration(annotations, RECONCILE_PERIOD)
    if period and period < bounds.shortest_period:
        period = bounds.shortest_period
        limit(RECONCILE_PERIOD, duration.format(period))
    timeout = _duration(annotations, RUN_TIMEOUT)
    if timeout is not None and bounds.longest_run and not 0 < timeout <= bounds.longest_run:
        timeout = bounds.longest_run
        limit(RUN_TIMEOUT, duration.format(timeout))
    requested = _mode(annotations) or bounds.mode
    mode = strictest(requested, bounds.mode)
    if mode != requested:
        limit(MODE, mode)
    verbosity = _integer(annotations, VERBOSITY, 0, MAX_VERBOSITY, warnings)
    if verbosity is not None and verbosity > bounds.highest_verbosity:
        verbosity = bounds.highest_verbosity
        limit(VERBOSITY, str(verbosity))
    return AnnotationOverrides(
        reconcile_period=period,
        run_timeout=timeout,
        verbosity=verbosity,
        max_runner_artifacts=_integer(annotations, MAX_RUNNER_ARTIFACTS, -1, None, warnings),
        mode=mode,
        warnings=tuple(warnings),
        limited=tuple(limited),
    )


def _duration(annotations: dict[str, str], name: str) -> float | None:
    text = annotations.get(name)
    if text is None:
        return None
    if text == "off":
        return 0.0
    try:
        return max(duration.parse(text), 0.0)
    except ValueError as error:
        raise TerminalError(
            f"annotation {name}: {shortened(str(error), _LONGEST_ERROR)}; "
            "write a duration such as 10m, 1h30m or 0s (off). The object is not run until it changes",
        ) from error


def _mode(annotations: dict[str, str]) -> RunMode | None:
    text = annotations.get(MODE)
    if text is None:
        return None
    mode = mode_of(text)
    if mode is None:
        raise TerminalError(
            f"annotation {MODE}: {text[:_LONGEST]!r} is invalid; write plan, approve or apply. "
            "The object is not run until it changes"
        )
    return mode


def _integer(
    annotations: dict[str, str], name: str, lowest: int, highest: int | None, warnings: list[str]
) -> int | None:
    text = annotations.get(name)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = lowest - 1
    if value < lowest or (highest is not None and value > highest):
        bounds = f"from {lowest} to {highest}" if highest is not None else f"of at least {lowest}"
        warnings.append(f"annotation {name}: {text[:_LONGEST]!r} is not used; write a whole number {bounds}")
        return None
    return value


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


class Bounds(Protocol):
    """The writes that a run may send, decided before it."""

    @property
    def refused(self) -> str:
        """Why the run was ended, because it sent another write; empty if it sent none."""
        ...


class Interim(NamedTuple):
    """Values of a field of the status that depend on whether the run begins."""

    during: StatusField
    """Written when the run begins: nothing is lost if the operator dies during the run."""
    otherwise: StatusField
    """Written if the run does not begin: an earlier one may have."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to reconcile one object. The features add their parts before the run."""

    request: ReconcileRequest
    obj: Object
    """The object as the run receives it."""
    executes: RunContent
    resource: ApiResource
    guard: LeaseGuard
    ident: str
    """Ident of the run."""
    overrides: AnnotationOverrides = NO_OVERRIDES
    """Values of the object's annotations."""
    conditions: tuple[Condition, ...] = ()
    """Conditions to write with the result of the run, or of its trial."""
    resumed: UnrecordedRun | None = None
    """The run to continue, which an earlier operator began; None: begin one."""
    bounds: Bounds | None = None
    """What the run may write; None: all."""
    interim: Mapping[str, Interim] = field(default_factory=dict)
    """Fields of the status to write when the run begins, by name."""
    completes: tuple[Callable[[Attempt, Job], Job], ...] = ()
    """Functions of features that complete the job of the run. Their parts are about the generation of `obj`."""
    learns: tuple[Callable[[Attempt, RunResult], Awaitable[Attempt]], ...] = ()
    """Functions of features that keep what a trial of the run found out; see `learned`."""
    sinks: tuple[EventSink, ...] = ()
    """Further receivers of the run's events."""
    more: Slots = EMPTY
    """Parts of features. Its job and the identity of the run for the proxy have them too."""

    @property
    def key(self) -> ObjectKey:
        """Key of the object."""
        return self.request.key

    @property
    def generation(self) -> int:
        """Generation of the object; 0 if its kind has none."""
        generation = metadata(self.obj).get("generation")
        return generation if isinstance(generation, int) else 0

    @property
    def purpose(self) -> str:
        """Purpose of the run, as in a `Job`."""
        return "finalize" if self.executes.finalizing else "apply"

    @property
    def is_stopped(self) -> bool:
        """True if the run was ended because one of its writes is beyond its bounds."""
        return self.bounds is not None and bool(self.bounds.refused)

    def having(self, slot: Slot[T], value: T) -> Attempt:
        """Return the attempt with the part of a feature."""
        return replace(self, more=self.more.having(slot, value))

    async def learned(self, result: RunResult) -> Attempt:
        """Let the features keep what a trial of the run found out. Return the attempt for the run after it."""
        attempt = self
        for learn in self.learns:
            attempt = await learn(attempt, result)
        return attempt

    def because(self, *details: str) -> Attempt:
        """Add details to the reason of the run."""
        return replace(self, request=replace(self.request, details=(*self.request.details, *details)))


@dataclass(frozen=True, slots=True)
class WatchScope:
    """Parts that the controller, the reconciler and the features of one watch share."""

    watch: Watch
    informer: Informer
    leadership: Leadership
    metrics: Metrics
    events: EventQueue
    bounds: AnnotationBounds
    own: OwnStatus
    """Parts of the status that only the operator writes."""
    registry: ForgetRegistry = field(default_factory=ForgetRegistry)
    background: Background = field(default_factory=Background)
    marks: Sequence[Mark] = (RUN_MARK,)
    """Annotations that start runs. Of several, the first one determines the reason."""

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
        settled = attempt.request.reason is not reasons.PRESENT and not attempt.request.reason.is_check
        uid = uid_of(attempt.obj)
        delay = decisions.resync_delay(period, uid, now.timestamp(), settled=settled) if period > 0 else None
        return RetryTerms(
            retry=self.watch.policy.retry,
            resync_after=delay,
            finalizing=attempt.executes.finalizing,
            limit=finalizer.limit if finalizer else None,
            deleted_for=deleted_for(attempt.obj, now),
            terminating=terminating,
            has_own_finalizer=finalizer is not None and finalizer.content != self.watch.content,
            next_change=self.watch.more.get(NEXT_CHANGE),
        )
