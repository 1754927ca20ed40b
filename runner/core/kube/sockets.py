"""Sockets that detect a dead peer.

TCP keep-alive probes an idle peer every few seconds. `TCP_USER_TIMEOUT` (Linux, RFC 5482) limits the wait for
acknowledgements, which keep-alive does not cover.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress
from weakref import WeakSet

from aiohttp.connector import AddrInfoType

_IDLE = 15
_INTERVAL = 10
_PROBES = 3
_UNACKNOWLEDGED_MS = 30_000
_TURN = 0.001
_TURNS = 1000
"""Maximum iterations of the event loop; a few are usually enough."""


def make(address: AddrInfoType) -> socket.socket:
    """Make a TCP socket; aiohttp connects it."""
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
    return sock


class Sockets:
    """Sockets of one client, so that all are closed with it.

    A closed TLS connection waits for the peer's end, half a minute by asyncio's default; a session of aiohttp drops it
    at once.
    """

    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    def make(self, address: AddrInfoType) -> socket.socket:
        """Make a TCP socket; aiohttp connects it."""
        sock = make(address)
        self._made.add(sock)
        return sock

    async def close(self) -> None:
        """Shut down the open sockets; return when the event loop has released them. Connections cannot be used then."""
        for sock in list(self._made):
            with suppress(OSError):  # it is closed, or was never connected
                sock.shutdown(socket.SHUT_RDWR)
        # From here on each looks to its transport as if the peer had gone, which takes some turns of the loop.
        for _ in range(_TURNS):
            if all(sock.fileno() < 0 for sock in self._made):
                return
            await asyncio.sleep(_TURN)
