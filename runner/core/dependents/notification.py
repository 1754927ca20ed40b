"""Changes that an owner is notified of, at once or after its run, and writes of its runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from runner.core.kube.object_state import ObjectState, difference
from runner.core.queue import reasons
from runner.core.queue.reasons import RunReason
from runner.core.queue.request import DEPENDENT_STATUS_HANDICAP, Cause
from runner.core.watches.policy import StatusTrigger
from runner.values.objects import GVK, ObjectRef


@dataclass(frozen=True, slots=True)
class Notification:
    """A change of an object that another one, its owner for example, should be run for."""

    target: ObjectRef
    source: ObjectRef
    """The changed object."""
    what: str
    """The change, for the log: `spec changed`, `was deleted`."""
    state: ObjectState | None
    """Current state of the object; None if it was deleted, or if it is not known."""
    fields: tuple[str, ...] = ()
    """Changed fields, such as `spec.replicas`, or `spec` if unknown; empty for a deletion or recreation."""
    by: str = ""
    """Field manager of the change; empty if unknown."""
    is_status: bool = False
    """True if only the status changed, and the owner's watch has `auto`."""
    is_progress: bool = False
    """True for a step of a rollout that is not complete."""
    reason: RunReason = reasons.DEPENDENT
    version: str = ""
    """The resourceVersion of the changed object, if there is no `state`; empty if the object was deleted."""

    @property
    def cause(self) -> Cause:
        """Cause of the run."""
        handicap = DEPENDENT_STATUS_HANDICAP if self.is_status and self.reason is reasons.DEPENDENT else None
        return Cause.of(self.reason, (f"{self.source} {self.what}",), handicap)


Trigger = Callable[[Notification], None]
"""Runs the target of a notification, now or later."""


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


class Deferred:
    """Notifications by owner.

    A watch may deliver the event of a write before the run has the response, so that the writer is not known yet. While
    an owner runs, its notifications wait here. Each write or deletion that a run reports removes the ones that it
    caused. The ones that are left when the run ends were caused by other clients.
    """

    def __init__(self) -> None:
        self._runs: Counter[ObjectRef] = Counter()
        self._items: dict[ObjectRef, list[Notification]] = {}

    def began(self, owner: ObjectRef) -> None:
        """Note the start of a run of this owner."""
        self._runs[owner] += 1

    def ended(self, owner: ObjectRef) -> list[Notification]:
        """Note the end of a run; return the notifications that are due if it was the owner's only one."""
        self._runs[owner] -= 1
        if self._runs[owner] > 0:
            return []
        del self._runs[owner]
        return self._items.pop(owner, [])

    def defer(self, item: Notification) -> bool:
        """Keep a notification if its owner runs; return False if it is due now.

        The statuses of an object during one run need one notification.
        """
        owner = item.target
        if not self._runs[owner]:
            del self._runs[owner]
            return False
        if item.is_status:
            earlier = self.discard(owner, lambda other: other.is_status and other.source == item.source)
            item = replace(item, is_progress=item.is_progress and all(other.is_progress for other in earlier))
        self._items.setdefault(owner, []).append(item)
        return True

    def discard(self, owner: ObjectRef, is_own: Callable[[Notification], bool]) -> list[Notification]:
        """Remove and return the notifications that the owner's run has caused."""
        items = self._items.pop(owner, [])
        own = [item for item in items if is_own(item)]
        if left := [item for item in items if item not in own]:
            self._items[owner] = left
        return own


class DeferredNotifications(Deferred):
    """Notifications of dependents."""

    def wrote(self, source: ObjectRef, write: RunWrite, *, trigger: StatusTrigger) -> None:
        """Discard the notifications that a run's write to an object has caused."""
        self.discard(
            write.target,
            lambda item: (
                item.source == source
                and item.state is not None
                and not item.is_status
                and write.explains(item.state, trigger=trigger)
            ),
        )

    def deleted(self, kind: GVK, owner: ObjectRef, uid: str) -> bool:
        """Discard the notifications of an object that a run deleted; return True if its end was among them."""
        ends = self.discard(
            owner,
            lambda item: (
                (item.source.gvk, item.source.uid) == (kind, uid)
                and (item.is_status or item.state is None or item.state.deleting)
            ),
        )
        return any(notification.state is None for notification in ends)
