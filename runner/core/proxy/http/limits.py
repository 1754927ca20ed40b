"""Limits of what clients can occupy: connections without a token, and large content.

Rule: input from outside is bounded before it costs. Must not import: the meaning of connections.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from runner.base import log

LARGE = 64 * 1024
"""Bytes of content that needs a turn."""
FIRST = 10.0
"""Seconds until the first request with a valid token."""
_MOST = 256
_BETWEEN_LINES = 60.0
_log = log.get(__name__)


class Newcomers:
    """Connections without a valid token. There is a limit of their number and age.

    If there are too many, the address with the most connections loses its oldest one. So a client does not displace
    clients with other addresses.
    """

    def __init__(self, what: str, most: int = _MOST) -> None:
        """`what` names the server in the log."""
        self._what, self._most = what, most
        self._held: dict[int, tuple[str, Callable[[], None], asyncio.TimerHandle]] = {}
        """Oldest first."""
        self._count = 0
        self._logged = -_BETWEEN_LINES
        self.closed = 0
        """Number of connections that were closed because there were too many, or because they sent no valid token."""

    def __len__(self) -> int:
        return len(self._held)

    def add(self, address: object, abort: Callable[[], None]) -> Callable[[], object]:
        """Add a connection; return the function to call when it has sent a valid token, or is closed."""
        host = str(address[0] if isinstance(address, tuple) else address)
        self._count = number = self._count + 1
        timer = asyncio.get_running_loop().call_later(FIRST, self._close, number)
        self._held[number] = host, abort, timer
        if len(self._held) > self._most:
            (busiest, _) = Counter(peer for peer, _, _ in self._held.values()).most_common(1)[0]
            self._close(next(oldest for oldest, (peer, _, _) in self._held.items() if peer == busiest))
        return lambda: self._forget(number)

    def _forget(self, number: int) -> Callable[[], None] | None:
        if (connection := self._held.pop(number, None)) is None:
            return None
        connection[2].cancel()
        return connection[1]

    def _close(self, number: int) -> None:
        host = self._held[number][0] if number in self._held else ""
        if (abort := self._forget(number)) is None:
            return
        self.closed += 1
        now = asyncio.get_running_loop().time()
        if now - self._logged >= _BETWEEN_LINES:
            self._logged = now
            _log.warning(
                "Closed connections that sent no valid token; find the client that opens them",
                server=self._what,
                client=host,
                connections=self.closed,
            )
        abort()


class Turn:
    """Permission to hold large content, with a time limit for its arrival."""

    def __init__(self, end: Callable[[], None], timer: asyncio.TimerHandle) -> None:
        self._end: Callable[[], None] | None = end
        self._timer = timer

    def arrived(self) -> None:
        """Note that all content arrived, so that the time limit ends."""
        self._timer.cancel()

    def end(self) -> None:
        """Let the next one begin; without effect the second time."""
        self._timer.cancel()
        end, self._end = self._end, None
        if end is not None:
            end()


class Turns:
    """Turns for large content: a few at once, in the order of requests, each for a limited time."""

    def __init__(self, most: int, seconds: float) -> None:
        self._places = asyncio.Semaphore(most)
        self._seconds = seconds

    async def take(self, abort: Callable[[], None]) -> Turn:
        """Wait for a turn. If the content takes too long, `abort` is called."""
        await self._places.acquire()
        return Turn(self._places.release, asyncio.get_running_loop().call_later(self._seconds, abort))
