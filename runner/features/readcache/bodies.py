"""Responses of the API server for owned objects, byte for byte, and the decision whether each is up to date. Pure.

Flow: each call of the proxy is registered (`PendingCalls`) from its start to its end. The watch of a kind of dependents
has the latest version of each owned object. `find` decides whether a cached response may be sent.

Promises: `find` returns a response only if

- the call that fetched it began after the end of every call through the proxy that wrote or streamed the object;
- no such call is in progress;
- no later call has shown another version;
- the kind's watch has been open without a gap since then, and the last version that it reported of the object is this
  one.

So a response is never older than one that the proxy sent before. The lag behind writes of other clients depends on the
watch. Objects without an owner in a watched kind are not cached. The cache has a size limit and evicts the least
recently used content.

Assumes: a plain GET returns the latest state ("Most Recent" in
https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions). Versions are compared for equality
only. Must not import: the client, the proxy.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from runner.core.kube.discovery import ApiResource
from runner.values.objects import Object, ObjectKey, ObjectRef, metadata, uid_of


class CallScope(NamedTuple):
    """An object in any API version. Without a name it is a namespace; without both it is the whole kind."""

    group: str
    plural: str
    namespace: str
    name: str

    @property
    def key(self) -> ObjectKey:
        """Key of the object."""
        return ObjectKey(self.namespace, self.name)

    def with_containing(self) -> tuple[CallScope, ...]:
        """Return the scope and the scopes that contain it."""
        return self, self._replace(name=""), self._replace(namespace="", name="")


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call in progress."""

    place: CallScope
    basis: object
    """Value to compare when the call ends; None if its response cannot be cached."""
    holds: bool = False
    """True if nothing in its scope may be served from the cache."""
    is_spoiled: bool = False
    """True if another call ended meanwhile, so that the response may be outdated."""
    is_left: bool = False
    """True if it ends later than its call, because the call had an unknown outcome."""
    is_ended: bool = False


class PendingCalls:
    """All calls in progress, and whether their responses can be trusted.

    If two calls for an object overlap, their order on the server is unknown. So the end of each call marks all further
    calls in progress in the same scope. Their responses may be older than a state that was returned or written
    meanwhile.
    """

    def __init__(self) -> None:
        self._attempts: dict[CallScope, list[PendingCall]] = {}
        self._held: Counter[CallScope] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._attempts.values()))

    def begin(self, place: CallScope, basis: object) -> PendingCall:
        """Register a call."""
        attempt = PendingCall(place, basis)
        self._attempts.setdefault(place, []).append(attempt)
        return attempt

    def hold(self, attempt: PendingCall) -> None:
        """Serve nothing in the call's scope from the cache until it ends."""
        if not attempt.holds:
            attempt.holds = True
            self._held[attempt.place] += 1

    def end(self, attempt: PendingCall) -> None:
        """Remove a call."""
        attempt.is_ended = True
        attempts = self._attempts[attempt.place]
        attempts.remove(attempt)
        if not attempts:
            del self._attempts[attempt.place]
        if attempt.holds:
            self._held[attempt.place] -= 1
            if not self._held[attempt.place]:
                del self._held[attempt.place]

    def is_held(self, place: CallScope) -> bool:
        """Return True if a call in progress prevents a response from the cache."""
        return bool(self._held) and any(scope in self._held for scope in place.with_containing())

    def spoil(self, place: CallScope) -> None:
        """Mark the calls in a scope: another one has ended."""
        for scope in place.with_containing():
            for attempt in self._attempts.get(scope, ()):
                attempt.is_spoiled = True


_MOST_UNSEEN = 1024
_MOST_ERAS = 1024
_OVERHEAD = 1 << 10
"""Approximate bytes per cached object beside its content."""

ObjectVersion: TypeAlias = tuple[str, str]
"""UID and resourceVersion of an object."""
WatchMark: TypeAlias = tuple[int, int, int]
"""Identifies a period without a gap of the watch; it changes with each event that invalidates earlier reads."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Cached content of one object, in the API version that was read last."""

    owners: tuple[ObjectRef, ...]
    version: ObjectVersion
    mark: WatchMark
    path: str
    """Path of a GET, which contains the API version."""
    content: bytes = field(repr=False)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.content) + _OVERHEAD


class WatchedKind(Protocol):
    """Watch of a kind of dependents."""

    resource: ApiResource

    @property
    def owners(self) -> Callable[[Object], tuple[ObjectRef, ...]]:
        """Returns the watched owners of an object."""

    def version(self, key: ObjectKey) -> ObjectVersion | None:
        """Return the version of an object as last seen; None if it was not, or has no watched owner."""

    def unbroken_period(self, namespace: str) -> int | None:
        """Return the number of the current period without a gap of a namespace's watch; None if there is none."""


class CacheEntries:
    """The owned objects of one kind. It listens to their watch."""

    def __init__(self, kind: WatchedKind, ended: Callable[[CacheEntries, ObjectKey], None]) -> None:
        """`ended` is called if an object was deleted or has no watched owner."""
        self.resource = kind.resource
        self.owners_of = kind.owners
        self.kept: dict[ObjectKey, CacheEntry] = {}
        self._kind = kind
        self._ended = ended
        self._eras: dict[str, int] = {}
        self._unseen: OrderedDict[ObjectKey, None] = OrderedDict()

    # Called by the watch.

    def changed(self, key: ObjectKey) -> None:
        """Handle an event of an object."""
        self._unseen.pop(key, None)
        if not self.is_seen(key):
            self._ended(self, key)

    def listed(self) -> None:
        """Handle the end of a list: absent objects are gone, unless their event is still expected."""
        for key in [key for key in self.kept if key not in self._unseen and not self.is_seen(key)]:
            self._ended(self, key)

    # Cached responses.

    def place(self, key: ObjectKey) -> CallScope:
        """Return the scope of calls for an object."""
        return CallScope(self.resource.gvk.group, self.resource.plural, key.namespace, key.name)

    def is_seen(self, key: ObjectKey) -> bool:
        """Return True if the watch shows that the object exists and has a watched owner."""
        return self._kind.version(key) is not None

    def mark(self, namespace: str) -> WatchMark | None:
        """Return the mark of the current period of the watch; None if the watch is not open."""
        unbroken_period = self._kind.unbroken_period(namespace)
        return (
            None
            if unbroken_period is None
            else (unbroken_period, self._eras.get("", 0), self._eras.get(namespace or "-", 0))
        )

    def age(self, namespace: str) -> None:
        """Invalidate what was read so far in a namespace (`""`: in all)."""
        self._eras[namespace] = self._eras.get(namespace, 0) + 1
        if len(self._eras) > _MOST_ERAS:
            self._eras = {"": self._eras.get("", 0) + 1}

    def is_fresh(self, key: ObjectKey, entry: CacheEntry) -> bool:
        """Return True if an entry is up to date."""
        return entry.version == self._kind.version(key) and entry.mark == self.mark(key.namespace)

    def expect(self, key: ObjectKey) -> ObjectKey | None:
        """Expect a watch event of an object. Return another object whose event is no longer expected, if any."""
        if self.is_seen(key):
            return None
        self._unseen[key] = None
        return self._unseen.popitem(last=False)[0] if len(self._unseen) > _MOST_UNSEEN else None


MOST_BYTES = 64 << 20
"""Maximum size of the cache in bytes."""
LARGEST = 1 << 20
"""Maximum size of a cached object in bytes."""


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
        uid, version = uid_of(self.obj), str(metadata(self.obj).get("resourceVersion") or "")
        return (uid, version) if uid and version else None


class ReadCache:
    """Cached objects of all kinds."""

    def __init__(self, most_bytes: int) -> None:
        self.size = 0
        """Size of the cache in bytes."""
        self._most_bytes = most_bytes
        self._kinds: dict[tuple[str, str], CacheEntries] = {}
        self._paths: OrderedDict[str, tuple[CacheEntries, ObjectKey]] = OrderedDict()
        """Entries by path; the least recently used first."""
        self._calls = PendingCalls()

    # Kinds.

    def follow(self, kind: WatchedKind) -> CacheEntries:
        """Cache objects of a kind from now on; drop the earlier entries of the kind."""
        self.unfollow(kind.resource)
        entries = CacheEntries(kind, self.drop)
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
        for entries, key in list(self._paths.values()):
            if owner in entries.kept[key].owners:
                self.drop(entries, key)

    def drop(self, entries: CacheEntries, key: ObjectKey) -> None:
        """Drop the entry of an object."""
        entry = entries.kept.pop(key, None)
        if entry is not None:
            del self._paths[entry.path]
            self.size -= entry.size

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
        return entry.content

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
        place = attempt.place
        self._calls.end(attempt)
        is_sound = self._is_sound(attempt, place)
        self._calls.spoil(place)
        entries = self._kinds.get(place[:2])
        if entries is None:
            return False
        entry = entries.kept.get(place.key)
        if entry is not None and entry.version != answer.version:
            self.drop(entries, place.key)
        if wanted:
            self._take(entries, place.key, answer, is_sound=is_sound)
        return bool(entries.owners_of(answer.obj))

    def wrote(self, attempt: PendingCall, place: CallScope, answer: ObjectResponse, *, wanted: bool) -> None:
        """End a write of `place` before its response is sent on; the response is the object as a GET returns it."""
        self._calls.end(attempt)
        is_sound = self._is_sound(attempt, place)
        self._invalidate(place)
        entries = self._kinds.get(place[:2])
        if entries is not None and wanted:
            self._take(entries, place.key, answer, is_sound=is_sound)

    # Within.

    def _take(self, entries: CacheEntries, key: ObjectKey, answer: ObjectResponse, *, is_sound: bool) -> None:
        """Cache a response if it contains an owned object and is not outdated."""
        owners, version, mark = entries.owners_of(answer.obj), answer.version, entries.mark(key.namespace)
        if not owners or version is None or len(answer.content) > LARGEST:
            self.drop(entries, key)
        elif is_sound and mark is not None:
            self.drop(entries, key)
            if (given_up := entries.expect(key)) is not None:
                self.drop(entries, given_up)
            entry = entries.kept[key] = CacheEntry(owners, version, mark, answer.path, answer.content)
            self._paths[answer.path] = (entries, key)
            self.size += entry.size
            while self.size > self._most_bytes:
                self.drop(*next(iter(self._paths.values())))

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
        if place.name:
            self._calls.spoil(place)
        if entries is None:
            return
        if place.name:
            self.drop(entries, place.key)
        else:
            entries.age(place.namespace)
