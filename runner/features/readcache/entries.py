"""Cache entries for the owned objects of one kind. Pure.

The watch of the kind has the latest version of each object. Versions are compared for equality only. Must not import:
the client, the proxy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from runner.core.kube.discovery import ApiResource
from runner.features.readcache.inflight import CallScope
from runner.values.objects import Object, ObjectKey, ObjectRef

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
