"""The owned objects of one kind: what the watch told of them last, and what is kept of their content. Pure.

Promises: objects that are not told as owned leave nothing here. Versions are compared for equality only. Must not
import: the client, the proxy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from runner.kube.discovery import ApiResource
from runner.kube.relist import Relist
from runner.objects import Object, ObjectKey, ObjectRef, metadata, uid_of
from runner.readcache.inflight import CallScope

FIRST_WAIT = 0.5
"""Seconds after which an object that changed is read again."""
_MOST_UNSEEN = 1024
_MOST_ERAS = 1024


class ObjectVersion(NamedTuple):
    """A state of an object."""

    uid: str
    version: str

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> ObjectVersion | None:
        """Read it; None where an API gives its objects none, so that states cannot be told apart."""
        uid, version = uid_of(obj), str(metadata(obj).get("resourceVersion") or "")
        return cls(uid, version) if uid and version else None


WatchMark: TypeAlias = tuple[int, int, int]
"""Changes when what was read before proves nothing any more: the watch had a gap, or more was shown than is known."""


@dataclass(slots=True)
class CacheEntry:
    """What is kept of one object."""

    owners: tuple[ObjectRef, ...]
    version: ObjectVersion | None = None
    mark: WatchMark | None = None
    contents: dict[str, bytes] = field(default_factory=dict)
    """By path, which names the API's version."""
    wanted: dict[str, None] = field(default_factory=dict)
    """The paths that runs read it under."""
    wait: float = FIRST_WAIT
    """Seconds until it is read again, should it change: the longer, the more often it did since a run read it."""
    is_due: bool = False


class CacheEntries:
    """The owned objects of one kind."""

    def __init__(
        self,
        resource: ApiResource,
        stretch: Callable[[str], int | None],
        owners: Callable[[Object], tuple[ObjectRef, ...]],
        moved: Callable[[CacheEntries, ObjectKey], None],
        ended: Callable[[CacheEntries, ObjectKey], None],
    ) -> None:
        """`moved` is told that an object has another version now, `ended` that it is not ours any more.

        For the others see `Bodies.follow`.
        """
        self.resource = resource
        self.owners_of = owners
        self.seen: dict[ObjectKey, ObjectVersion] = {}
        """What the watch told last."""
        self.kept: dict[ObjectKey, CacheEntry] = {}
        self._moved = moved
        self._ended = ended
        self._stretch = stretch
        self._eras: dict[str, int] = {}
        self._relist = Relist()
        self._unseen: OrderedDict[ObjectKey, None] = OrderedDict()

    # What the watch tells.

    def listing(self, scope: str) -> None:
        """A list of `scope` (a namespace, `""` for all) begins."""
        self._relist.begin(scope, (key for key in self.seen if scope in {"", key.namespace}))

    def listed(self, scope: str) -> None:
        """It is complete."""
        for key in self._relist.end(scope):
            self.gone(key)

    def applied(self, key: ObjectKey, version: ObjectVersion | None) -> None:
        """An owned object exists in this version."""
        if version is None:
            self.gone(key)
            return
        self.seen[key] = version
        self._unseen.pop(key, None)
        self._relist.saw(key)
        self._moved(self, key)

    def gone(self, key: ObjectKey) -> None:
        """An object does not exist any more, or nobody of ours owns it."""
        self.seen.pop(key, None)
        self._unseen.pop(key, None)
        self._ended(self, key)

    # What is kept.

    def place(self, key: ObjectKey) -> CallScope:
        """Where an object stands."""
        return CallScope(self.resource.gvk.group, self.resource.plural, key.namespace, key.name)

    def mark(self, namespace: str) -> WatchMark | None:
        """What proves that an answer of now still holds; None while nothing does."""
        stretch = self._stretch(namespace)
        return None if stretch is None else (stretch, self._eras.get("", 0), self._eras.get(namespace or "-", 0))

    def age(self, namespace: str) -> None:
        """What was read so far in a namespace (`""`: in all) proves nothing any more."""
        self._eras[namespace] = self._eras.get(namespace, 0) + 1
        if len(self._eras) > _MOST_ERAS:
            self._eras = {"": self._eras.get("", 0) + 1}

    def is_fresh(self, key: ObjectKey, kept: CacheEntry) -> bool:
        """Whether what is kept still holds."""
        return (
            kept.version is not None
            and kept.version == self.seen.get(key)
            and kept.mark == self.mark(key.namespace)
            and kept.mark is not None
        )

    def expect(self, key: ObjectKey) -> ObjectKey | None:
        """The watch is going to tell of an object, unless it has told its end. Returns whom to give up for it."""
        if key in self.seen:
            return None
        self._unseen[key] = None
        return self._unseen.popitem(last=False)[0] if len(self._unseen) > _MOST_UNSEEN else None
