"""Events of a watcher, the objects that a new list of their scope does not contain, and the steps of a watcher. Pure.

A scope is what one watcher covers: a namespace, or `""` for all. An object that the list lacks was deleted while no
watch was open.

`Start` leads to a list: one `Page` after another. A complete list leads to a watch `From` its version. A watch that
ends is resumed from the last version that it reported. A list that ends early starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from runner.values.errors import ApiError, ApiUnavailableError, GoneError, KindNotFoundError, NotFoundError
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

    def is_initial(self, scope: str) -> bool:
        """True during the lists of a scope that none was complete before."""
        return scope in self._missing and scope not in self._synced

    def round(self, scope: str) -> int:
        """Return how many lists of the scope were requested."""
        return self._rounds.get(scope, 0)


_ENOUGH_NOT_FOUND = 3
_REFUSES_VERSION = frozenset(range(400, 500)) - {401, 403, 404, 408, 410, 429}
"""Statuses that the API server could return for the same version for ever."""


@dataclass(frozen=True, slots=True)
class Start:
    """A list is needed, because changes can have been missed."""


@dataclass(frozen=True, slots=True)
class Page:
    """The pages of a list before this one were read."""

    path: str
    token: str
    """Continue token of the API server."""
    limit: int
    """Maximum number of objects to request."""


@dataclass(frozen=True, slots=True)
class From:
    """All changes until a version were reported."""

    path: str
    version: str
    """A resourceVersion, not empty."""


Position: TypeAlias = Start | Page | From


@dataclass(frozen=True, slots=True)
class StepEnd:
    """End of a step."""

    position: Position
    """Position until which the consumer has the changes."""
    error: ApiError | ApiUnavailableError | None = None
    """None if the step ended regularly."""
    in_discovery: bool = False
    """True if the error occurred before a request for objects."""
    was_accepted: bool = False
    """True if the API server accepted the request."""
    was_silent: bool = False
    """True if the API server sent nothing until the idle limit."""
    has_bookmarks: bool = False
    """True if the API server sent bookmarks."""


class Next(StrEnum):
    """Action of a watcher after a step."""

    CONTINUE = "continue"
    WAIT_FOR_KIND = "wait for kind"
    REDISCOVER = "rediscover"
    RELIST = "relist"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class ServerTraits:
    """Behaviour of the API server in the steps so far."""

    sends_bookmarks: bool = False
    not_found: int = 0
    """Number of consecutive requests to which it responded with 404, although its discovery contains the kind."""

    def after(self, end: StepEnd) -> ServerTraits:
        """Return the traits after a further step."""
        not_found = 0 if end.was_accepted else self.not_found
        if isinstance(end.error, NotFoundError | KindNotFoundError) and not end.in_discovery:
            not_found += 1
        return ServerTraits(self.sends_bookmarks or end.has_bookmarks, not_found)


def next_step(end: StepEnd, server: ServerTraits) -> tuple[Next, Position]:
    """Return what follows a step, and the position of the next one. `server` includes this step."""
    error, position = end.error, end.position
    match error:
        case None:
            return Next.CONTINUE, position
        case KindNotFoundError() if end.in_discovery:
            action = Next.WAIT_FOR_KIND
        case NotFoundError() | KindNotFoundError() if server.not_found < _ENOUGH_NOT_FOUND:
            action = Next.REDISCOVER
        case NotFoundError() | KindNotFoundError():
            action = Next.RETRY
        case _ if _is_expired(error):
            action = Next.RELIST
        case ApiError(status=status) if status in _REFUSES_VERSION and not end.in_discovery:
            action = Next.RETRY
        case _ if isinstance(position, From) and not end.was_silent:
            return Next.RETRY, position
        case _ if isinstance(position, From) and not server.sends_bookmarks:
            # This server promises no sign of life, so silence means nothing.
            return Next.CONTINUE, position
        case _ if isinstance(position, From):
            # A silent server would have sent bookmarks, had its resource versions reached ours: an older etcd was
            # restored. A restarted server is silent too, until the first change of the kind.
            action = Next.RELIST
        case _:
            action = Next.RETRY
    return action, Start()


def _is_expired(error: Exception) -> bool:
    """Return True if the server rejects the version: too old (410), or newer than its data (504)."""
    return isinstance(error, GoneError) or "too large resource version" in str(error).lower()
