"""Changes that an owner is notified of, writes of its runs, and observations of a dependent. Pure.

Versions of an object are compared for equality only, so the order of the observations is that of their arrival.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum

from runner.core.kube.object_state import ObjectState, difference
from runner.core.queue import reasons
from runner.core.queue.reasons import DEPENDENT_STATUS_HANDICAP, Cause, RunReason
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


_MOST_DEFERRED = 256
"""Notifications of one object that wait for the end of a run."""


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
        if item.state is not None:  # without its largest part, which is compared already
            item = replace(item, state=replace(item.state, fields=None, status_fields=None))
        items = self._items.setdefault(owner, [])
        alike = [other for other in items if other.source == item.source]
        if len(alike) >= _MOST_DEFERRED:  # a client changes the object again and again, and the latest state counts
            items.remove(alike[-1])
        items.append(item)
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


_MOST = 16
"""Writes of an object, and other observations of it, that are kept."""


class Source(Enum):
    """Source of an observation."""

    EVENT = "event"
    """Event of the watch whose content was not read yet. Its state is metadata only."""
    FORMER = "former event"
    """Event that is older than the known state. Its writer is unknown."""
    READ = "read"
    """Start of the read in progress, unless an event was newer. Its result is not older than the events before it."""
    WRITE = "write"
    """Write of a run whose event has not come yet. It has no state if the response contains only the version."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One observation."""

    version: str
    source: Source
    state: ObjectState | None
    write: RunWrite | None = None
    number: int = 0
    """Of a write: number of the list that was requested last."""


@dataclass(slots=True)
class Observed:
    """State of one object, and its observations."""

    scope: str
    seen: ObjectState | None = None
    """State that the owners know, of an event or a read."""
    log: tuple[Seen, ...] = ()
    """Former events, and the observations that the state does not explain yet, the oldest first."""

    def of(self, source: Source) -> list[Seen]:
        """Return the observations from a source."""
        return [item for item in self.log if item.source is source]

    @property
    def unread(self) -> ObjectState | None:
        """Metadata of the last event whose content was not read yet."""
        return next((item.state for item in reversed(self.of(Source.EVENT))), None)

    @property
    def former(self) -> set[str]:
        """Versions of the former events."""
        return {item.version for item in self.of(Source.FORMER)}

    @property
    def latest(self) -> ObjectState | None:
        """Latest written state, or else the known one."""
        return next((item.state for item in reversed(self.of(Source.WRITE)) if item.state is not None), self.seen)

    @property
    def last(self) -> ObjectState | None:
        """Known state, or else the latest written one."""
        return self.seen if self.seen is not None else self.latest

    def add(self, item: Seen) -> None:
        """Append an observation. The oldest one is dropped if there are too many of its kind."""
        self.log = (*self.log, item)
        alike = [other for other in self.log if (other.write is None) is (item.write is None)]
        self.drop(alike[:-_MOST])

    def drop(self, items: Collection[Seen]) -> None:
        """Remove observations."""
        self.log = tuple(item for item in self.log if item not in items)

    def outdate(self, end: int | None = None) -> None:
        """Note that the known state is newer than the events before this place of the log."""
        self.log = tuple(
            Seen(item.version, Source.FORMER, None)
            if item.source is Source.EVENT and (end is None or number < end)
            else item
            for number, item in enumerate(self.log)
        )
