"""One watch request, from its opening to its end, as typed events.

Promises: an ERROR event is raised as the ApiError it holds; a watch that goes silent, breaks, or is closed at once is
an ApiUnavailableError; one that the server closes in its own good time just ends. The event loop is given back every
few milliseconds, however fast events come.
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
    """Seconds, unless it says otherwise."""

    idle_limit: float = 90.0
    """A watch without a byte for so long is dead: the server sends a bookmark about each minute."""
    list_idle_limit: float = 30.0
    """The same within a streamed list: a server that does not know streamed lists would stay silent."""
    shortest_watch: float = 240.0
    longest_watch: float = 480.0
    """The server is asked to end a watch after a time between these two."""
    settled: float = 1.0
    """The end of a watch that lasted for so long is nothing to wonder about."""
    first_backoff: float = 0.1
    longest_backoff: float = 10.0
    longest_retry_after: float = 60.0
    """The most that a server's `Retry-After` is obeyed."""
    first_kind_poll: float = 1.0
    longest_kind_poll: float = 5.0
    first_page: int = 50
    """Objects; few, since nobody knows yet how large they are."""
    longest_page: int = 500
    page_bytes: int = 1 << 19
    """Pages are as long as keeps them about this large."""
    slice: float = 0.005
    """The event loop is not held for longer."""
    repeat_log: float = 60.0
    """An error that stays is logged again after so long."""


class Pacer:
    """Gives the event loop back when it was held for `slice_` seconds."""

    def __init__(self, slice_: float) -> None:
        self._slice = slice_
        self._time = asyncio.get_running_loop().time
        self._until = self._time() + slice_

    async def breathe(self) -> None:
        """Let others run, if it is their turn."""
        if self._time() >= self._until:
            await asyncio.sleep(0)
            self._until = self._time() + self._slice


class WatchStream:
    """A watch that is about to be opened. Iterate once."""

    def __init__(
        self, client: Client, path: str, params: Mapping[str, str], policy: WatchPolicy, *, metadata_only: bool
    ) -> None:
        self.patience: float | None = None
        """Seconds within which the next event has to come, where that is less than the idle limit. May be changed."""
        self.lasted = 0.0
        """Seconds that it was open, known when it has ended."""
        self.silent = True
        """Whether nothing ever came."""
        self._client = client
        self._path = path
        self._params = params
        self._policy = policy
        self._metadata_only = metadata_only

    @property
    def settled(self) -> bool:
        """Whether it lasted for more than a moment."""
        return self.lasted >= self._policy.settled

    @property
    def timed_out(self) -> bool:
        """Whether it was open all the time that a silent watch is given, and nothing came."""
        return self.silent and self.lasted >= self._policy.idle_limit

    async def events(self, opened: Callable[[], None]) -> AsyncGenerator[tuple[str, Object]]:
        """Yield type and object of each event. Calls `opened` once the server has agreed."""
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
                    self.silent = False
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
