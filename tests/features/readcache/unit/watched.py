"""A watch of dependents whose events a test sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from runner.core.kube.discovery import ApiResource
from runner.features.readcache.bodies import CacheEntries, ReadCache
from runner.values.objects import Object, ObjectKey, ObjectRef


class ObjectVersion(NamedTuple):
    """UID and resourceVersion of an object."""

    uid: str
    version: str


@dataclass
class Watched:
    """The watch of one kind, which a read cache follows."""

    cache: ReadCache
    resource: ApiResource
    owners: Callable[[Object], tuple[ObjectRef, ...]]
    unbroken: int | None = 1
    versions: dict[ObjectKey, ObjectVersion] = field(default_factory=dict)
    entries: CacheEntries = field(init=False)

    def __post_init__(self) -> None:
        self.follow()

    def follow(self) -> None:
        self.entries = self.cache.follow(self)

    def unbroken_period(self, _namespace: str) -> int | None:
        return self.unbroken

    def version(self, key: ObjectKey) -> tuple[str, str] | None:
        return self.versions.get(key)

    def applied(self, key: ObjectKey, version: ObjectVersion | None) -> None:
        """Send an event; without a version, the object is gone or has no watched owner."""
        if version is None:
            self.versions.pop(key, None)
        else:
            self.versions[key] = version
        self.entries.changed(key)

    def lists(self, *keys: ObjectKey) -> None:
        """Send a list of all objects."""
        self.versions = {key: version for key, version in self.versions.items() if key in keys}
        for key in keys:
            self.entries.changed(key)
        self.entries.listed()
