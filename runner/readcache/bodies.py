"""What the API server answered for owned objects, byte for byte, and which of it still holds. Pure.

Flow: calls of the proxy are known in `inflight` between their begin and their end; the watches of dependents tell a
`CacheEntries` per kind which version of each owned object came last; `find` says whether what is kept may be answered.

Promises: `find` returns an answer only when

- the call that brought it began after every call through the proxy that wrote the object, or showed it without being
  looked into, had been answered, and none such is on its way now;
- no call that was answered since has shown another version;
- the kind's watch has been open since then without a gap, and the last version that it told of the object is this one.

So an answer is never older than what went through the proxy before it; how soon it shows what others write depends on
the watch. Objects that nobody of ours owns leave nothing here. Content has a bound, beyond which the longest unused
goes; what is wanted again is asked for through `stale`.

Assumes: a plain GET is answered with the latest state ("Most Recent" in
https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions). Versions are compared for equality
only.
Must not import: the client, the proxy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from runner.kube.discovery import ApiResource
from runner.objects import Object, ObjectKey, ObjectRef
from runner.readcache.entries import FIRST_WAIT, CacheEntries, CacheEntry, ObjectVersion
from runner.readcache.inflight import CallScope, PendingCall, PendingCalls

MOST_BYTES = 64 << 20
"""What is kept in all."""
LARGEST = 1 << 20
"""Bytes of an object that is kept."""
_OVERHEAD = 1 << 10
"""Bytes that keeping an object takes beside its content, about."""
_LONGEST_WAIT = 256.0
"""Seconds; an object that changes for longer than that after a run has read it is left alone."""


@dataclass(frozen=True, slots=True)
class ObjectResponse:
    """An answer that holds an object."""

    path: str
    """Under which a plain GET finds it; names the version of the API."""
    content: bytes = field(repr=False)
    """As it was sent."""
    obj: Object = field(repr=False)
    """The same, parsed."""

    @property
    def version(self) -> ObjectVersion | None:
        """The object's."""
        return ObjectVersion.of(self.obj)


class ReadCache:
    """All that is kept, of all kinds."""

    def __init__(self, most_bytes: int, stale: Callable[[CacheEntries, ObjectKey, float], None]) -> None:
        """`stale` is told which objects should be read again, and in how many seconds at the earliest."""
        self.size = 0
        """Bytes of what is kept."""
        self._most_bytes = most_bytes
        self._stale = stale
        self._shelves: dict[tuple[str, str], CacheEntries] = {}
        self._paths: OrderedDict[str, tuple[CacheEntries, ObjectKey]] = OrderedDict()
        """Where content is; the longest unused first."""
        self._calls = PendingCalls()
        self._owned: dict[ObjectRef, set[tuple[CacheEntries, ObjectKey]]] = {}

    # Kinds.

    def follow(
        self,
        resource: ApiResource,
        stretch: Callable[[str], int | None],
        owners: Callable[[Object], tuple[ObjectRef, ...]],
    ) -> CacheEntries:
        """Keep objects of a kind from now on; what was kept of it goes.

        `stretch` gives the number of the present stretch without a gap of the watch that sees a namespace, None while
        it has none; `owners` finds those of ours that own an object.
        """
        self.unfollow(resource)
        shelf = self._shelves[resource.gvk.group, resource.plural] = CacheEntries(
            resource, stretch, owners, self.consider, self.drop
        )
        return shelf

    def unfollow(self, resource: ApiResource) -> None:
        """Keep nothing of a kind any more."""
        shelf = self._shelves.pop((resource.gvk.group, resource.plural), None)
        if shelf is not None:
            for key in list(shelf.kept):
                self.drop(shelf, key)

    def shelf(self, group: str, plural: str) -> CacheEntries | None:
        """Return the kind's, None where nothing of it is kept."""
        return self._shelves.get((group, plural))

    def forget(self, owner: ObjectRef) -> None:
        """Drop what is kept for an owner that is gone."""
        for shelf, key in list(self._owned.get(owner, ())):
            self.drop(shelf, key)

    # Calls.

    def find(self, path: str) -> bytes | None:
        """Return the answer to a plain GET of `path`, if it is sure to hold."""
        shelf, key = self._paths.get(path, (None, None))
        if shelf is None or key is None:
            return None
        kept = shelf.kept[key]
        if not shelf.is_fresh(key, kept) or self._calls.is_held(shelf.place(key)):
            return None
        self._paths.move_to_end(path)
        kept.wait = FIRST_WAIT
        return kept.contents[path]

    def begin(self, place: CallScope) -> PendingCall:
        """A call begins. Each one ends by exactly one of the four that follow."""
        return self._calls.begin(place, self._basis(place))

    def hold(self, attempt: PendingCall) -> None:
        """Nothing of its place is answered from here until it ends: it may write, or show states as they come."""
        self._calls.hold(attempt)

    def taught_nothing(self, attempt: PendingCall) -> None:
        """A call is over that wrote and showed nothing."""
        self._calls.end(attempt)

    def passed(self, attempt: PendingCall, place: CallScope | None = None) -> None:
        """A call is over that may have written, or shown, what is not known here; of `place`, or where it began."""
        self._calls.end(attempt)
        self._doubt(place or attempt.place)

    def showed(self, attempt: PendingCall, answer: ObjectResponse, *, wanted: bool) -> bool:
        """A read is over, its answer not sent on yet. Returns whether one of ours owns the object.

        `wanted`: the run may be answered from here the next time.
        """
        is_sound = self._compare(attempt, answer)
        shelf = self._shelves.get(attempt.place[:2])
        if shelf is None:
            return False
        if wanted:
            self._want(shelf, attempt.place.key, answer)
            self._take(shelf, attempt.place.key, answer, is_sound=is_sound)
        return bool(shelf.owners_of(answer.obj))

    def read_again(self, attempt: PendingCall, answer: ObjectResponse) -> None:
        """A read is over that `stale` has asked for."""
        is_sound = self._compare(attempt, answer)
        shelf = self._shelves.get(attempt.place[:2])
        if shelf is not None:
            self._take(shelf, attempt.place.key, answer, is_sound=is_sound)

    def wrote(self, attempt: PendingCall, place: CallScope, answer: ObjectResponse, *, wanted: bool) -> None:
        """A write of `place` is over, and its answer, not sent on yet, is the object as a plain GET has it."""
        self._calls.end(attempt)
        is_sound = self._is_sound(attempt, place)
        self._doubt(place)
        shelf = self._shelves.get(place[:2])
        if shelf is not None and wanted:
            self._want(shelf, place.key, answer)
            self._take(shelf, place.key, answer, is_sound=is_sound)

    # Reading again.

    def consider(self, shelf: CacheEntries, key: ObjectKey) -> None:
        """Ask for an object to be read again, if that is due: it is wanted, and what is kept does not hold."""
        kept = shelf.kept.get(key)
        if kept is None or kept.is_due or key not in shelf.seen or not self._lacking(shelf, key, kept):
            return
        if kept.wait <= _LONGEST_WAIT:
            kept.is_due = True
            self._stale(shelf, key, kept.wait)
            kept.wait *= 2

    def due(self, shelf: CacheEntries, key: ObjectKey) -> tuple[str, ...]:
        """The time that `stale` was told of has come; returns the paths to read, if that is still of use."""
        kept = shelf.kept.get(key)
        if kept is None:
            return ()
        kept.is_due = False
        if shelf.mark(key.namespace) is None:
            # Nothing would hold now; perhaps later.
            self.consider(shelf, key)
            return ()
        return self._lacking(shelf, key, kept)

    def drop(self, shelf: CacheEntries, key: ObjectKey) -> None:
        """Keep nothing of an object."""
        kept = shelf.kept.pop(key, None)
        if kept is not None:
            self._empty(kept)
            self._disown(shelf, key, kept)

    # Within.

    def _keep(self, shelf: CacheEntries, key: ObjectKey, owners: tuple[ObjectRef, ...]) -> CacheEntry:
        """Return what is kept of an object, perhaps nothing yet."""
        given_up = shelf.expect(key)
        if given_up is not None:
            self.drop(shelf, given_up)
        kept = shelf.kept.setdefault(key, CacheEntry(()))
        if kept.owners != owners:
            self._disown(shelf, key, kept)
            kept.owners = owners
            for owner in owners:
                self._owned.setdefault(owner, set()).add((shelf, key))
        return kept

    def _disown(self, shelf: CacheEntries, key: ObjectKey, kept: CacheEntry) -> None:
        for owner in kept.owners:
            of_owner = self._owned.get(owner, set())
            of_owner.discard((shelf, key))
            if not of_owner:
                self._owned.pop(owner, None)

    def _want(self, shelf: CacheEntries, key: ObjectKey, answer: ObjectResponse) -> None:
        """A run reads or writes an owned object, and may do so again: it is worth another read when it changes."""
        owners = shelf.owners_of(answer.obj)
        if owners and answer.version is not None and len(answer.content) <= LARGEST:
            kept = self._keep(shelf, key, owners)
            kept.wanted[answer.path] = None
            kept.wait = FIRST_WAIT

    def _take(self, shelf: CacheEntries, key: ObjectKey, answer: ObjectResponse, *, is_sound: bool) -> None:
        """Keep an answer, if it is an owned object's that is wanted, and not one of an old state."""
        kept = shelf.kept.get(key)
        owners = shelf.owners_of(answer.obj)
        if not owners or answer.version is None or len(answer.content) > LARGEST:
            self.drop(shelf, key)
        elif kept is not None and is_sound:
            self._store(shelf, key, kept, answer)
        self.consider(shelf, key)

    def _store(self, shelf: CacheEntries, key: ObjectKey, kept: CacheEntry, answer: ObjectResponse) -> None:
        if kept.version != answer.version:
            self._empty(kept)
        # Contents under other paths are of the same version, hence as sure as this one.
        kept.version, kept.mark = answer.version, shelf.mark(key.namespace)
        self._remove(kept, answer.path)
        kept.contents[answer.path] = answer.content
        self._paths[answer.path] = (shelf, key)
        self.size += len(answer.content) + _OVERHEAD
        while self.size > self._most_bytes:
            self._give_up(next(iter(self._paths)))

    def _give_up(self, path: str) -> None:
        """Drop the content under a path; it is not wanted enough to be read again."""
        shelf, key = self._paths[path]
        kept = shelf.kept[key]
        self._remove(kept, path)
        kept.wanted.pop(path, None)
        if not kept.wanted:
            self.drop(shelf, key)

    def _empty(self, kept: CacheEntry) -> None:
        for path in list(kept.contents):
            self._remove(kept, path)
        kept.version = kept.mark = None

    def _remove(self, kept: CacheEntry, path: str) -> None:
        if self._paths.pop(path, None) is not None:
            self.size -= len(kept.contents.pop(path)) + _OVERHEAD

    def _lacking(self, shelf: CacheEntries, key: ObjectKey, kept: CacheEntry) -> tuple[str, ...]:
        """The paths that are wanted and whose content does not hold."""
        is_fresh = shelf.is_fresh(key, kept)
        return tuple(path for path in kept.wanted if not is_fresh or path not in kept.contents)

    def _compare(self, attempt: PendingCall, answer: ObjectResponse) -> bool:
        """End a read; return whether its answer can be kept. What is kept and another version goes in any case."""
        place = attempt.place
        self._calls.end(attempt)
        is_sound = self._is_sound(attempt, place)
        self._calls.spoil(place)
        shelf = self._shelves.get(place[:2])
        kept = shelf.kept.get(place.key) if shelf is not None else None
        if kept is not None and kept.version != answer.version:
            self._empty(kept)
        return is_sound

    def _basis(self, place: CallScope) -> object:
        """What proves that an answer still holds: it is the same when that comes as when it was asked for."""
        shelf = self._shelves.get(place[:2])
        mark = shelf.mark(place.namespace) if shelf is not None else None
        return None if mark is None else (shelf, mark)

    def _is_sound(self, attempt: PendingCall, place: CallScope) -> bool:
        """Whether nothing has happened since a call began after which its answer may be an old one."""
        if attempt.is_spoiled or attempt.basis is None or self._calls.is_held(place):
            return False
        return attempt.basis == self._basis(place)

    def _doubt(self, place: CallScope) -> None:
        """What is kept of a place may be an old state now."""
        shelf = self._shelves.get(place[:2])
        if not place.name:
            if shelf is not None:
                shelf.age(place.namespace)
            return
        self._calls.spoil(place)
        kept = shelf.kept.get(place.key) if shelf is not None else None
        if shelf is not None and kept is not None:
            self._empty(kept)
            self.consider(shelf, place.key)
