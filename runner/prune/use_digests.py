"""Digests of used objects, for the uses of all resources of the operator. Pure.

A digest has 8 bytes. Two objects with the same digest can only count as used by mistake, and not as unused.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from runner.objects import ObjectKey
from runner.prune.uses import RELEASE, STORES, UsedObjects

MOST_DIGESTS = 1000
"""Digests of one resource. Beyond it, all objects of the kinds with the most objects count as used."""
_SIZE = 8


@dataclass(frozen=True, slots=True)
class UseDigests:
    """Used objects of one or several runs."""

    digests: array[int]
    """Sorted."""
    kinds: frozenset[tuple[str, str]] = frozenset()
    """Plurals and namespaces (empty: all) of which every object counts as used."""

    @classmethod
    def of(cls, used: UsedObjects) -> UseDigests:
        """Return the digests of what one run used."""
        named, kinds = used.named, used.kinds
        if len(named) > MOST_DIGESTS:
            kinds |= _largest((plural, key.namespace) for plural, key in named)
        found = {_digest(plural, key) for plural, key in named if (plural, key.namespace) not in kinds}
        found.update(_digest(RELEASE, release) for release in _releases(named))
        return cls(array("Q", sorted(found)), kinds)

    def union(self, other: UseDigests) -> UseDigests:
        """Return the uses of both."""
        return UseDigests(array("Q", sorted({*self.digests, *other.digests})), self.kinds | other.kinds)

    def has(self, plural: str, key: ObjectKey) -> bool:
        """See Uses."""
        return self._has(_digest(plural, key)) or self._has_all(plural, key.namespace)

    def has_release(self, release: ObjectKey) -> bool:
        """See Uses."""
        has_state = self._has(_digest(RELEASE, release))
        return has_state or any(self._has_all(plural, release.namespace) for plural in STORES)

    def _has(self, digest: int) -> bool:
        at = bisect_left(self.digests, digest)
        return at < len(self.digests) and self.digests[at] == digest

    def _has_all(self, plural: str, namespace: str) -> bool:
        return bool(self.kinds) and ((plural, namespace) in self.kinds or (plural, "") in self.kinds)


def _largest(kinds: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return the kinds and namespaces with the most objects, so that all other objects are within the limit."""
    counts = Counter(kinds)
    left, found = counts.total(), set()
    for kind, count in counts.most_common():
        if left <= MOST_DIGESTS:
            break
        left -= count
        found.add(kind)
    return frozenset(found)


def _releases(named: Iterable[tuple[str, ObjectKey]]) -> Iterable[ObjectKey]:
    """Yield the helm releases whose state is among the objects."""
    for plural, key in named:
        if plural in STORES and key.name.startswith(RELEASE):
            yield ObjectKey(key.namespace, key.name.removeprefix(RELEASE).rpartition(".v")[0])


@lru_cache(maxsize=1024)
def _digest(plural: str, key: ObjectKey) -> int:
    text = "\0".join((plural, *key))
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=_SIZE).digest())
