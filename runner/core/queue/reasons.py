"""Reasons of runs, their urgency, and what follows from each; and annotations whose new value starts a run.

A feature that requests runs defines its own reason next to the code that requests them. Other code reads the properties
of a reason, and names none of a feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runner.values.objects import RUN_REQUESTED


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
