"""One end of an HTTP/1.1 connection: bytes become messages, and after an upgrade stay bytes.

Owns: parsing (llhttp, strict, by httptools), flow control in both directions, and the bounds of what a peer may make us
hold. A client's and the API server's end are the same thing but for the direction of messages.

Promises: what RFC 9112 calls invalid ends the connection (MalformedError), ambiguous framing first of all; a peer that
nobody reads from is not read from; `read` and `drain` raise BrokenError once the connection is lost. An idle connection
holds no buffers.

Assumes one reader at a time. Must not import: what the messages are about.
"""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import httptools

from runner.proxy.http.messages import Headers, RequestHead, ResponseHead
from runner.proxy.http.tls import TlsClient

_HIGH = 128 * 1024
"""Bytes read and not asked for yet, from which on the peer has to wait."""
_LARGEST_HEAD = 64 * 1024
_MOST_HEADERS = 256
_TOO_LARGE = 431
_BAD_REQUEST = 400

Head = TypeVar("Head", RequestHead, ResponseHead)


class MalformedError(Exception):
    """The peer does not speak HTTP/1.1, or so that its messages could be understood in two ways."""

    def __init__(self, message: str, status: int = _BAD_REQUEST) -> None:
        super().__init__(message)
        self.status = status


class BrokenError(Exception):
    """The connection was lost before what was asked of it."""


class Body:
    """The content of one message, as it arrives."""

    __slots__ = ("_connection", "_pieces", "ended", "failure")

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection
        self._pieces: list[bytes] = []
        self.ended = False
        self.failure: Exception | None = None

    def add(self, piece: bytes) -> None:
        """Note what has arrived."""
        self._pieces.append(piece)

    def take(self) -> bytes:
        """Return what has arrived and was not taken yet; perhaps nothing."""
        if not self._pieces:
            return b""
        taken = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._connection.consumed(len(taken))
        return taken

    async def read(self) -> bytes:
        """Return what has arrived, waiting for some of it; nothing means the end."""
        while not self._pieces and not self.ended:
            if self.failure is not None:
                raise self.failure
            await self._connection.arrival()
        return self.take()

    async def read_all(self, most: int) -> bytes | None:
        """Return the whole rest. None when it is more than `most` bytes: what was read is put back, the rest unread."""
        read: list[bytes] = []
        size = 0
        while piece := await self.read():
            read.append(piece)
            size += len(piece)
            if size > most:
                self._pieces[:0] = read
                self._connection.consumed(-size)
                return None
        return b"".join(read)


class Connection(ABC, asyncio.Protocol, Generic[Head]):
    """Speaks HTTP/1.1 on a transport, in one direction of messages."""

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
        self._lost = False
        self._ends_with_connection = False
        self._arrived: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._beyond: bytearray | None = None
        self._peer: Connection[Any] | None = None
        self._on_lost: Callable[[], None] | None = None
        self._parser: httptools.HttpRequestParser | httptools.HttpResponseParser | None = self._new_parser()

    @abstractmethod
    def _new_parser(self) -> httptools.HttpRequestParser | httptools.HttpResponseParser:
        """Make the parser of this side's messages."""

    @abstractmethod
    def _head(self) -> Head:
        """The head that the parser has just read."""

    # What others ask of a connection.

    @property
    def is_lost(self) -> bool:
        """Whether nothing more can come or go."""
        return self._lost

    @property
    def is_congested(self) -> bool:
        """Whether the peer is slower than what is written."""
        return self._drained is not None

    @property
    def is_quiet(self) -> bool:
        """Whether it stands between two messages: nothing came that was not asked for."""
        return self._failure is None and self._body is None and not self._messages and not self._beyond

    def call_when_lost(self, callback: Callable[[], None] | None) -> None:
        """Set what is called once the connection is lost."""
        self._on_lost = callback

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
        """Send; what the peer does not take at once waits here, so follow large writes by `drain`."""
        if self._transport is None or self._lost:
            raise BrokenError("the connection is closed")
        self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the peer has taken most of what was written."""
        if self._drained is not None:
            await asyncio.shield(self._drained)
        if self._lost:
            raise BrokenError("the connection is closed")

    def close(self) -> None:
        """Send what is written, then close."""
        if self._transport is not None:
            self._transport.close()

    async def linger(self, seconds: float) -> None:
        """Say that nothing more comes, and drop what the peer still sends: closing on unread bytes would reset the
        connection, and the peer might lose what was written (RFC 9112, 9.6).
        """  # noqa: D205 - one thought
        if self._transport is None or self._lost:
            return
        self._parser, self._beyond = None, None
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.resume()
        await asyncio.sleep(seconds)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    async def arrival(self) -> None:
        """Wait until something has happened: something arrived, or the connection was lost."""
        if self._arrived is not None:
            raise RuntimeError("two readers of one connection")
        self._arrived = asyncio.get_running_loop().create_future()
        try:
            await self._arrived
        finally:
            self._arrived = None

    def consumed(self, size: int) -> None:
        """Note that bytes have left the buffer; the peer may go on."""
        self._buffered -= size
        if self._paused and self._buffered < _HIGH // 2 and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    async def start_tls(self, context: ssl.SSLContext, name: str) -> None:
        """Go on within TLS, as its client."""
        if self._transport is None:
            raise BrokenError("the connection is closed")
        wrapped = TlsClient(self, context, name)
        self._transport.set_protocol(wrapped)
        wrapped.connection_made(self._transport)
        await wrapped.handshake

    def join(self, peer: Connection[Any]) -> None:
        """From here on pass every byte to `peer`, at the speed that it takes them."""
        self._peer = peer
        self._parser = None
        beyond, self._beyond = self._beyond, None
        if beyond:
            peer.write(bytes(beyond))
        self._buffered = 0
        if peer.is_congested:
            self.pause()
        else:
            self.resume()

    def stay(self) -> None:
        """Go on with HTTP/1.1 after an upgrade that was asked for and did not come."""
        beyond, self._beyond = self._beyond, None
        if beyond is not None:
            self._parser = self._new_parser()
            self._buffered -= len(beyond)
            if beyond:
                self.data_received(bytes(beyond))

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a stream's protocol is given, for the types
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Parse, or pass on."""
        if self._peer is not None:
            if not self._peer.is_lost:
                self._peer.write(data)
            return
        if self._beyond is not None:
            self._beyond += data
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
            self._beyond = bytearray(data[upgrade.args[0] :])
            self._hold(len(self._beyond))
        except httptools.HttpParserError as error:
            # What a callback of ours raised comes as the error's cause.
            cause = error.__context__
            self._fail(cause if isinstance(cause, MalformedError) else MalformedError(str(error)))
        else:
            if self._silent > _LARGEST_HEAD:
                self._fail(MalformedError(f"a head or chunk header of more than {_LARGEST_HEAD} bytes", _TOO_LARGE))

    def pause_writing(self) -> None:
        """The peer is slower than we are."""
        self._drained = asyncio.get_running_loop().create_future()
        if self._peer is not None:
            self._peer.pause()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)
        if self._peer is not None:
            self._peer.resume()

    def pause(self) -> None:
        """Read no more for now."""
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: whoever waits learns it."""
        self._lost = True
        if self._body is not None and exc is None and self._ends_with_connection:
            self._body.ended = True
        self._fail(BrokenError(f"the connection was lost: {exc}" if exc else "the connection was closed"))
        self.resume_writing()
        self._parser = None
        if self._peer is not None:
            self._peer.close()
        # Both know each other; without this they would stay until the garbage collector comes by.
        self._transport = None
        if self._on_lost is not None:
            self._on_lost()
            self._on_lost = None

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header; those behind a body (trailers) are dropped, as a proxy may."""
        if self._body is not None:
            return
        self._size += len(name) + len(value) + 4
        self._headers.append((name, value))
        if self._size > _LARGEST_HEAD or len(self._headers) > _MOST_HEADERS:
            raise MalformedError(f"a head of more than {_LARGEST_HEAD} bytes or {_MOST_HEADERS} headers", _TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Make a message of what was collected."""
        head = self._head()
        self._body = Body(self)
        self._messages.append((head, self._body, self._size))
        self._hold(self._size)
        self._headers, self._size, self._silent = [], 0, 0

    def on_chunk_header(self) -> None:
        """Count anew what comes without content."""
        self._silent = 0

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of a body."""
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

    # Within.

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
