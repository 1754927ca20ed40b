"""Connections of clients, and the pool of connections to the API server.

Owns: which malformed requests are rejected (RFC 9112, 3.2 and 6), and where a response ends, which depends on its
request. Also owns addresses, TLS, HTTP proxies, and idle connections. An HTTP/1.1 connection serves one request at a
time. Each watch or session uses one, so only the clients limit the number of connections.

Promises: a connection from the pool has received no unexpected data and uses the current credentials. If a connection
cannot be established, ApiUnavailableError is raised. Must not import: the meaning of messages.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from typing import cast
from urllib.parse import SplitResult, unquote, urlsplit

import aiohappyeyeballs
import httptools

from runner.base.credentials.auth import Credentials
from runner.core.kube import sockets
from runner.core.proxy.http import messages
from runner.core.proxy.http.connection import BrokenError, Connection, MalformedError
from runner.core.proxy.http.messages import UNTIL_CLOSE, RequestHead, ResponseHead
from runner.values.errors import ApiUnavailableError

_FIRST_FINAL = 200
_CONNECT = 10.0
_IDLE = 30.0
"""Seconds until an idle connection is closed. The API server closes it later."""
_MOST_IDLE = 32
_REDIRECT = 300


class ClientConnection(Connection[RequestHead]):
    """Connection of a client: receives requests, sends responses."""

    def __init__(self) -> None:
        self._url = b""
        self.admitted: Callable[[], object] = lambda: None
        """Called after the first request with a valid token, and when the connection is lost."""
        super().__init__()

    @property
    def peer(self) -> object:
        """The address of the client; None after the loss of the connection."""
        return None if self._transport is None else self._transport.get_extra_info("peername")

    def _new_parser(self) -> httptools.HttpRequestParser:
        return httptools.HttpRequestParser(self)

    def on_url(self, piece: bytes) -> None:
        """Collect the target."""
        self._url += piece
        self._size += len(piece)

    def _head(self) -> RequestHead:
        parser = cast("httptools.HttpRequestParser", self._parser)
        target, self._url = self._url, b""
        headers = self._headers
        version = parser.get_http_version()
        _check_request(version, headers)
        length = messages.request_length(headers)
        if length and parser.should_upgrade():
            raise MalformedError("a request with Upgrade cannot have content")
        return RequestHead(
            method=parser.get_method().decode("ascii"),
            target=_path_of(target),
            headers=headers,
            version=version,
            length=length,
            keep_alive=version == "1.1" and parser.should_keep_alive(),
            upgrade=messages.wanted_upgrade(headers) if parser.should_upgrade() else b"",
        )


class ServerConnection(Connection[ResponseHead]):
    """Connection to the API server: sends requests, receives responses."""

    def __init__(self) -> None:
        self._reason = b""
        self._answers_head = False
        self.tls: ssl.SSLContext | None = None
        """The TLS context of the connection."""
        self.is_reused = False
        self.has_answered = False
        """True if part of the current response was received."""
        super().__init__()

    def _new_parser(self) -> httptools.HttpResponseParser:
        return httptools.HttpResponseParser(self)

    def expect(self, method: str) -> None:
        """Set the method of the next request: a response to HEAD or a successful one to CONNECT has no content."""
        self._answers_head = method in {"HEAD", "CONNECT"}
        self.has_answered = False

    def data_received(self, data: bytes) -> None:
        """Parse data, or pass it to the joined connection."""
        self.has_answered = True
        super().data_received(data)

    def on_status(self, piece: bytes) -> None:
        """Collect the reason."""
        self._reason += piece

    def _head(self) -> ResponseHead:
        parser = cast("httptools.HttpResponseParser", self._parser)
        reason, self._reason = self._reason, b""
        status = parser.get_status_code()
        return ResponseHead(
            status=status,
            reason=reason,
            headers=self._headers,
            length=messages.response_length(self._headers, status, to_head=self._answers_head),
            keep_alive=parser.should_keep_alive(),
        )

    def on_headers_complete(self) -> None:
        """Create a message; a response without content ends here, whatever its headers contain."""
        super().on_headers_complete()
        head, body, _ = self._messages[-1]
        self._ends_with_connection = head.length == UNTIL_CLOSE
        if self._answers_head and head.status >= _FIRST_FINAL:
            body.ended = True
            self._body = None
            # The parser would wait for content.
            self._parser_is_spent = True

    def _parse(self, data: bytes) -> None:
        self._parser_is_spent = False
        super()._parse(data)
        if self._parser_is_spent and self._parser is not None:
            self._parser = self._new_parser()


def _check_request(version: str, headers: messages.Headers) -> None:
    """Reject ambiguous requests that the parser accepts."""
    if version not in {"1.0", "1.1"}:
        raise MalformedError("the version must be HTTP/1.0 or HTTP/1.1")
    hosts = sum(name.lower() == b"host" for name, _ in headers)
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise MalformedError("a request must have exactly one Host header")
    coding = messages.get(headers, b"transfer-encoding")
    if coding and (coding.lower() != b"chunked" or version != "1.1"):
        raise MalformedError("Transfer-Encoding must be chunked, and the version HTTP/1.1")


def _path_of(target: bytes) -> str:
    """Return the path and query of a target in origin or absolute form (RFC 9112, 3.2)."""
    text = target.decode("latin-1")
    if text[:7].lower() == "http://":
        slash = text.find("/", 7)
        text = text[slash:] if slash > 0 else "/"
    if not text.startswith("/") or "#" in text:
        raise MalformedError("the request target must be a path")
    return text


class Upstream:
    """Connection pool."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._idle: dict[ServerConnection, float] = {}
        """Since when each connection is idle; the latest one is last."""
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def acquire(self, *, fresh: bool) -> ServerConnection:
        """Return a connection for one request; a new one if `fresh`."""
        while self._idle and not fresh:
            connection, _ = self._idle.popitem()
            connection.on_lost = None
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
        self._idle[connection] = loop.time()
        connection.on_lost = lambda: self._idle.pop(connection, None)
        if self._sweep is None:
            self._sweep = loop.call_later(_IDLE, self._drop_old)

    def close(self) -> None:
        """Close idle connections now, and active ones on release: a write can outlive its client and the proxy."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in list(self._idle):
            connection.abort()
        self._idle.clear()

    def _drop_old(self) -> None:
        loop = asyncio.get_running_loop()
        for connection in [idle for idle, since in self._idle.items() if since <= loop.time() - _IDLE]:
            del self._idle[connection]
            connection.abort()
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
    host = server.hostname or ""
    authority = f"[{host}]:{_port(server)}" if ":" in host else f"{host}:{_port(server)}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if proxy.username:
        login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(login.encode()).decode()}")
    connection.expect("CONNECT")
    connection.write("\r\n".join([*lines, "", ""]).encode())
    head, _ = await connection.receive()
    if not _FIRST_FINAL <= head.status < _REDIRECT:
        raise BrokenError(f"the proxy {proxy.hostname} refused to connect to {authority}: {head.status}")


def _port(server: SplitResult) -> int:
    return server.port or (443 if server.scheme == "https" else 80)
