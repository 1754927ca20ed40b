"""Changes that an owner is notified of, at once or after its run, and writes of its runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from runner.kube.object_state import ObjectState, difference
from runner.objects import GVK, ObjectKey, ObjectRef
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


T = TypeVar("T")


class Deferred(Generic[T]):
    """Notifications of type `T`, by owner.

    A watch may deliver the event of a write before the run has the response, so that the writer is not known yet. While
    an owner runs, its notifications wait here. Each write or deletion that a run reports removes the ones that it
    caused. The ones that are left when the run ends were caused by other clients.
    """

    def __init__(self) -> None:
        self._runs: Counter[ObjectRef] = Counter()
        self._items: dict[ObjectRef, list[T]] = {}

    def began(self, owner: ObjectRef) -> None:
        """Note the start of a run of this owner."""
        self._runs[owner] += 1

    def ended(self, owner: ObjectRef) -> list[T]:
        """Note the end of a run; return the notifications that are due if it was the owner's only one."""
        self._runs[owner] -= 1
        if self._runs[owner] > 0:
            return []
        del self._runs[owner]
        return self._items.pop(owner, [])

    def defer(self, owner: ObjectRef, item: T) -> bool:
        """Keep a notification if its owner runs; return False if it is due now."""
        if not self._runs[owner]:
            del self._runs[owner]
            return False
        self._items.setdefault(owner, []).append(item)
        return True

    def discard(self, owner: ObjectRef, is_own: Callable[[T], bool]) -> list[T]:
        """Remove and return the notifications that the owner's run has caused."""
        items = self._items.pop(owner, [])
        own = [item for item in items if is_own(item)]
        if left := [item for item in items if item not in own]:
            self._items[owner] = left
        return own


class DeferredNotifications(Deferred[tuple[GVK, Notification]]):
    """Notifications of dependents, each with the dependent's kind."""

    def defer(self, owner: ObjectRef, item: tuple[GVK, Notification]) -> bool:
        """Keep a notification as `Deferred` does. The statuses of an object during one run need one notification."""
        kind, notification = item
        if notification.is_status:
            earlier = self.discard(
                owner, lambda each: each[1].is_status and (each[0], each[1].key) == (kind, notification.key)
            )
            is_progress = notification.is_progress and all(each.is_progress for _, each in earlier)
            item = (kind, replace(notification, is_progress=is_progress))
        return super().defer(owner, item)

    def wrote(self, kind: GVK, key: ObjectKey, write: RunWrite, *, trigger: StatusTrigger) -> None:
        """Discard the notifications that a run's write has caused."""
        self.discard(
            write.target,
            lambda item: (
                (item[0], item[1].key) == (kind, key)
                and item[1].state is not None
                and not item[1].is_status
                and write.explains(item[1].state, trigger=trigger)
            ),
        )

    def deleted(self, kind: GVK, owner: ObjectRef, uid: str) -> bool:
        """Discard the notifications of an object that a run deleted; return True if its end was among them."""
        ends = self.discard(
            owner,
            lambda item: (
                (item[0], item[1].uid) == (kind, uid)
                and (item[1].is_status or item[1].state is None or item[1].state.deleting)
            ),
        )
        return any(notification.state is None for _, notification in ends)
