"""Requests of a work queue: reasons in their order of urgency, and what a worker receives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from runner.objects import ObjectKey


class Reason(Enum):
    """Why a run was requested, in order of urgency; logs, Events and roles contain the value."""

    CHANGED = "changed"
    CREATED = "created"
    ASKED = "asked for"
    DELETED = "deleted"
    DEPENDENT = "dependent changed"
    REFERENCE = "reference changed"
    EDITED = "role edited"
    REQUEUED = "asked for by the last run"
    RETRY = "retry"
    PRESENT = "present at start"
    GONE = "gone"
    RESYNC = "periodic resync"

    @property
    def starts_over(self) -> bool:
        """True if the object, a reference of it or its role changed, so that earlier failures no longer count."""
        return self in {Reason.REFERENCE, Reason.EDITED} or not self.is_background

    @property
    def is_background(self) -> bool:
        """True unless a user changed the object."""
        return self not in {Reason.CHANGED, Reason.CREATED, Reason.ASKED, Reason.DELETED}


HANDICAP: dict[Reason, float] = {
    Reason.CHANGED: 0.0,
    Reason.CREATED: 0.0,
    Reason.ASKED: 0.0,
    Reason.DELETED: 1.0,
    Reason.DEPENDENT: 5.0,
    Reason.REFERENCE: 10.0,
    Reason.EDITED: 10.0,
    Reason.REQUEUED: 15.0,
    Reason.RETRY: 15.0,
    Reason.PRESENT: 60.0,
    Reason.GONE: 60.0,
    Reason.RESYNC: 600.0,
}
"""Seconds by which a more urgent request may come later and still go first."""

Stage: TypeAlias = Literal["running", "waiting", "delayed"]

_MOST_DETAILS = 20


@dataclass(frozen=True, slots=True)
class Request:
    """A key that a worker reconciles, and why."""

    key: ObjectKey
    reason: Reason
    details: tuple[str, ...]
    """The fields that changed, or the dependents, and how these changed."""
    failures: int
    """Attempts in a row that failed, including write conflicts."""
    failed_runs: int
    """Runs among these failures."""
    waited: float
    """Seconds in the queue."""


class QueueEntry(NamedTuple):
    """A key of the queue, for the status page."""

    key: ObjectKey
    stage: Stage
    reason: Reason
    details: tuple[str, ...]
    seconds: float
    """Since it was added; until it is due, if it is delayed."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Reason of a request, with details."""

    reason: Reason
    details: tuple[str, ...]

    def merged(self, other: Cause) -> Cause:
        """Return the more urgent cause; merge the details of causes with the same reason."""
        if self.reason is other.reason:
            return Cause(self.reason, tuple(dict.fromkeys((*self.details, *other.details)))[:_MOST_DETAILS])
        return self if HANDICAP[self.reason] <= HANDICAP[other.reason] else other
