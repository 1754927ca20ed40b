"""Reasons of runs, their urgency, and what follows from each; annotations whose new value starts a run; and requests.

A feature that requests runs defines its own reason next to the code that requests them. Other code reads the properties
of a reason, and names none of a feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from runner.values.objects import RUN_REQUESTED, LastResult, ObjectKey


@dataclass(frozen=True, slots=True, eq=False)
class RunReason:
    """Why a run was requested. Compared by identity."""

    value: str
    """Name in logs, Events, metrics and the variables of the run."""
    handicap: float
    """Seconds by which a more urgent request may come later and still go first."""
    is_background: bool = True
    """True unless a user changed the object."""
    starts_over: bool = False
    """True if the object, a reference of it or its role changed, so that earlier failures no longer count."""
    is_announced: bool = True
    """True if the status reports the start of the run."""
    is_skippable: bool = False
    """True if the run changes nothing unless its inputs changed since the last run."""
    shows_object: bool = False
    """True if an event of the object itself started the run, so that the object still exists."""
    is_required: bool = False
    """True if a user or another object requires the run now, so that it cannot wait for a better time."""
    repairs: bool = False
    """True for a real run that is due for its own sake, and repairs the object as a check would."""
    is_check: bool = False
    """True if the run only checks the object and is no result for it."""
    message: str = ""
    """Log line of each request; empty if none is logged."""

    def __repr__(self) -> str:
        return f"<reason {self.value}>"


CHANGED = RunReason("changed", 0.0, is_background=False, starts_over=True, shows_object=True)
CREATED = RunReason("created", 0.0, is_background=False, starts_over=True, shows_object=True)
REQUESTED = RunReason("requested", 0.0, is_background=False, starts_over=True, shows_object=True, is_required=True)
DELETED = RunReason("deleted", 1.0, is_background=False, starts_over=True, shows_object=True)
DEPENDENT = RunReason("dependent changed", 5.0, is_announced=False, is_required=True, message="A dependent changed")
REQUEUED = RunReason("requested by the last run", 15.0, repairs=True)
RETRY = RunReason("retry", 15.0, repairs=True)
PRESENT = RunReason("present at start", 600.0, is_skippable=True, shows_object=True)
GONE = RunReason("gone", 60.0, shows_object=True)
RESYNC = RunReason("periodic resync", 600.0, is_announced=False, is_skippable=True)

CORE = (CHANGED, CREATED, REQUESTED, DELETED, DEPENDENT, REQUEUED, RETRY, PRESENT, GONE, RESYNC)
"""The reasons of an operator without features."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An annotation whose new value starts a run."""

    annotation: str
    reason: RunReason
    on_removal: bool = False
    """True if its removal starts a run too."""

    def differs(self, old: Mapping[str, str], new: Mapping[str, str]) -> bool:
        """Return True if a change of these annotations starts a run."""
        value = new.get(self.annotation, "")
        return value != old.get(self.annotation, "") and (self.on_removal or value != "")


RUN_MARK = Mark(RUN_REQUESTED, REQUESTED)

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
        return cls(PRESENT, details, HANDICAP_AT_START.get(result, PRESENT.handicap))

    def merged(self, other: Cause) -> Cause:
        """Return the more urgent cause; merge the details of causes with the same reason."""
        if self.reason is other.reason:
            details = tuple(dict.fromkeys((*self.details, *other.details)))[:_MOST_DETAILS]
            return Cause(self.reason, details, min(self.handicap, other.handicap))
        return self if self.handicap <= other.handicap else other
