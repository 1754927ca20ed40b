"""Requests of a work queue: reasons in their order of urgency, and what a worker receives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from runner.objects import LastResult, ObjectKey


class RunReason(Enum):
    """Why a run was requested, in order of urgency; logs, Events and roles contain the value."""

    CHANGED = "changed"
    CREATED = "created"
    REQUESTED = "requested"
    DELETED = "deleted"
    DEPENDENT = "dependent changed"
    REFERENCE = "reference changed"
    EDITED = "role edited"
    REQUEUED = "requested by the last run"
    RETRY = "retry"
    PRUNE = "prune check"
    PRESENT = "present at start"
    GONE = "gone"
    RESYNC = "periodic resync"
    DRIFT = "drift check"

    @property
    def starts_over(self) -> bool:
        """True if the object, a reference of it or its role changed, so that earlier failures no longer count."""
        return self in {RunReason.REFERENCE, RunReason.EDITED} or not self.is_background

    @property
    def is_background(self) -> bool:
        """True unless a user changed the object."""
        return self not in {RunReason.CHANGED, RunReason.CREATED, RunReason.REQUESTED, RunReason.DELETED}


HANDICAP: dict[RunReason, float] = {
    RunReason.CHANGED: 0.0,
    RunReason.CREATED: 0.0,
    RunReason.REQUESTED: 0.0,
    RunReason.DELETED: 1.0,
    RunReason.DEPENDENT: 5.0,
    RunReason.REFERENCE: 10.0,
    RunReason.EDITED: 10.0,
    RunReason.REQUEUED: 15.0,
    RunReason.RETRY: 15.0,
    RunReason.PRUNE: 60.0,
    RunReason.PRESENT: 600.0,
    RunReason.GONE: 60.0,
    RunReason.RESYNC: 600.0,
    RunReason.DRIFT: 1200.0,
}
"""Seconds by which a more urgent request may come later and still go first."""

HANDICAP_AT_START = {LastResult.NONE: 15.0, LastResult.OUTDATED: 60.0, LastResult.FAILED: 120.0}
"""The same for objects present at start whose last run has no result for the current spec, or failed."""

Stage: TypeAlias = Literal["running", "waiting", "delayed"]

_MOST_DETAILS = 20


@dataclass(frozen=True, slots=True)
class ReconcileRequest:
    """A key that a worker reconciles, and why."""

    key: ObjectKey
    reason: RunReason
    details: tuple[str, ...]
    """The fields that changed, or the dependents, and how these changed."""
    failures: int
    """Attempts in a row that failed, including write conflicts."""
    failed_runs: int
    """Runs among these failures."""
    waited: float
    """Seconds in the queue."""

    @property
    def cause(self) -> dict[str, object]:
        """Reason of the run as its role reads it."""
        return {"reason": self.reason.value, "details": list(self.details), "failures": self.failed_runs}


class QueueEntry(NamedTuple):
    """A key of the queue, for the status page."""

    key: ObjectKey
    stage: Stage
    reason: RunReason
    details: tuple[str, ...]
    seconds: float
    """Since it was added; until it is due, if it is delayed."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Reason of a request, with details."""

    reason: RunReason
    details: tuple[str, ...]
    handicap: float

    @classmethod
    def of(cls, reason: RunReason, details: tuple[str, ...]) -> Cause:
        """Return a cause with the handicap of its reason."""
        return cls(reason, details, HANDICAP[reason])

    @classmethod
    def at_start(cls, result: LastResult) -> Cause:
        """Return the cause of an object that is present at start."""
        details = (result.value,) if result.value else ()
        return cls(RunReason.PRESENT, details, HANDICAP_AT_START.get(result, HANDICAP[RunReason.PRESENT]))

    def merged(self, other: Cause) -> Cause:
        """Return the more urgent cause; merge the details of causes with the same reason."""
        if self.reason is other.reason:
            details = tuple(dict.fromkeys((*self.details, *other.details)))[:_MOST_DETAILS]
            return Cause(self.reason, details, min(self.handicap, other.handicap))
        return self if self.handicap <= other.handicap else other
