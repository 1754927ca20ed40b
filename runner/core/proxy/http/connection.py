"""HTTP/1.1 connection: parses messages, and passes bytes through after a protocol upgrade.

Owns: parsing (llhttp, strict, by httptools), flow control in both directions, and limits on buffered data. Connections
of clients and to the API server differ only in the direction of messages.

Promises: a message that is invalid by RFC 9112, such as one with ambiguous framing, closes the connection
(MalformedError). Reading from the peer stops while buffered data is not consumed. `read` and `drain` raise BrokenError
after the connection is lost. An idle connection has no buffers.

Assumes one reader at a time. Must not import: the meaning of messages.
"""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import httptools

from runner.core.proxy.http.limits import LARGE
from runner.core.proxy.http.messages import Headers, RequestHead, ResponseHead
from runner.core.proxy.http.tls import TlsClient

_HIGH = 128 * 1024
"""Buffered bytes at which reading from the peer stops."""
_LARGEST_HEAD = 64 * 1024
_MOST_HEADERS = 256
_TOO_LARGE = 431
_BAD_REQUEST = 400

Head = TypeVar("Head", RequestHead, ResponseHead)


class MalformedError(Exception):
    """The peer sent invalid or ambiguous HTTP/1.1."""

    def __init__(self, message: str, status: int = _BAD_REQUEST) -> None:
        super().__init__(message)
        self.status = status


class BrokenError(Exception):
    """The connection was lost before the operation completed."""


class Body:
    """Content of one message, streamed."""

    __slots__ = ("_connection", "_pieces", "ended", "failure")

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection
        self._pieces: list[bytes] = []
        self.ended = False
        self.failure: Exception | None = None

    def add(self, piece: bytes) -> None:
        """Buffer received bytes."""
        self._pieces.append(piece)

    def take(self) -> bytes:
        """Return the buffered bytes, which can be empty."""
        if not self._pieces:
            return b""
        taken = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._connection.consumed(len(taken))
        return taken

    async def read(self) -> bytes:
        """Wait for bytes and return them; empty at the end."""
        while not self._pieces and not self.ended:
            if self.failure is not None:
                raise self.failure
            await self._connection.arrival()
        return self.take()

    async def read_all(self, most: int, take_turn: Callable[[], Awaitable[None]] | None = None) -> bytes | None:
        """Return all remaining bytes. If they exceed `most`, return None and leave the bytes in the buffer.

        `take_turn` is awaited before many bytes are held.
        """
        read: list[bytes] = []
        size = 0
        while piece := await self.read():
            read.append(piece)
            size += len(piece)
            if size > LARGE and take_turn is not None:
                await take_turn()
            if size > most:
                self._pieces[:0] = read
                self._connection.consumed(-size)
                return None
        return b"".join(read)


class Connection(ABC, asyncio.Protocol, Generic[Head]):
    """HTTP/1.1 on a transport, for one direction of messages."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._messages: deque[tuple[Head, Body, int]] = deque()
        self._body: Body | None = None
        self._headers: Headers = []
        self._size = 0
        self._silent = 0
        self._buffered = 0
        self._paused = False
        self._failure: Exception | None = None
        self.is_lost = False
        """True after the connection was lost."""
        self._ends_with_connection = False
        self._arrived: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._surplus: bytearray | None = None
        self._peer: Connection[Any] | None = None
        self.on_lost: Callable[[], object] | None = None
        """Called once when the connection is lost."""
        self._parser: httptools.HttpRequestParser | httptools.HttpResponseParser | None = self._new_parser()

    @abstractmethod
    def _new_parser(self) -> httptools.HttpRequestParser | httptools.HttpResponseParser:
        """Create the parser."""

    @abstractmethod
    def _head(self) -> Head:
        """Return the head that the parser has read."""

    # Public interface.

    @property
    def is_congested(self) -> bool:
        """True if the write buffer is full."""
        return self._drained is not None

    @property
    def is_quiet(self) -> bool:
        """True between two messages, if the peer has sent no unexpected data."""
        return self._failure is None and self._body is None and not self._messages and not self._surplus

    async def receive(self) -> tuple[Head, Body]:
        """Return the next message: its head, and its body as it arrives."""
        while not self._messages:
            if self._failure is not None:
                raise self._failure
            await self.arrival()
        head, body, size = self._messages.popleft()
        self.consumed(size)
        return head, body

    def write(self, data: bytes) -> None:
        """Send bytes. They are buffered if the peer is slow, so call `drain` after large writes."""
        if self._transport is None or self.is_lost:
            raise BrokenError("the connection is closed")
        self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the write buffer has space."""
        if self._drained is not None:
            await asyncio.shield(self._drained)
        if self.is_lost:
            raise BrokenError("the connection is closed")

    def close(self) -> None:
        """Send buffered data, then close."""
        if self._transport is not None:
            self._transport.close()

    async def linger(self, seconds: float) -> None:
        """Close the write side, and discard received data for `seconds`. Raises BrokenError.

        Closing with unread bytes would reset the connection, and the peer could lose the response (RFC 9112, 9.6).
        """
        if self._transport is None or self.is_lost:
            return
        self._parser, self._surplus = None, None
        if self._transport.can_write_eof():
            try:
                self._transport.write_eof()
            except OSError as error:  # ENOTCONN, if the peer has reset the connection
                raise BrokenError(f"the connection was lost: {error}") from error
        self.resume()
        await asyncio.sleep(seconds)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    async def arrival(self) -> None:
        """Wait until data arrives or the connection is lost."""
        if self._arrived is not None:
            raise RuntimeError("two readers of one connection")
        self._arrived = asyncio.get_running_loop().create_future()
        try:
            await self._arrived
        finally:
            self._arrived = None

    def consumed(self, size: int) -> None:
        """Reduce the size of the buffer by consumed bytes, and resume reading if it is small enough."""
        self._buffered -= size
        if self._buffered < _HIGH // 2:
            self.resume()

    async def start_tls(self, context: ssl.SSLContext, name: str) -> None:
        """Start TLS as client."""
        if self._transport is None:
            raise BrokenError("the connection is closed")
        wrapped = TlsClient(self, context, name)
        self._transport.set_protocol(wrapped)
        wrapped.connection_made(self._transport)
        await wrapped.handshake

    def join(self, peer: Connection[Any]) -> None:
        """Pass all further bytes to `peer`, at its speed; close it if this connection was lost meanwhile."""
        self._peer = peer
        self._parser = None
        surplus, self._surplus = self._surplus, None
        if surplus:
            peer.write(bytes(surplus))
        self._buffered = 0
        if peer.is_congested:
            self.pause()
        else:
            self.resume()
        if self.is_lost:
            self._peer = None
            peer.close()

    def resume_http(self) -> None:
        """Continue with HTTP/1.1 after a rejected upgrade."""
        surplus, self._surplus = self._surplus, None
        if surplus is not None:
            self._parser = self._new_parser()
            self._buffered -= len(surplus)
            if surplus:
                self.data_received(bytes(surplus))

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a stream's protocol is given, for the types
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Parse data, or pass it to the joined connection."""
        if self._peer is not None:
            if not self._peer.is_lost:
                self._peer.write(data)
            return
        if self._surplus is not None:
            self._surplus += data
            self._hold(len(data))
            return
        self._parse(data)
        self._wake()

    def _parse(self, data: bytes) -> None:
        if self._parser is None:
            return
        self._silent += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._surplus = bytearray(data[upgrade.args[0] :])
            self._hold(len(self._surplus))
        except httptools.HttpParserError as error:
            # An exception of a callback is the context of the parser's error.
            cause = error.__context__
            self._fail(cause if isinstance(cause, MalformedError) else MalformedError(str(error)))
        else:
            if self._silent > _LARGEST_HEAD:
                self._fail(MalformedError(f"a head or chunk header of more than {_LARGEST_HEAD} bytes", _TOO_LARGE))

    def pause_writing(self) -> None:
        """Pause: the write buffer is full."""
        self._drained = asyncio.get_running_loop().create_future()
        if self._peer is not None:
            self._peer.pause()

    def resume_writing(self) -> None:
        """Resume: the write buffer has space."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)
        if self._peer is not None:
            self._peer.resume()

    def pause(self) -> None:
        """Stop reading."""
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Continue reading."""
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all waiting operations."""
        self.is_lost = True
        if self._body is not None and exc is None and self._ends_with_connection:
            self._body.ended = True
        self._fail(BrokenError(f"the connection was lost: {exc}" if exc else "the connection was closed"))
        self.resume_writing()
        self._parser = None
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()
        # Without cycles, all are freed without the garbage collector. The limit of a run counts connections.
        self._transport = None
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None

    # Callbacks of the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header. Trailers are dropped, as a proxy may do."""
        if self._body is not None:
            return
        self._size += len(name) + len(value) + 4
        self._headers.append((name, value))
        if self._size > _LARGEST_HEAD or len(self._headers) > _MOST_HEADERS:
            raise MalformedError(f"a head of more than {_LARGEST_HEAD} bytes or {_MOST_HEADERS} headers", _TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Create a message."""
        head = self._head()
        self._body = Body(self)
        self._messages.append((head, self._body, self._size))
        self._hold(self._size)
        self._headers, self._size, self._silent = [], 0, 0

    def on_chunk_header(self) -> None:
        """Reset the count of bytes without content."""
        self._silent = 0

    def on_body(self, piece: bytes) -> None:
        """Buffer content."""
        self._silent = 0
        if self._body is not None and not self._body.ended:
            self._body.add(piece)
            self._hold(len(piece))

    def on_message_complete(self) -> None:
        """End a message."""
        self._silent = 0
        if self._body is not None:
            self._body.ended = True
            self._body = None

    # Internal.

    def _hold(self, size: int) -> None:
        self._buffered += size
        if self._buffered > _HIGH:
            self.pause()

    def _fail(self, failure: Exception) -> None:
        if self._failure is None:
            self._failure = failure
        self._parser = None
        if self._body is not None and not self._body.ended:
            self._body.failure = self._failure
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
