"""What happened to the dependents of one kind, and which owners should look at it. Pure.

A `Ledger` compares states as they come by and says what is news for whom. News is a change of the spec (by
`metadata.generation`, or by the content of kinds where the generation says nothing), of labels, annotations, finalizers
or owners, a deletion, and a new object under an old name. No news: creation alone, a first sight, a repetition, status
and `managedFields`, and what the owner's own runs wrote or deleted, whether their answer or the watch's event is told
first. What has woken its owner is looked at closely from then on: its fields are read, so that news names them.

An object is read some time after the event that made it worth reading, and may have been put back meanwhile to what
it was: versions whose events came by unread are remembered, so that a write is known to be undone whenever it is told.

Assumes: versions of one object are compared for equality, never for order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from runner.kube.object_state import ObjectState, changed, difference, sentence
from runner.kube.relist import Relist
from runner.objects import GVK, ObjectKey, ObjectRef

_MOST_WRITES = 16
_MOST_TOMBS = 256
_MOST_DELETIONS = 1024
_MOST_SUSPECTS = 256


@dataclass(frozen=True, slots=True)
class Notification:
    """Something that an owner should look at."""

    target: ObjectRef
    key: ObjectKey
    uid: str
    what: str
    """What happened, for the log: `spec changed`, `was deleted`."""
    state: ObjectState | None
    """How the object is now; None when it is gone."""
    fields: tuple[str, ...] = ()
    """The fields that changed, as `spec.replicas`; as `spec` where no more is known; none for what is no change."""


@dataclass(frozen=True, slots=True)
class RunWrite:
    """What a run wrote. `state` is None where the answer told no more than the version."""

    target: ObjectRef
    uid: str
    version: str
    state: ObjectState | None

    def explains(self, seen: ObjectState, *, with_status: bool) -> bool:
        """Whether what was seen is what was written, or nothing that matters has changed since."""
        if self.version == seen.version:
            return True
        return self.state is not None and not difference(self.state, seen, with_status=with_status)


@dataclass(frozen=True, slots=True)
class LedgerResult:
    """What an event means: news, and which objects have to be read to know more."""

    news: tuple[Notification, ...] = ()
    read: tuple[ObjectKey, ...] = ()


_NOTHING = LedgerResult()


@dataclass(slots=True)
class _Entry:
    scope: str
    seen: ObjectState | None = None
    writes: list[tuple[int, RunWrite]] = field(default_factory=list)
    """With the round in which they were told; only those whose event has not come by yet."""
    unread: ObjectState | None = None
    """What is known of it by its metadata, while its fields are read."""
    passed: tuple[str, ...] = ()
    """Versions whose events came by since the last read began; nobody knew whose they were."""
    reading: tuple[str, ...] = ()
    """Those that came before the read that goes on began."""
    former: tuple[str, ...] = ()
    """Those that are known to be older than what was seen."""

    def last(self) -> ObjectState | None:
        """The latest state that is known."""
        if self.seen is not None:
            return self.seen
        return next((write.state for _, write in reversed(self.writes) if write.state is not None), None)

    def latest(self) -> ObjectState | None:
        """The state that was written last, though its event has not come by; else what was seen."""
        return next((write.state for _, write in reversed(self.writes) if write.state is not None), self.seen)

    def known(self) -> list[ObjectState]:
        """Every state that is remembered."""
        return [state for state in (self.seen, *(write.state for _, write in self.writes)) if state is not None]


class Ledger:
    """Remembers the dependents of one kind."""

    def __init__(self, with_status: Callable[[ObjectRef], bool], *, generation_tells: bool) -> None:
        """Make an empty one.

        `with_status` says whether an owner wants to hear of status; `generation_tells`: the kind's generation moves
        with its spec and only then.
        """
        self._with_status = with_status
        self._generation_tells = generation_tells
        self._entries: dict[ObjectKey, _Entry] = {}
        self._relist = Relist()
        self._tombs: OrderedDict[ObjectKey, ObjectState] = OrderedDict()
        self._deletions: OrderedDict[tuple[str, ObjectRef], None] = OrderedDict()
        self._suspects: OrderedDict[ObjectKey, None] = OrderedDict()
        self._by_owner: dict[ObjectRef, list[ObjectKey]] | None = None
        """Made when it is asked for, gone when an entry comes, goes, or changes owners."""

    def suspect(self, key: ObjectKey) -> None:
        """Look closely at an object from now on, which has woken its owner."""
        self._suspects[key] = self._suspects.pop(key, None)
        if len(self._suspects) > _MOST_SUSPECTS:
            self._suspects.popitem(last=False)

    def suspects(self, key: ObjectKey) -> bool:
        """Whether the fields of an object matter."""
        return key in self._suspects

    def __len__(self) -> int:
        return len(self._entries)

    def owned_by(self, target: ObjectRef) -> list[tuple[ObjectKey, ObjectState]]:
        """What an owner has, as it was last written or seen; what its runs have deleted is left out."""
        if self._by_owner is None:
            self._by_owner = {}
            for key, entry in self._entries.items():
                for owner in dict.fromkeys(each for state in entry.known() for each in state.targets):
                    self._by_owner.setdefault(owner, []).append(key)
        latest = ((key, self._entries[key].latest()) for key in self._by_owner.get(target, ()))
        return [
            (key, state)
            for key, state in latest
            if state is not None and target in state.targets and (state.uid, target) not in self._deletions
        ]

    def traits(self, state: ObjectState, target: ObjectRef) -> list[object] | None:
        """What matters of an object to one of its owners, as JSON; None where something of that is not known."""
        return state.traits(with_status=self._with_status(target), generation_tells=self._generation_tells)

    def owners(self) -> set[GVK]:
        """The kinds of all owners of what is remembered."""
        states = (entry.last() for entry in self._entries.values())
        return {target.gvk for state in states if state is not None for target in state.targets}

    def concerns(self, key: ObjectKey) -> bool:
        """Whether anything is remembered under this key."""
        return key in self._entries or key in self._tombs

    def is_synced(self, scope: str) -> bool:
        """True if a list of `scope` was ever complete."""
        return self._relist.is_synced(scope)

    def restarted(self, scope: str) -> None:
        """A list of `scope` begins."""
        self._relist.begin(scope, (key for key, entry in self._entries.items() if entry.scope == scope))

    def synced(self, scope: str) -> LedgerResult:
        """The list is complete: what it did not hold is gone, and writes that were told before it are in it."""
        now, missing = self._relist.round(scope), self._relist.end(scope)
        news: list[Notification] = []
        doubtful: list[ObjectKey] = []
        for key, entry in list(self._entries.items()):
            if entry.scope != scope:
                continue
            if key not in missing:
                entry.writes = [(told, write) for told, write in entry.writes if told == now]
            elif entry.seen is not None:
                news += self._gone(key, entry, entry.seen)
            else:
                # Written, but never seen: gone, or made while the list was on its way.
                doubtful.append(key)
        return LedgerResult(tuple(news), tuple(doubtful))

    def applied(self, scope: str, key: ObjectKey, state: ObjectState) -> LedgerResult:
        """An object exists and looks like this; `state` is of its metadata alone."""
        self._relist.saw(key)
        entry = self._entries.get(key)
        if entry is None:
            return self._appeared(scope, key, state)
        entry.scope = scope
        if entry.seen is not None and (entry.seen.uid, entry.seen.version) == (state.uid, state.version):
            return _NOTHING
        written = next((w.state for _, w in entry.writes if w.version == state.version and w.state is not None), None)
        if written is None and (self._must_read(state) or self._is_worth_reading(key, entry, state)):
            entry.unread = state
            entry.passed = (*entry.passed, state.version)[-_MOST_WRITES:]
            return LedgerResult(read=(key,))
        return LedgerResult(self._judge(key, entry, written or state))

    def reads(self, key: ObjectKey) -> None:
        """A read begins; what it brings is no older than the events that came by so far."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.reading, entry.passed = (*entry.reading, *entry.passed)[-_MOST_WRITES:], ()

    def read(self, key: ObjectKey, state: ObjectState) -> tuple[Notification, ...]:
        """The content that was asked for."""
        entry = self._entries.get(key)
        if entry is None:
            return ()
        entry.unread = None
        entry.former, entry.reading = (*entry.former, *entry.reading)[-_MOST_WRITES:], ()
        if entry.seen is not None and (entry.seen.uid, entry.seen.version) == (state.uid, state.version):
            entry.seen = state
            return ()
        overtaken = [w for _, w in entry.writes if w.version in entry.former and w.version != state.version]
        entry.writes = [(told, write) for told, write in entry.writes if write not in overtaken[:-1]]
        undone = [news for write in overtaken[-1:] for news in self._undone(key, entry, write, state)]
        news = self._judge(key, entry, state)
        entry.writes = [(told, write) for told, write in entry.writes if write not in overtaken]
        return (*news, *(each for each in undone if each.target not in {other.target for other in news}))

    def unreadable(self, key: ObjectKey) -> tuple[Notification, ...]:
        """What was to be read may not be: its metadata has to do, where that tells anything."""
        entry = self._entries.get(key)
        state = entry.unread if entry is not None else None
        if entry is None or state is None or self._must_read(state):
            return ()
        entry.unread = None
        return self._judge(key, entry, state)

    def absent(self, key: ObjectKey) -> tuple[Notification, ...]:
        """An object that was to be read is not there. Of one that was seen the watch tells the end."""
        entry = self._entries.get(key)
        last = entry.last() if entry is not None else None
        if entry is None or last is None or entry.seen is not None:
            return ()
        return self._gone(key, entry, last)

    def deleted(self, key: ObjectKey, state: ObjectState) -> tuple[Notification, ...]:
        """An object is gone; `state` is how it looked last."""
        entry = self._entries.get(key)
        tomb = self._tombs.get(key)
        if entry is None and (not state.targets or (tomb is not None and tomb.uid == state.uid)):
            return ()
        return self._gone(key, entry, state)

    def wrote(self, scope: str, key: ObjectKey, write: RunWrite) -> tuple[Notification, ...]:
        """A run wrote an object."""
        self._tombs.pop(key, None)
        self._by_owner = None
        self._relist.saw(key)
        entry = self._entries.setdefault(key, _Entry(scope))
        if entry.seen is not None and entry.seen.version == write.version:
            entry.seen = write.state or entry.seen
            return ()
        if entry.seen is not None and write.version in entry.former:
            return self._undone(key, entry, write, entry.seen)
        entry.writes = [*entry.writes[1 - _MOST_WRITES :], (self._relist.round(scope), write)]
        return ()

    def deleted_by(self, target: ObjectRef, uid: str) -> None:
        """A run deleted an object."""
        self._deletions[uid, target] = None
        while len(self._deletions) > _MOST_DELETIONS:
            self._deletions.popitem(last=False)

    def _must_read(self, state: ObjectState) -> bool:
        if state.generation is None or not self._generation_tells:
            return True
        return any(map(self._with_status, state.targets))

    def _is_worth_reading(self, key: ObjectKey, entry: _Entry, state: ObjectState) -> bool:
        """Whether a suspect has changed, so that it is of use to know which of its fields did."""
        last = entry.last()
        return key in self._suspects and last is not None and bool(difference(last, state, with_status=False))

    def _appeared(self, scope: str, key: ObjectKey, state: ObjectState) -> LedgerResult:
        tomb = self._tombs.pop(key, None)
        news: tuple[Notification, ...] = ()
        if tomb is not None and tomb.uid != state.uid:
            news = tuple(Notification(target, key, state.uid, "was recreated", state) for target in tomb.targets)
        if not state.targets:
            return LedgerResult(news)
        self._by_owner = None
        self._entries[key] = _Entry(scope, state)
        return LedgerResult(news, (key,) if self._must_read(state) else ())

    def _judge(self, key: ObjectKey, entry: _Entry, new: ObjectState) -> tuple[Notification, ...]:
        old = entry.last()
        news = self._news(key, entry, old, new) if old is not None else ()
        if old is None or old.targets != new.targets:
            self._by_owner = None
        entry.seen = new
        told = next((n for n, (_, write) in enumerate(entry.writes) if write.version == new.version), -1)
        del entry.writes[: told + 1]
        if not new.targets and not entry.writes:
            self._by_owner = None
            del self._entries[key]
        return news

    def _news(self, key: ObjectKey, entry: _Entry, old: ObjectState, new: ObjectState) -> tuple[Notification, ...]:
        news = []
        for target in _together(old, new):
            with_status = self._with_status(target)
            what = difference(old, new, with_status=with_status)
            if what and not self._is_explained(entry, target, new, with_status=with_status):
                fields = changed(old, new, with_status=with_status)
                by = f" (by {new.by})" if new.by else ""
                news.append(Notification(target, key, new.uid, sentence(what, fields) + by, new, fields))
        return tuple(news)

    def _undone(self, key: ObjectKey, entry: _Entry, write: RunWrite, now: ObjectState) -> tuple[Notification, ...]:
        """What a run's write has become since, for the run's owner; others compare with what they knew before."""
        news = self._news(key, entry, write.state, now) if write.state is not None else ()
        return tuple(each for each in news if each.target == write.target)

    def _is_explained(self, entry: _Entry, target: ObjectRef, new: ObjectState, *, with_status: bool) -> bool:
        if new.deleting and (new.uid, target) in self._deletions:
            return True
        return any(w.target == target and w.explains(new, with_status=with_status) for _, w in entry.writes)

    def _gone(self, key: ObjectKey, entry: _Entry | None, last: ObjectState) -> tuple[Notification, ...]:
        old = entry.last() if entry is not None else None
        self._by_owner = None
        if entry is not None:
            # What a run made anew meanwhile is another object, whose event is still to come.
            entry.seen = None
            entry.writes = [(told, write) for told, write in entry.writes if write.uid != last.uid]
            if not entry.writes:
                del self._entries[key]
        targets = _together(old, last)
        if entry is None or not entry.writes:
            self._tombs[key] = ObjectState.of({"metadata": {"uid": last.uid}}, targets, whole=False)
            while len(self._tombs) > _MOST_TOMBS:
                self._tombs.popitem(last=False)
        mine = [target for target in targets if (last.uid, target) in self._deletions]
        for target in mine:
            del self._deletions[last.uid, target]
        return tuple(
            Notification(target, key, last.uid, "was deleted", None) for target in targets if target not in mine
        )


def _together(old: ObjectState | None, new: ObjectState) -> tuple[ObjectRef, ...]:
    return tuple(dict.fromkeys((*(old.targets if old else ()), *new.targets)))
