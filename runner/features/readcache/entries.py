"""Cache entries for the owned objects of one kind, and the latest version that the watch reported of each. Pure.

Promises: objects that were not reported as owned have no entry. Versions are compared for equality only. Must not
import: the client, the proxy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from runner.core.kube.discovery import ApiResource
from runner.core.kube.watch_events import Applied, Deleted, Relist, Restarted, Synced, WatchEvent
from runner.features.readcache.inflight import CallScope
from runner.values.objects import Object, ObjectKey, ObjectRef, key_of, metadata, uid_of

FIRST_WAIT = 0.5
"""Seconds between a change and the refetch of the object."""
_MOST_UNSEEN = 1024
_MOST_ERAS = 1024


class ObjectVersion(NamedTuple):
    """A state of an object."""

    uid: str
    version: str

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> ObjectVersion | None:
        """Read the version of an object; None if the API gives its objects none."""
        uid, version = uid_of(obj), str(metadata(obj).get("resourceVersion") or "")
        return cls(uid, version) if uid and version else None


WatchMark: TypeAlias = tuple[int, int, int]
"""Identifies a period without a gap of the watch; it changes with each event that invalidates earlier reads."""


@dataclass(slots=True)
class CacheEntry:
    """Cached content of one object."""

    owners: tuple[ObjectRef, ...]
    version: ObjectVersion | None = None
    mark: WatchMark | None = None
    contents: dict[str, bytes] = field(default_factory=dict)
    """Content by path; the path contains the API version."""
    wanted: dict[str, None] = field(default_factory=dict)
    """Paths that runs use to read the object."""
    wait: float = FIRST_WAIT
    """Seconds between the next change and the refetch. It doubles with each refetch until a run reads the object."""
    is_due: bool = False


class CacheEntries:
    """The owned objects of one kind."""

    def __init__(
        self,
        resource: ApiResource,
        unbroken_period: Callable[[str], int | None],
        owners: Callable[[Object], tuple[ObjectRef, ...]],
        moved: Callable[[CacheEntries, ObjectKey], None],
        ended: Callable[[CacheEntries, ObjectKey], None],
    ) -> None:
        """`moved` is called if an object has a new version, `ended` if it was deleted or has no watched owner.

        See `ReadCache.follow` for the other parameters.
        """
        self.resource = resource
        self.owners_of = owners
        self.seen: dict[ObjectKey, ObjectVersion] = {}
        """Latest versions that the watch reported."""
        self.kept: dict[ObjectKey, CacheEntry] = {}
        self._moved = moved
        self._ended = ended
        self._unbroken_period = unbroken_period
        self._eras: dict[str, int] = {}
        self._relist = Relist()
        self._unseen: OrderedDict[ObjectKey, None] = OrderedDict()

    # Called by the watch.

    def listing(self, scope: str) -> None:
        """Start a list of `scope` (a namespace, or `""` for all)."""
        self._relist.begin(scope, (key for key in self.seen if scope in {"", key.namespace}))

    def listed(self, scope: str) -> None:
        """Complete the list of a scope."""
        for key in self._relist.end(scope):
            self.gone(key)

    def received(self, scope: str, event: WatchEvent, owners: tuple[ObjectRef, ...]) -> None:
        """Note an event of the watch of a scope (a namespace, or `""` for all)."""
        match event:
            case Restarted():
                self.listing(scope)
            case Synced():
                self.listed(scope)
            case Applied(obj) if owners:
                self.applied(key_of(obj), ObjectVersion.of(obj))
            case Applied(obj) | Deleted(obj):
                self.gone(key_of(obj))

    def applied(self, key: ObjectKey, version: ObjectVersion | None) -> None:
        """Note the version of an owned object."""
        if version is None:
            self.gone(key)
            return
        self.seen[key] = version
        self._unseen.pop(key, None)
        self._relist.saw(key)
        self._moved(self, key)

    def gone(self, key: ObjectKey) -> None:
        """Note that an object was deleted or has no watched owner."""
        self.seen.pop(key, None)
        self._unseen.pop(key, None)
        self._ended(self, key)

    # Cached responses.

    def place(self, key: ObjectKey) -> CallScope:
        """Return the scope of calls for an object."""
        return CallScope(self.resource.gvk.group, self.resource.plural, key.namespace, key.name)

    def mark(self, namespace: str) -> WatchMark | None:
        """Return the mark of the current period of the watch; None if the watch is not open."""
        unbroken_period = self._unbroken_period(namespace)
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
        return (
            entry.version is not None
            and entry.version == self.seen.get(key)
            and entry.mark == self.mark(key.namespace)
            and entry.mark is not None
        )

    def expect(self, key: ObjectKey) -> ObjectKey | None:
        """Expect a watch event of an object. Return another object whose event is no longer expected, if any."""
        if key in self.seen:
            return None
        self._unseen[key] = None
        return self._unseen.popitem(last=False)[0] if len(self._unseen) > _MOST_UNSEEN else None
