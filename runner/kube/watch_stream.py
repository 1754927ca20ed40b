"""One watch request from start to end, as typed events.

Promises: an ERROR event raises its ApiError. A watch that is silent, breaks or is closed immediately raises
ApiUnavailableError. One that the server ends at its timeout just ends. The event loop is yielded every few
milliseconds, at any rate of events.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import orjson

from runner.errors import ApiUnavailableError
from runner.kube import answers, decode
from runner.kube.client import Client
from runner.objects import Object


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
    """A watch request. Iterate once."""

    def __init__(
        self, client: Client, path: str, params: Mapping[str, str], policy: WatchPolicy, *, metadata_only: bool
    ) -> None:
        self.patience: float | None = None
        """Timeout in seconds for the next event, if shorter than the idle limit. It may be changed."""
        self.lasted = 0.0
        """Seconds that the watch was open, set at its end."""
        self.timed_out = False
        """True if the watch reached the idle limit without an event."""
        self._silent = True
        self._client = client
        self._path = path
        self._params = params
        self._policy = policy
        self._metadata_only = metadata_only

    @property
    def settled(self) -> bool:
        """True if the watch lasted longer than a moment."""
        return self.lasted >= self._policy.settled

    async def events(self, opened: Callable[[], None]) -> AsyncGenerator[tuple[str, Object]]:
        """Yield type and object of each event. Calls `opened` when the server has accepted the watch."""
        what = f"watch of {self._path}"
        time, pacer = asyncio.get_running_loop().time, Pacer(self._policy.slice)
        opening = self._client.stream(
            self._path, self._params, idle=self._policy.idle_limit, metadata_only=self._metadata_only
        )
        async with opening as lines:
            began = time()
            opened()
            try:
                while (line := await self._next(lines, what)) is not None:
                    self._silent = False
                    kind, obj = _decode(line, what)
                    if kind == "ERROR":
                        raise answers.of_status(what, obj)
                    yield kind, obj
                    await pacer.breathe()
            finally:
                self.lasted = time() - began
        if not self.settled:
            raise ApiUnavailableError(f"{what}: the server closed it immediately")

    async def _next(self, lines: AsyncIterator[bytes], what: str) -> bytes | None:
        try:
            async with asyncio.timeout(self.patience):
                return await anext(lines, None)
        except TimeoutError as error:
            raise ApiUnavailableError(f"{what}: no event for {self.patience:g} s") from error
        except ApiUnavailableError as error:
            # Not measured: the limit counts from the last byte, which a busy event loop reads later.
            self.timed_out = self._silent and isinstance(error.__cause__, TimeoutError)
            raise


def _decode(line: bytes, what: str) -> tuple[str, Object]:
    try:
        event = decode.loads(line)
        kind, obj = event["type"], event["object"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise ApiUnavailableError(
            f"{what}: {line[:100]!r} is not a watch event; check for a proxy in front of the API server"
        ) from error
    if not isinstance(kind, str) or not isinstance(obj, dict):
        raise ApiUnavailableError(
            f"{what}: {line[:100]!r} is not a watch event; check for a proxy in front of the API server"
        )
    return kind, obj
