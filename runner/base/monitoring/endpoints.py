"""HTTP(S) servers of probes, metrics and the status page.

The number of connections to each server is bounded. A client that opens more, or leaves them idle, closes the oldest
connections: requests are short, so the newest connection always gets its response.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from aiohttp import web

from runner.base import log
from runner.values.errors import ConfigError

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
MOST_CONNECTIONS = 128
"""Maximum number of open connections for each address that a server listens on."""
_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """Address to listen on. An empty host means all interfaces, port 0 a free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, flag: str) -> Address | None:
        """Parse `host:port` or `:port`; None for `0` and empty text. Raises ConfigError."""
        if text in {"", "0"}:
            return None
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004 - the highest TCP port
            raise ConfigError(f"--{flag}: invalid address {text!r}: use host:port, :port, or 0 to disable")
        return cls(host.strip("[]"), int(port))


class _BoundedListener(socket.socket):
    """Listening socket that closes the oldest connection if there are too many, before and after TLS handshakes."""

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self._connections: list[socket.socket] = []
        """Accepted connections, the oldest first; some are closed."""
        self._has_warned = False

    def accept(self) -> tuple[socket.socket, object]:
        """Accept a connection."""
        connection, address = super().accept()
        self._connections = [open_one for open_one in self._connections if open_one.fileno() >= 0]
        if len(self._connections) >= MOST_CONNECTIONS:
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "Too many open connections: the operator closes the oldest. Find the client that opens them",
                    address=str(self.getsockname()),
                    client=str(address),
                    limit=MOST_CONNECTIONS,
                )
            with contextlib.suppress(OSError):  # the client has closed it already
                self._connections.pop(0).shutdown(socket.SHUT_RDWR)
        self._connections.append(connection)
        return connection, address


async def listen(runner: web.AppRunner, host: str | None, port: int, tls: ssl.SSLContext | None = None) -> int:
    """Listen with a bounded number of connections; return the port. A host of None means all interfaces.

    Raises:
        OSError: the address is in use or does not exist.
    """
    addresses = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE if host is None else 0
    )
    for family, kind, protocol, _, address in dict.fromkeys(addresses):
        try:
            listener = _BoundedListener(family, kind, protocol)
        except OSError:
            if len(addresses) == 1:
                raise
            continue  # this machine does not support every family, such as IPv6
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            await web.SockSite(runner, listener, ssl_context=tls).start()
        except BaseException:
            listener.close()
            raise
    bound: int = runner.addresses[0][1]
    return bound


async def serve(
    address: Address, handlers: Mapping[str, Handler], flag: str, tls: ssl.SSLContext | None = None
) -> tuple[web.AppRunner, int]:
    """Listen; return the server (call `cleanup`) and its port. Raises ConfigError if the address is in use."""
    app = web.Application()
    for path, handler in handlers.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        return runner, await listen(runner, address.host or None, address.port, tls)
    except OSError as error:
        await runner.cleanup()
        raise ConfigError(
            f"--{flag}: cannot listen on {address.host or '*'}:{address.port}: {error.strerror or error}; "
            "use another address, or 0 to disable"
        ) from error
