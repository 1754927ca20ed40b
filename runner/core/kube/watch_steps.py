"""Steps of a watcher: where each begins, how it ends, and what follows. Pure.

`Start` leads to a list: one streamed list, or one `Page` after another. A complete list leads to a watch `From` its
version. A watch that ends is resumed from the last version that it reported. A list that ends early starts over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import TypeAlias

from runner.values.errors import ApiError, ApiUnavailableError, GoneError, KindNotFoundError, NotFoundError

_ENOUGH_BROKEN_LISTS = 2
_ENOUGH_NOT_FOUND = 3
_REFUSES_PARAMETERS = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}


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


class Phase(StrEnum):
    """Phase that a step had reached at its end."""

    DISCOVERY = "discovery"
    PAGE = "page of a list"
    STREAMED_LIST = "streamed list"
    WATCH = "watch"


@dataclass(frozen=True, slots=True)
class StepEnd:
    """End of a step."""

    phase: Phase
    position: Position
    """Position until which the consumer has the changes."""
    error: ApiError | ApiUnavailableError | None = None
    """None if the step ended regularly."""
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

    streams_lists: bool = True
    broken_lists: int = 0
    """Number of streamed lists that broke since the last complete one."""
    sends_bookmarks: bool = False
    not_found: int = 0
    """Number of consecutive requests to which it responded with 404, although its discovery contains the kind."""

    def after(self, end: StepEnd) -> ServerTraits:
        """Return the traits after a further step."""
        streams, broken = self.streams_lists, self.broken_lists
        if end.phase is Phase.WATCH:
            broken = 0
        elif end.phase is Phase.STREAMED_LIST:
            broken += end.was_accepted
            refused = isinstance(end.error, ApiError) and end.error.status in _REFUSES_PARAMETERS
            streams = not refused and broken < _ENOUGH_BROKEN_LISTS
        not_found = 0 if end.was_accepted else self.not_found
        if isinstance(end.error, NotFoundError | KindNotFoundError) and end.phase is not Phase.DISCOVERY:
            not_found += 1
        return ServerTraits(streams, broken, self.sends_bookmarks or end.has_bookmarks, not_found)


def next_step(end: StepEnd, server: ServerTraits) -> tuple[Next, Position]:
    """Return what follows a step, and the position of the next one. `server` includes this step."""
    error, position = end.error, end.position
    match error:
        case None:
            return Next.CONTINUE, position
        case KindNotFoundError() if end.phase is Phase.DISCOVERY:
            action = Next.WAIT_FOR_KIND
        case NotFoundError() | KindNotFoundError() if server.not_found < _ENOUGH_NOT_FOUND:
            action = Next.REDISCOVER
        case NotFoundError() | KindNotFoundError():
            action = Next.RETRY
        case _ if _is_expired(error):
            action = Next.RELIST
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
