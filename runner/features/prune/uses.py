"""Objects that a run uses: those that its requests name, and those in lists that it reads. Pure.

The group of a resource is ignored, because some objects are served in several groups. So an object can only count as
used by mistake, and not as unused.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product
from typing import Any, TypeAlias

from runner.values.objects import ObjectKey, key_of

RELEASE = "sh.helm.release.v1."
"""Beginning of the name of a helm release's Secret or ConfigMap: `sh.helm.release.v1.NAME.vREVISION`."""
_MOST_TIMES = 64
"""Recorded requests for one object."""
STORES = ("secrets", "configmaps")
"""Plurals of the kinds in which helm stores releases."""
TasksAt: TypeAlias = Callable[[Iterable[float]], Collection[str]]
"""Returns the digests of the tasks that sent requests at some times; none if this is not certain."""


class UsedObjects:
    """Objects that one run uses."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """`clock` returns the seconds since the epoch; None: no times are recorded."""
        self._clock = clock
        self._named: dict[tuple[str, ObjectKey], list[float]] = {}
        """Times of the requests for each object, by plural and key."""
        self._kinds: set[tuple[str, str]] = set()
        """Plurals and namespaces (empty: all) of which every object counts as used."""
        self._pending: Counter[tuple[str, str]] = Counter()
        """Plurals and namespaces of requests in progress whose response names the used objects."""

    @property
    def named(self) -> frozenset[tuple[str, ObjectKey]]:
        """Plurals and keys of single objects."""
        return frozenset(self._named)

    @property
    def kinds(self) -> frozenset[tuple[str, str]]:
        """Plurals and namespaces (empty: all) of which every object counts as used."""
        return frozenset(self._kinds) | {kind for kind, count in self._pending.items() if count > 0}

    def name(self, plural: str, key: ObjectKey) -> None:
        """Note an object."""
        times = self._named.setdefault((plural, key), [])
        if self._clock is not None and len(times) <= _MOST_TIMES:
            times.append(self._clock())

    def times(self, plural: str, key: ObjectKey) -> list[float]:
        """Return when the run used an object; empty if not all times are known."""
        times = self._named.get((plural, key), [])
        return times if len(times) <= _MOST_TIMES and not self._has_all(plural, key.namespace) else []

    def all_of(self, plural: str, namespace: str) -> None:
        """Note every object of a kind in a namespace; empty: in all namespaces, or cluster-scoped."""
        self._kinds.add((plural, namespace))

    def requested(self, plural: str, namespace: str) -> None:
        """Count every object of a kind as used until the response to a request, which names the objects."""
        self._pending[plural, namespace] += 1

    def answered(self, plural: str, namespace: str) -> None:
        """Note that the objects in a response were noted."""
        self._pending[plural, namespace] -= 1

    def listed(self, plural: str, namespace: str, answer: Mapping[str, Any] | None) -> None:
        """Note the objects in the response to a list; every object of the kind if the response cannot be read."""
        items = answer.get("items") if answer is not None else None
        if not isinstance(items, list):
            self.all_of(plural, namespace)
            return
        for item in items:
            key = key_of(item) if isinstance(item, dict) else ObjectKey("", "")
            if not key.name:
                self.all_of(plural, namespace)
                return
            self.name(plural, key)

    def has(self, plural: str, key: ObjectKey) -> bool:
        """Return True if a run used an object."""
        return (plural, key) in self._named or self._has_all(plural, key.namespace)

    def has_release(self, release: ObjectKey) -> bool:
        """Return True if a run read or wrote the state of a helm release."""
        if any(self._has_all(plural, release.namespace) for plural in STORES):
            return True
        return has_state(release, (key for plural, key in self._named if plural in STORES))

    def _has_all(self, plural: str, namespace: str) -> bool:
        spaces = [(plural, namespace), (plural, "")]
        return any(space in self._kinds or self._pending[space] for space in spaces)


def has_state(release: ObjectKey, keys: Iterable[ObjectKey]) -> bool:
    """Return True if `keys` contains a Secret or ConfigMap of a helm release."""
    beginning = f"{RELEASE}{release.name}.v"
    return any(key.namespace == release.namespace and key.name.startswith(beginning) for key in keys)


MOST_DIGESTS = 1000
"""Digests of one resource. Beyond it, all objects of the kinds with the most objects count as used."""
MOST_ROWS = 4 * MOST_DIGESTS
"""Pairs of an object and a task. Beyond it, the tasks are not known."""
_SIZE = 8


@dataclass(frozen=True, slots=True)
class UseDigests:
    """Used objects of one or several runs.

    A digest has 8 bytes. Two objects with the same digest can only count as used by mistake, and not as unused.
    """

    digests: array[int]
    """Sorted. An object that several tasks used is there for each of them."""
    kinds: frozenset[tuple[str, str]] = frozenset()
    """Plurals and namespaces (empty: all) of which every object counts as used."""
    tasks: array[int] = field(default_factory=partial(array, "Q"))
    """Digests of the tasks that used the objects, at the same places; 0 for one that is not known."""

    def __bool__(self) -> bool:
        return bool(self.digests or self.kinds)

    @classmethod
    def of(cls, used: UsedObjects, tasks_at: TasksAt = lambda _: ()) -> UseDigests:
        """Return the digests of what one run used. `tasks_at` returns the tasks that sent requests at some times."""
        named, kinds = used.named, used.kinds
        if len(named) > MOST_DIGESTS:
            kinds |= _largest((plural, key.namespace) for plural, key in named)
        rows = set[tuple[int, int]]()
        for plural, key in named:
            tasks = [int(task, 16) for task in tasks_at(used.times(plural, key))] or [0]
            digests = [_digest(RELEASE, release) for release in _releases([(plural, key)])]
            if (plural, key.namespace) not in kinds:
                digests.append(_digest(plural, key))
            rows.update(product(digests, tasks))
        return cls._of(rows, kinds)

    @classmethod
    def _of(cls, rows: Iterable[tuple[int, int]], kinds: frozenset[tuple[str, str]]) -> UseDigests:
        pairs = set(rows)
        rows = sorted(pairs if len(pairs) <= MOST_ROWS else {(digest, 0) for digest, _ in pairs})
        return cls(array("Q", [row[0] for row in rows]), kinds, array("Q", [row[1] for row in rows]))

    def union(self, other: UseDigests) -> UseDigests:
        """Return the uses of both."""
        return self._of({*self._rows(), *other._rows()}, self.kinds | other.kinds)

    def without(self, tasks: Collection[str]) -> UseDigests:
        """Return the uses without those by these tasks."""
        numbers = {int(task, 16) for task in tasks}
        return self._of((row for row in self._rows() if row[1] not in numbers), self.kinds)

    def spell(self) -> dict[str, Any]:
        """Return the uses as JSON."""
        by_task: dict[str, list[str]] = {}
        for digest, task in self._rows():
            by_task.setdefault(f"{task:x}", []).append(f"{digest:x}")
        return {"tasks": by_task, "kinds": sorted(map(list, self.kinds))}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> UseDigests:
        """Read uses. Raises ValueError, TypeError, AttributeError or KeyError if they are invalid."""
        rows = ((int(digest, 16), int(task, 16)) for task, digests in document["tasks"].items() for digest in digests)
        return cls._of(rows, frozenset((str(plural), str(namespace)) for plural, namespace in document["kinds"]))

    def _rows(self) -> Iterable[tuple[int, int]]:
        return zip(self.digests, self.tasks, strict=True)

    def has(self, plural: str, key: ObjectKey) -> bool:
        """Return True if a run used an object."""
        return self._has(_digest(plural, key)) or self._has_all(plural, key.namespace)

    def has_release(self, release: ObjectKey) -> bool:
        """Return True if a run read or wrote the state of a helm release."""
        has_state = self._has(_digest(RELEASE, release))
        return has_state or any(self._has_all(plural, release.namespace) for plural in STORES)

    def _has(self, digest: int) -> bool:
        at = bisect_left(self.digests, digest)
        return at < len(self.digests) and self.digests[at] == digest

    def _has_all(self, plural: str, namespace: str) -> bool:
        return bool(self.kinds) and ((plural, namespace) in self.kinds or (plural, "") in self.kinds)


Uses: TypeAlias = UsedObjects | UseDigests
"""Objects that runs use."""


def _largest(kinds: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return the kinds and namespaces with the most objects, so that all other objects are within the limit."""
    counts = Counter(kinds)
    left, largest = counts.total(), set()
    for kind, count in counts.most_common():
        if left <= MOST_DIGESTS:
            break
        left -= count
        largest.add(kind)
    return frozenset(largest)


def _releases(named: Iterable[tuple[str, ObjectKey]]) -> Iterable[ObjectKey]:
    """Yield the helm releases whose state is among the objects."""
    for plural, key in named:
        if plural in STORES and key.name.startswith(RELEASE):
            yield ObjectKey(key.namespace, key.name.removeprefix(RELEASE).rpartition(".v")[0])


@lru_cache(maxsize=1024)
def _digest(plural: str, key: ObjectKey) -> int:
    text = "\0".join((plural, *key))
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=_SIZE).digest())
