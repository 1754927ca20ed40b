"""Sockets that notice a dead peer.

TCP keep-alive asks an idle peer every few seconds; `TCP_USER_TIMEOUT` (Linux, RFC 5482) gives up on bytes that nobody
acknowledges, which keep-alive does not look at.
"""

from __future__ import annotations

import socket
import sys

from aiohttp.connector import AddrInfoType

_IDLE = 15
_INTERVAL = 10
_PROBES = 3
_UNACKNOWLEDGED_MS = 30_000


def make(address: AddrInfoType) -> socket.socket:
    """Make a TCP socket; aiohttp connects it."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
    return made
