"""Requests of a work queue: their causes, and what a worker receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from runner.core.queue import reasons
from runner.core.queue.reasons import RunReason
from runner.values.objects import LastResult, ObjectKey

DEPENDENT_STATUS_HANDICAP = 60.0
"""Handicap of a dependent of which only the status changed: the run repairs nothing."""
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
    """A key of the queue, for pages and schedules."""

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
    def of(cls, reason: RunReason, details: tuple[str, ...], handicap: float | None = None) -> Cause:
        """Return a cause, by default with the handicap of its reason."""
        return cls(reason, details, reason.handicap if handicap is None else handicap)

    @classmethod
    def at_start(cls, result: LastResult) -> Cause:
        """Return the cause of an object that is present at start."""
        details = (result.value,) if result.value else ()
        return cls(reasons.PRESENT, details, HANDICAP_AT_START.get(result, reasons.PRESENT.handicap))

    def merged(self, other: Cause) -> Cause:
        """Return the more urgent cause; merge the details of causes with the same reason."""
        if self.reason is other.reason:
            details = tuple(dict.fromkeys((*self.details, *other.details)))[:_MOST_DETAILS]
            return Cause(self.reason, details, min(self.handicap, other.handicap))
        return self if self.handicap <= other.handicap else other
