"""Changes of the dependents of one kind, and the owners to notify. Pure.

A `Ledger` compares the states of each object, and notifies the owners of these changes:

- a change of the spec, labels, annotations, finalizers or owners;
- a change of the status, as the owner's watch sets it (`StatusTrigger`);
- a deletion, and a new object with an old name.

The spec is compared by `metadata.generation`, or by content for kinds whose generation does not follow it. There is no
notification for a creation, a first event, a replay, or a change of `managedFields`. Writes and deletions by the
owner's own runs cause none either, in any order of the run's response and the watch event. An object that triggered
its owner is read at each later change, so that the notification names the fields.

With `auto`, a status has notifications of its own. The metadata is compared at once, and the status after a read that
may come later. A run's write does not explain a changed status: the run may have read the object before.

An object is read some time after the event that requested it. Another client may have restored the earlier content by
then. The versions of unread events are kept, so that an undone write is detected even if the run reports it later.

Assumes: versions of one object are compared for equality, never for order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from runner.core.dependents.notification import Notification, Observed, RunWrite, Seen, Source
from runner.core.kube.object_state import UNREAD, ObjectState, changed, difference, sentence, status_changed, writer
from runner.core.kube.watch_events import Relist
from runner.core.watches.policy import StatusTrigger
from runner.values.objects import GVK, ObjectKey, ObjectRef

_MOST_DELETED_OBJECTS = 256
_MOST_DELETIONS = 1024
_MOST_SUSPECTS = 256


@dataclass(frozen=True, slots=True)
class LedgerResult:
    """Result of an event: notifications, and objects to read before a decision."""

    notifications: tuple[Notification, ...] = ()
    read: tuple[ObjectKey, ...] = ()
    """Objects to read at once."""
    read_status: tuple[ObjectKey, ...] = ()
    """Objects whose status is to be read, which may wait."""


_NOTHING = LedgerResult()


class Ledger:
    """States of the dependents of one kind."""

    def __init__(
        self,
        gvk: GVK,
        trigger_of: Callable[[ObjectRef], StatusTrigger],
        follows: Callable[[GVK], bool] = lambda _: False,
        *,
        uses_generation: bool,
    ) -> None:
        """Create an empty ledger.

        `trigger_of` returns the changes of status that an owner is notified of. `follows` returns whether a kind of
        owners needs the latest status in any case. `uses_generation` is True if the kind's generation follows its spec.
        """
        self._follows = follows
        self._gvk = gvk
        self._trigger_of = trigger_of
        self._uses_generation = uses_generation
        self._entries: dict[ObjectKey, Observed] = {}
        self._relist = Relist()
        self._deleted_objects: OrderedDict[ObjectKey, ObjectState] = OrderedDict()
        self._deletions: OrderedDict[tuple[str, ObjectRef], None] = OrderedDict()
        self._suspects: OrderedDict[ObjectKey, None] = OrderedDict()
        self._by_owner: dict[ObjectRef, dict[ObjectKey, None]] | None = None
        """Index by owner, built on demand."""

    def suspect(self, key: ObjectKey) -> None:
        """Compare the fields of an object from now on, because it triggered its owner."""
        self._suspects[key] = self._suspects.pop(key, None)
        if len(self._suspects) > _MOST_SUSPECTS:
            self._suspects.popitem(last=False)

    def suspects(self, key: ObjectKey) -> bool:
        """Return True if the fields of an object are compared."""
        return key in self._suspects

    def __len__(self) -> int:
        return len(self._entries)

    def owned_by(self, target: ObjectRef) -> list[tuple[ObjectKey, ObjectState]]:
        """Return the dependents of an owner in their latest state, without those that its runs deleted."""
        if self._by_owner is None:
            self._by_owner = {}
            for key, entry in self._entries.items():
                self._index(key, entry)
        latest = ((key, self._entries[key].latest) for key in self._by_owner.get(target, ()) if key in self._entries)
        return [
            (key, state)
            for key, state in latest
            if state is not None and target in state.targets and (state.uid, target) not in self._deletions
        ]

    def _index(self, key: ObjectKey, entry: Observed) -> None:
        """Add an object to the index, if there is one. `owned_by` ignores it for its former owners."""
        if self._by_owner is None:
            return
        states = (entry.seen, *(item.state for item in entry.of(Source.WRITE)))
        for owner in (owner for state in states if state is not None for owner in state.targets):
            self._by_owner.setdefault(owner, {})[key] = None

    def _unindex(self, key: ObjectKey, owners: tuple[ObjectRef, ...]) -> None:
        for owner in owners:
            keys = (self._by_owner or {}).get(owner, {})
            keys.pop(key, None)
            if self._by_owner is not None and not keys:
                self._by_owner.pop(owner, None)

    def traits(self, state: ObjectState, target: ObjectRef) -> list[object] | None:
        """Return the parts of a state that are relevant for an owner, as JSON; None if a part is unknown."""
        return state.traits(trigger=self._trigger_of(target), uses_generation=self._uses_generation)

    def owners(self) -> set[GVK]:
        """Return the kinds of all owners."""
        states = (entry.last for entry in self._entries.values())
        return {target.gvk for state in states if state is not None for target in state.targets}

    def concerns(self, key: ObjectKey) -> bool:
        """Return True if the ledger has an entry or a deleted object with this key."""
        return key in self._entries or key in self._deleted_objects

    def version(self, key: ObjectKey) -> tuple[str, str] | None:
        """Return UID and resourceVersion of an object as last seen; None if it was not, or has no watched owner."""
        entry = self._entries.get(key)
        state = (entry.unread or entry.seen) if entry is not None else None
        return (state.uid, state.version) if state is not None and state.targets and state.version else None

    def requested(self, scope: str) -> None:
        """Note that a list of `scope` is requested next. The API server may answer before later writes."""
        self._relist.request(scope)

    def restarted(self, scope: str) -> None:
        """Start a list of `scope`."""
        self._relist.begin(scope, (key for key, entry in self._entries.items() if entry.scope == scope))

    def synced(self, scope: str) -> LedgerResult:
        """Complete the list: known objects that it lacks are gone; it contains all writes before its request."""
        now, missing = self._relist.round(scope), self._relist.end(scope)
        notifications: list[Notification] = []
        unconfirmed: list[ObjectKey] = []
        for key, entry in list(self._entries.items()):
            if entry.scope != scope:
                continue
            if key not in missing:
                contained = [item for item in entry.of(Source.WRITE) if item.number != now]
                if entry.unread is not None:
                    # Its content is compared when it is read: with the last write that the list contains.
                    states = (item.state for item in reversed(contained))
                    entry.seen = next((state for state in states if state is not None), entry.seen)
                entry.drop(contained)
            elif entry.seen is not None:
                notifications += self._gone(key, entry, entry.seen)
            else:
                # A write without an event: the object was deleted, or created during the list request.
                unconfirmed.append(key)
        return LedgerResult(tuple(notifications), tuple(unconfirmed))

    def applied(self, scope: str, key: ObjectKey, state: ObjectState) -> LedgerResult:
        """Process an event of an object; `state` has metadata only."""
        self._relist.saw(key)
        entry = self._entries.get(key)
        if entry is None:
            return self._appeared(scope, key, state)
        entry.scope = scope
        if entry.seen is not None and (entry.seen.uid, entry.seen.version) == (state.uid, state.version):
            return _NOTHING
        states = (item.state for item in entry.of(Source.WRITE) if item.version == state.version)
        written = next((after for after in states if after is not None and after.content is not None), None)
        if written is None and (self._must_read(state) or self._is_worth_reading(key, entry, state)):
            entry.add(Seen(state.version, Source.EVENT, state))
            return LedgerResult(read=(key,))
        entry.outdate()
        entry.drop(entry.of(Source.READ))  # its result may be older than this event
        notifications = self._update_entry(key, entry, written or state)
        return LedgerResult(notifications, read_status=(key,) if written is None and self._reads_status(state) else ())

    def reads(self, key: ObjectKey) -> None:
        """Note the start of a read. Its result is at least as new as the events so far."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.drop(entry.of(Source.READ))
            entry.add(Seen("", Source.READ, None))

    def read(self, key: ObjectKey, state: ObjectState) -> tuple[Notification, ...]:
        """Process the object that was read."""
        entry = self._entries.get(key)
        if entry is None:
            return ()
        started = entry.of(Source.READ)
        entry.outdate(entry.log.index(started[0]) if started else 0)
        entry.drop(started)
        if entry.seen is not None and (entry.seen.uid, entry.seen.version) == (state.uid, state.version):
            return self._complete(key, entry, entry.seen, state)
        if not started:
            return ()  # an event that came meanwhile may be newer
        overtaken = [
            item for item in entry.of(Source.WRITE) if item.version in entry.former and item.version != state.version
        ]
        entry.drop(overtaken[:-1])
        undone = [
            change for item in overtaken[-1:] if item.write for change in self._undone(key, entry, item.write, state)
        ]
        notifications = self._update_entry(key, entry, state)
        entry.drop(overtaken)
        targets = {notification.target for notification in notifications}
        return (*notifications, *(notification for notification in undone if notification.target not in targets))

    def unreadable(self, key: ObjectKey) -> tuple[Notification, ...]:
        """Use the metadata of an object that may not be read, if it is sufficient."""
        entry = self._entries.get(key)
        state = entry.unread if entry is not None else None
        if entry is None or state is None or self._must_read(state):
            return ()
        entry.outdate()
        return self._update_entry(key, entry, state)

    def absent(self, key: ObjectKey) -> tuple[Notification, ...]:
        """Process the absence of an object that was to be read. The watch reports the end of a seen one."""
        entry = self._entries.get(key)
        last = entry.last if entry is not None else None
        if entry is None or last is None or entry.seen is not None:
            return ()
        return self._gone(key, entry, last)

    def deleted(self, key: ObjectKey, state: ObjectState) -> tuple[Notification, ...]:
        """Process a deletion; `state` is the last state."""
        entry = self._entries.get(key)
        deleted_state = self._deleted_objects.get(key)
        if entry is None and (not state.targets or (deleted_state is not None and deleted_state.uid == state.uid)):
            return ()
        return self._gone(key, entry, state)

    def wrote(self, scope: str, key: ObjectKey, write: RunWrite) -> tuple[Notification, ...]:
        """Note a run's write."""
        self._deleted_objects.pop(key, None)
        self._relist.saw(key)
        entry = self._entries.setdefault(key, Observed(scope))
        if entry.seen is not None and entry.seen.version == write.version:
            return self._complete(key, entry, entry.seen, write.state) if write.state is not None else ()
        if entry.seen is not None and write.version in entry.former:
            return self._undone(key, entry, write, entry.seen)
        entry.add(Seen(write.version, Source.WRITE, write.state, write, self._relist.round(scope)))
        self._index(key, entry)
        return ()

    def deleted_by(self, target: ObjectRef, uid: str) -> None:
        """Note a run's deletion."""
        self._deletions[uid, target] = None
        while len(self._deletions) > _MOST_DELETIONS:
            self._deletions.popitem(last=False)

    def _must_read(self, state: ObjectState) -> bool:
        if state.generation is None or not self._uses_generation:
            return True
        return any(self._trigger_of(target) == "all" for target in state.targets)

    def _reads_status(self, state: ObjectState) -> bool:
        """Return True if an owner needs the status, which a state with metadata only does not have."""
        return not state.deleting and any(
            self._trigger_of(target) == "auto" or self._follows(target.gvk) for target in state.targets
        )

    def _is_worth_reading(self, key: ObjectKey, entry: Observed, state: ObjectState) -> bool:
        """Return True if a suspect has changed, so that its fields must be compared."""
        last = entry.last
        return key in self._suspects and last is not None and bool(difference(last, state, trigger="off"))

    def _appeared(self, scope: str, key: ObjectKey, state: ObjectState) -> LedgerResult:
        deleted_state = self._deleted_objects.pop(key, None)
        notifications: tuple[Notification, ...] = ()
        if deleted_state is not None and deleted_state.uid != state.uid:
            notifications = tuple(
                Notification(target, self._ref(key, state), "was recreated", state) for target in deleted_state.targets
            )
        if not state.targets:
            return LedgerResult(notifications)
        self._entries[key] = Observed(scope, state)
        self._index(key, self._entries[key])
        if self._must_read(state):
            return LedgerResult(notifications, read=(key,))
        return LedgerResult(notifications, read_status=(key,) if self._reads_status(state) else ())

    def _complete(
        self, key: ObjectKey, entry: Observed, seen: ObjectState, state: ObjectState
    ) -> tuple[Notification, ...]:
        """Add content and status to the seen state, of which the events showed only metadata."""
        entry.seen = state.following(seen)
        return self._status_notifications(key, entry, seen, entry.seen)

    def _update_entry(self, key: ObjectKey, entry: Observed, new: ObjectState) -> tuple[Notification, ...]:
        old = entry.last
        new = new.following(old)
        notifications = self._notifications(key, entry, old, new) if old is not None else ()
        notifications += self._status_notifications(key, entry, old, new) if old is not None else ()
        entry.seen = new
        if old is None or old.targets != new.targets:
            self._index(key, entry)
        writes = entry.of(Source.WRITE)
        at = next((number for number, item in enumerate(writes) if item.version == new.version), -1)
        entry.drop(writes[: at + 1])
        if not new.targets and not entry.of(Source.WRITE):
            self._unindex(key, _all_targets(old, new))
            del self._entries[key]
        return notifications

    def _notifications(
        self, key: ObjectKey, entry: Observed, old: ObjectState, new: ObjectState
    ) -> tuple[Notification, ...]:
        notifications = []
        for target in _all_targets(old, new):
            trigger = self._trigger_of(target)
            what = difference(old, new, trigger=trigger)
            if what and not self._is_explained(entry, target, new, trigger=trigger):
                fields = changed(old, new, trigger=trigger)
                by = writer(old, new)
                at = sentence(what, fields) + (f" (by {by})" if by else "")
                notifications.append(Notification(target, self._ref(key, new), at, new, fields, by))
        return tuple(notifications)

    def _status_notifications(
        self, key: ObjectKey, entry: Observed, old: ObjectState, new: ObjectState
    ) -> tuple[Notification, ...]:
        """Notify the owners with `auto` if a relevant part of the status changed."""
        if new.status is None or new.status is UNREAD:
            return ()
        is_first = old.version == new.version or any(item.version == new.version for item in entry.of(Source.WRITE))
        if old.status is None and is_first:
            return ()
        fields = status_changed(old, new)
        what, is_progress = sentence("changed: status", fields), new.status.is_progress(old.status)
        return tuple(
            Notification(target, self._ref(key, new), what, new, fields, is_status=True, is_progress=is_progress)
            for target in new.targets
            if fields and self._trigger_of(target) == "auto"
        )

    def _ref(self, key: ObjectKey, state: ObjectState) -> ObjectRef:
        return ObjectRef(self._gvk, key, state.uid)

    def _undone(self, key: ObjectKey, entry: Observed, write: RunWrite, now: ObjectState) -> tuple[Notification, ...]:
        """Notify the run's owner if another client has undone its write."""
        notifications = self._notifications(key, entry, write.state, now) if write.state is not None else ()
        return tuple(notification for notification in notifications if notification.target == write.target)

    def _is_explained(self, entry: Observed, target: ObjectRef, new: ObjectState, *, trigger: StatusTrigger) -> bool:
        if new.deleting and (new.uid, target) in self._deletions:
            return True
        writes = (item.write for item in entry.log)
        return any(write and write.target == target and write.explains(new, trigger=trigger) for write in writes)

    def _gone(self, key: ObjectKey, entry: Observed | None, last: ObjectState) -> tuple[Notification, ...]:
        old = entry.last if entry is not None else None
        if entry is not None:
            # An object that a run recreated meanwhile has another UID, and its event is still to come.
            entry.seen = None
            entry.log = tuple(item for item in entry.log if item.write is not None and item.write.uid != last.uid)
            if not entry.log:
                self._unindex(key, _all_targets(old, last))
                del self._entries[key]
        targets = _all_targets(old, last)
        if entry is None or not entry.log:
            self._deleted_objects[key] = ObjectState.of({"metadata": {"uid": last.uid}}, targets, whole=False)
            while len(self._deleted_objects) > _MOST_DELETED_OBJECTS:
                self._deleted_objects.popitem(last=False)
        deleters = [target for target in targets if (last.uid, target) in self._deletions]
        for target in deleters:
            del self._deletions[last.uid, target]
        source = self._ref(key, last)
        return tuple(Notification(target, source, "was deleted", None) for target in targets if target not in deleters)


def _all_targets(old: ObjectState | None, new: ObjectState) -> tuple[ObjectRef, ...]:
    return tuple(dict.fromkeys((*(old.targets if old else ()), *new.targets)))
