"""Connection pool of the API server.

Owns: addresses, TLS, HTTP proxies, and idle connections. An HTTP/1.1 connection serves one request at a time. Each
watch or exec uses one, so only the clients limit the number of connections.

Promises: a connection from the pool has received no unexpected data and uses the current credentials. If a connection
cannot be established, ApiUnavailableError is raised. Must not import: the meaning of requests.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from contextlib import ExitStack
from urllib.parse import SplitResult, unquote, urlsplit

import aiohappyeyeballs

from runner.base.credentials.auth import Credentials
from runner.core.kube import sockets
from runner.core.proxy.http.connection import BrokenError, MalformedError
from runner.core.proxy.http.ends import ServerConnection
from runner.values.errors import ApiUnavailableError

_CONNECT = 10.0
_IDLE = 30.0
"""Seconds until an idle connection is closed. The API server closes it later."""
_MOST_IDLE = 32
_OK = 200
_REDIRECT = 300


class Upstream:
    """Connection pool."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._idle: list[tuple[float, ServerConnection]] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def acquire(self, *, fresh: bool) -> ServerConnection:
        """Return a connection for one request; a new one if `fresh`."""
        while self._idle and not fresh:
            _, connection = self._idle.pop()
            connection.call_when_lost(None)
            if connection.is_quiet and connection.tls is self._credentials.ssl:
                connection.is_reused = True
                return connection
            connection.abort()
        return await self._dial()

    def release(self, connection: ServerConnection) -> None:
        """Return a connection to the pool."""
        if self._is_closed or not connection.is_quiet or len(self._idle) >= _MOST_IDLE:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        entry = (loop.time(), connection)
        self._idle.append(entry)
        connection.call_when_lost(lambda: self._drop(entry))
        if self._sweep is None:
            self._sweep = loop.call_later(_IDLE, self._drop_old)

    def close(self) -> None:
        """Close idle connections now, and active ones on release: a write can outlive its client and the proxy."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for _, connection in list(self._idle):
            connection.abort()
        self._idle.clear()

    def _drop(self, entry: tuple[float, ServerConnection]) -> None:
        if entry in self._idle:
            self._idle.remove(entry)

    def _drop_old(self) -> None:
        loop = asyncio.get_running_loop()
        old = [entry for entry in self._idle if entry[0] <= loop.time() - _IDLE]
        for entry in old:
            self._idle.remove(entry)
            entry[1].abort()
        self._sweep = loop.call_later(_IDLE, self._drop_old) if self._idle else None

    async def _dial(self) -> ServerConnection:
        credentials = self._credentials
        server = urlsplit(credentials.base_url)
        try:
            async with asyncio.timeout(_CONNECT):
                return await self._connect(server, urlsplit(credentials.proxy) if credentials.proxy else None)
        except ssl.SSLCertVerificationError as error:
            # The server's CA can have been rotated: reload the credentials for the next attempt.
            await credentials.refresh()
            raise ApiUnavailableError(f"{credentials.base_url}: {error}") from error
        except TimeoutError as error:
            raise ApiUnavailableError(f"{credentials.base_url}: no connection within {_CONNECT:g} s") from error
        except (OSError, BrokenError, MalformedError) as error:
            raise ApiUnavailableError(f"{credentials.base_url}: {error}") from error

    async def _connect(self, server: SplitResult, proxy: SplitResult | None) -> ServerConnection:
        credentials = self._credentials
        connection = await _open(proxy or server)
        with ExitStack() as unless_connected:
            unless_connected.callback(connection.abort)
            if proxy is not None:
                await _tunnel(connection, proxy, server)
            if credentials.ssl is not None:
                await connection.start_tls(credentials.ssl, credentials.server_hostname or server.hostname or "")
            connection.tls = credentials.ssl
            unless_connected.pop_all()
        return connection


async def _open(server: SplitResult) -> ServerConnection:
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(server.hostname or "", _port(server), type=socket.SOCK_STREAM)
    sock = await aiohappyeyeballs.start_connection(infos, happy_eyeballs_delay=0.25, socket_factory=sockets.make)
    _, connection = await loop.create_connection(ServerConnection, sock=sock)
    return connection


async def _tunnel(connection: ServerConnection, proxy: SplitResult, server: SplitResult) -> None:
    """Open a tunnel through an HTTP proxy by CONNECT (RFC 9110, 9.3.6), for http and https."""
    if proxy.scheme == "https":
        await connection.start_tls(ssl.create_default_context(), proxy.hostname or "")
    authority = f"{server.hostname}:{_port(server)}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if proxy.username:
        login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(login.encode()).decode()}")
    connection.expect("CONNECT")
    connection.write("\r\n".join([*lines, "", ""]).encode())
    head, _ = await connection.receive()
    if not _OK <= head.status < _REDIRECT:
        raise BrokenError(f"the proxy {proxy.hostname} refused to connect to {authority}: {head.status}")


def _port(server: SplitResult) -> int:
    return server.port or (443 if server.scheme == "https" else 80)
