"""Responses of the API server for owned objects, byte for byte, and the decision whether each is up to date. Pure.

Flow: each call of the proxy is registered in `inflight` from its start to its end. The watch of a kind of dependents
has the latest version of each owned object. `find` decides whether a cached response may be sent.

Promises: `find` returns a response only if

- the call that fetched it began after the end of every call through the proxy that wrote or streamed the object;
- no such call is in progress;
- no later call has shown another version;
- the kind's watch has been open without a gap since then, and the last version that it reported of the object is this
  one.

So a response is never older than one that the proxy sent before. The lag behind writes of other clients depends on the
watch. Objects without an owner in a watched kind are not cached. The cache has a size limit and evicts the least
recently used content. `stale` requests a refetch.

Assumes: a plain GET returns the latest state ("Most Recent" in
https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions). Versions are compared for equality
only. Must not import: the client, the proxy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from runner.core.kube.discovery import ApiResource
from runner.features.readcache.entries import FIRST_WAIT, CacheEntries, CacheEntry, ObjectVersion, WatchedKind
from runner.features.readcache.inflight import CallScope, PendingCall, PendingCalls
from runner.values.objects import Object, ObjectKey, ObjectRef

MOST_BYTES = 64 << 20
"""Maximum size of the cache in bytes."""
LARGEST = 1 << 20
"""Maximum size of a cached object in bytes."""
_OVERHEAD = 1 << 10
"""Approximate bytes per cached object beside its content."""
_LONGEST_WAIT = 256.0
"""Seconds. An object that changes for longer after a run has read it is not refetched."""


@dataclass(frozen=True, slots=True)
class ObjectResponse:
    """A response that contains an object."""

    path: str
    """Path of a plain GET for it, which contains the API version."""
    content: bytes = field(repr=False)
    """The response body as it was sent."""
    obj: Object = field(repr=False)
    """The parsed body."""

    @property
    def version(self) -> ObjectVersion | None:
        """The object's version; None if the API gives it none."""
        return ObjectVersion.of(self.obj)


class ReadCache:
    """Cached objects of all kinds."""

    def __init__(self, most_bytes: int, stale: Callable[[CacheEntries, ObjectKey, float], None]) -> None:
        """`stale` is called with the objects that should be refetched, and the minimum delay in seconds."""
        self.size = 0
        """Size of the cache in bytes."""
        self._most_bytes = most_bytes
        self._stale = stale
        self._kinds: dict[tuple[str, str], CacheEntries] = {}
        self._paths: OrderedDict[str, tuple[CacheEntries, ObjectKey]] = OrderedDict()
        """Entries with content by path; the least recently used first."""
        self._calls = PendingCalls()
        self._owned: dict[ObjectRef, set[tuple[CacheEntries, ObjectKey]]] = {}

    # Kinds.

    def follow(self, kind: WatchedKind) -> CacheEntries:
        """Cache objects of a kind from now on; drop the earlier entries of the kind."""
        self.unfollow(kind.resource)
        entries = CacheEntries(kind, self.consider, self.drop)
        self._kinds[kind.resource.gvk.group, kind.resource.plural] = entries
        return entries

    def unfollow(self, resource: ApiResource) -> None:
        """Drop a kind and its entries."""
        entries = self._kinds.pop((resource.gvk.group, resource.plural), None)
        if entries is not None:
            for key in list(entries.kept):
                self.drop(entries, key)

    def entries(self, group: str, plural: str) -> CacheEntries | None:
        """Return the entries of a kind; None if the kind is not cached."""
        return self._kinds.get((group, plural))

    def forget(self, owner: ObjectRef) -> None:
        """Drop the entries of an owner that was deleted."""
        for entries, key in list(self._owned.get(owner, ())):
            self.drop(entries, key)

    # Calls.

    def find(self, path: str) -> bytes | None:
        """Return the response to a plain GET of `path` if it is up to date."""
        entries, key = self._paths.get(path, (None, None))
        if entries is None or key is None:
            return None
        entry = entries.kept[key]
        if not entries.is_fresh(key, entry) or self._calls.is_held(entries.place(key)):
            return None
        self._paths.move_to_end(path)
        entry.wait = FIRST_WAIT
        return entry.contents[path]

    def begin(self, place: CallScope) -> PendingCall:
        """Register the start of a call. Each call ends with exactly one of the methods below."""
        return self._calls.begin(place, self._basis(place))

    def hold(self, attempt: PendingCall) -> None:
        """Serve nothing in the call's scope from the cache until it ends, because it may write or stream states."""
        self._calls.hold(attempt)

    def ended_unobserved(self, attempt: PendingCall) -> None:
        """End a call that neither wrote nor showed an object."""
        self._calls.end(attempt)

    def passed(self, attempt: PendingCall, place: CallScope | None = None) -> None:
        """End a call that may have written or shown unknown states of `place`, by default of its own scope."""
        self._calls.end(attempt)
        self._invalidate(place or attempt.place)

    def showed(self, attempt: PendingCall, answer: ObjectResponse, *, wanted: bool) -> bool:
        """End a read before its response is sent on. Return True if the object has a watched owner.

        `wanted` is True if later reads of the run may be served from the cache.
        """
        is_sound = self._compare(attempt, answer)
        entries = self._kinds.get(attempt.place[:2])
        if entries is None:
            return False
        if wanted:
            self._request_refetch(entries, attempt.place.key, answer)
            self._take(entries, attempt.place.key, answer, is_sound=is_sound)
        return bool(entries.owners_of(answer.obj))

    def read_again(self, attempt: PendingCall, answer: ObjectResponse) -> None:
        """End a refetch that `stale` requested."""
        is_sound = self._compare(attempt, answer)
        entries = self._kinds.get(attempt.place[:2])
        if entries is not None:
            self._take(entries, attempt.place.key, answer, is_sound=is_sound)

    def wrote(self, attempt: PendingCall, place: CallScope, answer: ObjectResponse, *, wanted: bool) -> None:
        """End a write of `place` before its response is sent on; the response is the object as a GET returns it."""
        self._calls.end(attempt)
        is_sound = self._is_sound(attempt, place)
        self._invalidate(place)
        entries = self._kinds.get(place[:2])
        if entries is not None and wanted:
            self._request_refetch(entries, place.key, answer)
            self._take(entries, place.key, answer, is_sound=is_sound)

    # Reading again.

    def consider(self, entries: CacheEntries, key: ObjectKey) -> None:
        """Request a refetch if the entry is in use and stale."""
        entry = entries.kept.get(key)
        if entry is None or entry.is_due or not entries.is_seen(key) or not self._lacking(entries, key, entry):
            return
        if entry.wait <= _LONGEST_WAIT:
            entry.is_due = True
            self._stale(entries, key, entry.wait)
            entry.wait *= 2

    def due(self, entries: CacheEntries, key: ObjectKey) -> tuple[str, ...]:
        """Return the paths to refetch when the delay passed to `stale` has elapsed."""
        entry = entries.kept.get(key)
        if entry is None:
            return ()
        entry.is_due = False
        if entries.mark(key.namespace) is None:
            # Nothing would hold now; perhaps later.
            self.consider(entries, key)
            return ()
        return self._lacking(entries, key, entry)

    def drop(self, entries: CacheEntries, key: ObjectKey) -> None:
        """Drop the entry of an object."""
        entry = entries.kept.pop(key, None)
        if entry is not None:
            self._empty(entry)
            self._disown(entries, key, entry)

    # Within.

    def _keep(self, entries: CacheEntries, key: ObjectKey, owners: tuple[ObjectRef, ...]) -> CacheEntry:
        """Return the entry of an object, creating it if needed."""
        given_up = entries.expect(key)
        if given_up is not None:
            self.drop(entries, given_up)
        entry = entries.kept.setdefault(key, CacheEntry(()))
        if entry.owners != owners:
            self._disown(entries, key, entry)
            entry.owners = owners
            for owner in owners:
                self._owned.setdefault(owner, set()).add((entries, key))
        return entry

    def _disown(self, entries: CacheEntries, key: ObjectKey, entry: CacheEntry) -> None:
        for owner in entry.owners:
            of_owner = self._owned.get(owner, set())
            of_owner.discard((entries, key))
            if not of_owner:
                self._owned.pop(owner, None)

    def _request_refetch(self, entries: CacheEntries, key: ObjectKey, answer: ObjectResponse) -> None:
        """Note that a run reads or writes an owned object, so that the object is refetched when it changes."""
        owners = entries.owners_of(answer.obj)
        if owners and answer.version is not None and len(answer.content) <= LARGEST:
            entry = self._keep(entries, key, owners)
            entry.wanted[answer.path] = None
            entry.wait = FIRST_WAIT

    def _take(self, entries: CacheEntries, key: ObjectKey, answer: ObjectResponse, *, is_sound: bool) -> None:
        """Cache a response if it contains an owned object that runs read and is not outdated."""
        entry = entries.kept.get(key)
        owners = entries.owners_of(answer.obj)
        if not owners or answer.version is None or len(answer.content) > LARGEST:
            self.drop(entries, key)
        elif entry is not None and is_sound:
            self._store(entries, key, entry, answer)
        self.consider(entries, key)

    def _store(self, entries: CacheEntries, key: ObjectKey, entry: CacheEntry, answer: ObjectResponse) -> None:
        if entry.version != answer.version:
            self._empty(entry)
        # Contents under other paths are of the same version, hence as sure as this one.
        entry.version, entry.mark = answer.version, entries.mark(key.namespace)
        self._remove(entry, answer.path)
        entry.contents[answer.path] = answer.content
        self._paths[answer.path] = (entries, key)
        self.size += len(answer.content) + _OVERHEAD
        while self.size > self._most_bytes:
            self._give_up(next(iter(self._paths)))

    def _give_up(self, path: str) -> None:
        """Evict the content of a path, without a refetch."""
        entries, key = self._paths[path]
        entry = entries.kept[key]
        self._remove(entry, path)
        entry.wanted.pop(path, None)
        if not entry.wanted:
            self.drop(entries, key)

    def _empty(self, entry: CacheEntry) -> None:
        for path in list(entry.contents):
            self._remove(entry, path)
        entry.version = entry.mark = None

    def _remove(self, entry: CacheEntry, path: str) -> None:
        if self._paths.pop(path, None) is not None:
            self.size -= len(entry.contents.pop(path)) + _OVERHEAD

    def _lacking(self, entries: CacheEntries, key: ObjectKey, entry: CacheEntry) -> tuple[str, ...]:
        """Return the paths in use whose content is missing or stale."""
        is_fresh = entries.is_fresh(key, entry)
        return tuple(path for path in entry.wanted if not is_fresh or path not in entry.contents)

    def _compare(self, attempt: PendingCall, answer: ObjectResponse) -> bool:
        """End a read; return True if its response can be cached. Drop cached content of another version."""
        place = attempt.place
        self._calls.end(attempt)
        is_sound = self._is_sound(attempt, place)
        self._calls.spoil(place)
        entries = self._kinds.get(place[:2])
        entry = entries.kept.get(place.key) if entries is not None else None
        if entry is not None and entry.version != answer.version:
            self._empty(entry)
        return is_sound

    def _basis(self, place: CallScope) -> object:
        """Return a value that is equal at the start and end of a call if no gap occurred in between."""
        entries = self._kinds.get(place[:2])
        mark = entries.mark(place.namespace) if entries is not None else None
        return None if mark is None else (entries, mark)

    def _is_sound(self, attempt: PendingCall, place: CallScope) -> bool:
        """Return True if no event since the start of the call can have made its response outdated."""
        if attempt.is_spoiled or attempt.basis is None or self._calls.is_held(place):
            return False
        return attempt.basis == self._basis(place)

    def _invalidate(self, place: CallScope) -> None:
        """Invalidate the entries in a scope."""
        entries = self._kinds.get(place[:2])
        if not place.name:
            if entries is not None:
                entries.age(place.namespace)
            return
        self._calls.spoil(place)
        entry = entries.kept.get(place.key) if entries is not None else None
        if entries is not None and entry is not None:
            self._empty(entry)
            self.consider(entries, place.key)
