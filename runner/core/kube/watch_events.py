"""Events of a watcher, and the objects that a new list of their scope does not contain. Pure.

A scope is what one watcher covers: a namespace, or `""` for all. An object that the list lacks was deleted while no
watch was open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView
from dataclasses import dataclass, field
from typing import TypeAlias

from runner.values.objects import Object, ObjectKey


@dataclass(frozen=True, slots=True)
class Requested:
    """A list is requested next: it contains the writes whose response came before."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """Start of a list of `scope` (a namespace, or `""` for all); `Synced` ends it."""

    scope: str


@dataclass(frozen=True, slots=True)
class Applied:
    """Current state of an object."""

    obj: Object = field(repr=False)


@dataclass(frozen=True, slots=True)
class Deleted:
    """Last state of an object that was deleted or does not match the selector any more."""

    obj: Object = field(repr=False)


@dataclass(frozen=True, slots=True)
class Synced:
    """End of the list that `Restarted` began: other objects of the scope do not exist."""


WatchEvent: TypeAlias = Requested | Restarted | Applied | Deleted | Synced
Take: TypeAlias = Callable[[WatchEvent], None]
"""Consumer of the events of a watch. It must not block."""


class Relist:
    """The lists of one kind, by scope. `request`, `begin`, `saw` and `end` follow the events of the watchers."""

    def __init__(self) -> None:
        self._missing: dict[str, dict[ObjectKey, None]] = {}
        self._rounds: dict[str, int] = {}
        self._synced: set[str] = set()

    def request(self, scope: str) -> None:
        """Note that a list of `scope` is requested next."""
        self._rounds[scope] = self.round(scope) + 1

    def begin(self, scope: str, known: Iterable[ObjectKey]) -> None:
        """Start a list of `scope`, which is expected to contain the `known` objects."""
        self._missing[scope] = dict.fromkeys(known)

    def saw(self, key: ObjectKey) -> None:
        """Note an event of an object or a write to it, so that its absence from the list is not a deletion."""
        for missing in self._missing.values():
            missing.pop(key, None)

    def end(self, scope: str) -> KeysView[ObjectKey]:
        """Complete the list; return the known objects that it did not contain."""
        self._synced.add(scope)
        return self._missing.pop(scope, {}).keys()

    def is_synced(self, scope: str) -> bool:
        """True if a list of the scope was ever complete."""
        return scope in self._synced

    def is_initial(self, scope: str) -> bool:
        """True during the lists of a scope that none was complete before."""
        return scope in self._missing and scope not in self._synced

    def round(self, scope: str) -> int:
        """Return how many lists of the scope were requested."""
        return self._rounds.get(scope, 0)
