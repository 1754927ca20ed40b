"""One watch request from start to end, as typed events.

Promises: an ERROR event raises its ApiError. A watch that is silent, breaks or is closed immediately raises
ApiUnavailableError. One that the server ends at its timeout just ends. The event loop is yielded every few
milliseconds, at any rate of events.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import orjson

from runner.core.kube import answers, decode
from runner.core.kube.client import Client, Selection
from runner.core.kube.watch_events import Applied, Deleted, Restarted, Synced, Take
from runner.core.kube.watch_health import WatchHealth, WatchState
from runner.values.errors import ApiUnavailableError
from runner.values.objects import Object, annotations_of, metadata

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_EARLY = 2.0
"""Seconds before its timeout at which a watch may end and still end regularly."""


@dataclass(frozen=True, slots=True)
class WatchPolicy:
    """Timing of a watch, in seconds by default."""

    idle_limit: float = 90.0
    """A watch without a byte for this long is dead: the server sends a bookmark about every minute."""
    list_idle_limit: float = 30.0
    """The same within a streamed list: a server without streamed lists would stay silent."""
    shortest_watch: float = 240.0
    longest_watch: float = 480.0
    """The timeout of a watch is between these two."""
    settled: float = 1.0
    """A watch that lasted for this long may end without an error."""
    first_backoff: float = 0.1
    longest_backoff: float = 10.0
    longest_retry_after: float = 60.0
    """Maximum of a `Retry-After`."""
    first_kind_poll: float = 1.0
    longest_kind_poll: float = 5.0
    first_page: int = 50
    """Objects; few, because their size is unknown."""
    longest_page: int = 500
    page_bytes: int = 1 << 19
    """Approximate size of a page."""
    slice: float = 0.005
    """Maximum time without yielding the event loop."""
    repeat_log: float = 60.0
    """Interval of the log for an error that lasts."""


class Pacer:
    """Yields the event loop after `slice_` seconds of work."""

    def __init__(self, slice_: float) -> None:
        self._slice = slice_
        self._time = asyncio.get_running_loop().time
        self._until = self._time() + slice_

    async def breathe(self) -> None:
        """Yield the event loop if it is due."""
        if self._time() >= self._until:
            await asyncio.sleep(0)
            self._until = self._time() + self._slice


class WatchStream:
    """A watch request. Read it once."""

    def __init__(
        self, client: Client, path: str, selection: Selection, policy: WatchPolicy, health: WatchHealth, version: str
    ) -> None:
        """`version` is the resourceVersion to watch from. If it is empty, a list of all objects comes first."""
        self.version = version
        """Version until which all changes were reported; empty if a list is needed."""
        self.is_listing = not version
        """True until the list is complete."""
        self.has_bookmarks = False
        """True if the server sent a bookmark."""
        self.was_open = False
        """True if the server accepted the watch."""
        self.settled = False
        """True if the watch lasted longer than a moment; set at its end."""
        self.timed_out = False
        """True if the watch reached the idle limit without an event."""
        self._is_silent = True
        self._client = client
        self._path = path
        self._selection = selection
        self._policy = policy
        self._health = health

    async def read(self, take: Take) -> None:
        """Pass the events to `take` until the server ends the watch. Raises ApiError or ApiUnavailableError."""
        request, policy = f"watch of {self._path}", self._policy
        time, pacer = asyncio.get_running_loop().time, Pacer(policy.slice)
        timeout = int(random.uniform(policy.shortest_watch, policy.longest_watch))  # noqa: S311 - spreads load
        opening = self._client.stream(
            self._path, self._params(timeout), idle=policy.idle_limit, metadata_only=self._selection.metadata_only
        )
        async with opening as lines:
            began, regularly = time(), False
            self._note_open()
            try:
                while (line := await self._next(lines, request)) is not None:
                    self._process(*_decode(line, request), request, take)
                    await pacer.breathe()
                regularly = time() - began >= max(policy.settled, timeout - _EARLY)
            finally:
                self.settled = time() - began >= policy.settled
                self._health.closed(regularly=regularly)
        if not self.settled:
            raise ApiUnavailableError(f"{request}: the server closed it immediately")

    def _params(self, timeout: int) -> dict[str, str]:
        streamed_list = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return {
            **({"resourceVersion": self.version} if self.version else streamed_list),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout),
            **self._selection.params,
        }

    def _note_open(self) -> None:
        self.was_open = True
        if self.is_listing:
            self._health.accepted(WatchState.LISTING)
        else:
            self._health.opened()
            self._health.complete()

    def _process(self, kind: str, obj: Object, request: str, take: Take) -> None:
        """Pass an event to `take`, and note how far the watch has got. Raises ApiError for an ERROR event."""
        if kind == "ERROR":
            raise answers.of_status(request, obj)
        self._health.contacted()
        if self.is_listing and self._is_silent:
            take(Restarted(self._health.namespace))
        self._is_silent = False
        if kind == "BOOKMARK":
            self.has_bookmarks = True
            if self.is_listing and annotations_of(obj).get(_INITIAL_EVENTS_END) == "true":
                self.is_listing = False
                self._health.opened()
                take(Synced())
                self._health.complete()
        else:
            take(Deleted(obj) if kind == "DELETED" else Applied(obj))
        if not self.is_listing:
            # Objects of a list come in no order, so that only its end is a place to resume from.
            self.version = str(metadata(obj).get("resourceVersion") or "")

    async def _next(self, lines: AsyncIterator[bytes], request: str) -> bytes | None:
        try:
            async with asyncio.timeout(self._policy.list_idle_limit if self.is_listing else None):
                return await anext(lines, None)
        except TimeoutError as error:
            raise ApiUnavailableError(f"{request}: no event for {self._policy.list_idle_limit:g} s") from error
        except ApiUnavailableError as error:
            # Not measured: the limit counts from the last byte, which a busy event loop reads later.
            self.timed_out = self._is_silent and isinstance(error.__cause__, TimeoutError)
            raise


def _decode(line: bytes, request: str) -> tuple[str, Object]:
    with contextlib.suppress(orjson.JSONDecodeError):
        match decode.loads(line):
            case {"type": str(kind), "object": dict(obj)}:
                return kind, obj
    raise ApiUnavailableError(
        f"{request}: {line[:100]!r} is not a watch event; check for a proxy in front of the API server"
    )
