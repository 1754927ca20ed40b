"""Changes that an owner is notified of, and writes of its runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from runner.kube.object_state import ObjectState, difference
from runner.objects import ObjectKey, ObjectRef
from runner.watches.policy import StatusTrigger


@dataclass(frozen=True, slots=True)
class Notification:
    """A change of a dependent that its owner should be run for."""

    target: ObjectRef
    key: ObjectKey
    uid: str
    what: str
    """The change, for the log: `spec changed`, `was deleted`."""
    state: ObjectState | None
    """Current state of the object; None if it was deleted."""
    fields: tuple[str, ...] = ()
    """Changed fields, such as `spec.replicas`, or `spec` if unknown; empty for a deletion or recreation."""
    by: str = ""
    """Field manager of the change; empty if unknown."""
    is_status: bool = False
    """True if only the status changed, and the owner's watch has `auto`."""
    is_progress: bool = False
    """True for a step of a rollout that is not complete."""


@dataclass(frozen=True, slots=True)
class RunWrite:
    """An object that a run wrote. `state` is None if the response contains only the version."""

    target: ObjectRef
    uid: str
    version: str
    state: ObjectState | None

    def explains(self, seen: ObjectState, *, trigger: StatusTrigger) -> bool:
        """Return True if the seen state is the written one or does not differ from it in a relevant way."""
        if self.version == seen.version:
            return True
        return self.state is not None and not difference(self.state, seen, trigger=trigger)
