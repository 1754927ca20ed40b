"""TLS with small buffers.

The TLS transport of asyncio allocates 256 KiB for each connection, and each watch is a connection.

`ssl.SSLObject` implements TLS itself. Promises: after the handshake, the protocol gets a normal transport with flow
control. A connection that is closed without a TLS close_notify ends with an error. Must not import: anything of this
package.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_RECORD = 16 * 1024
"""Maximum size of a TLS record in bytes (RFC 8446, 5.1)."""


class _Tls(asyncio.Protocol, asyncio.Transport):
    """Protocol of the network transport, and transport of the protocol above."""

    def __init__(self, context: ssl.SSLContext, name: str | None, protocol: Callable[[], asyncio.Protocol]) -> None:
        """`name`: the server's name for a client, None for a server. `protocol` is called after the handshake."""
        asyncio.Transport.__init__(self)
        self._make_protocol = protocol
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=name is None, server_hostname=name)
        self._below: asyncio.Transport | None = None
        self._is_shaken = False
        self._ended: Exception | None = ConnectionResetError("the peer closed without ending TLS")
        self.handshake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done after the handshake; fails with ssl.SSLError or OSError."""

    # Callbacks of the network transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a stream's protocol is given, for the types
        self._below = transport
        self._shake()

    def data_received(self, data: bytes) -> None:
        """Decrypt."""
        self._incoming.write(data)
        if not self._is_shaken:
            self._shake()
        if self._is_shaken:
            self._read()

    def pause_writing(self) -> None:
        """Delegate."""
        if self._is_shaken:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Delegate."""
        if self._is_shaken:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        error = exc or self._ended
        if not self._is_shaken:
            if not self.handshake.done():
                self.handshake.set_exception(error or ConnectionResetError("the peer closed"))
            return
        self._protocol.connection_lost(error)

    # Interface of a transport.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        if self._below is None or self._below.is_closing():
            return
        left = memoryview(data)
        try:
            while left:
                left = left[self._tls.write(left) :]
        except ssl.SSLError as error:
            self._fail(error)
        self._flush()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol above, as for TLS through a tunnel."""
        assert isinstance(protocol, asyncio.Protocol)  # noqa: S101 - what a stream's transport is given, for the types
        self._protocol = protocol

    def close(self) -> None:
        """Send buffered data and close_notify, then close."""
        if self._below is None or self._below.is_closing():
            return
        self._ended = None
        with suppress(ssl.SSLError):
            # Do not wait for the peer's close_notify.
            self._tls.unwrap()
        self._flush()
        self._below.close()

    def abort(self) -> None:
        """Close at once."""
        if self._below is not None:
            self._below.abort()

    def is_closing(self) -> bool:
        """Return whether the connection is closed or closing."""
        return self._below is None or self._below.is_closing()

    def pause_reading(self) -> None:
        """Delegate."""
        if self._below is not None:
            self._below.pause_reading()

    def resume_reading(self) -> None:
        """Delegate."""
        if self._below is not None:
            self._below.resume_reading()

    def can_write_eof(self) -> bool:
        """Return False: TLS ends both directions at once."""
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information about the network transport."""
        return default if self._below is None else self._below.get_extra_info(name, default)

    # Internal.

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()
            if not self.handshake.done():
                self.handshake.set_exception(error)
            self.abort()
            return
        self._flush()
        self._protocol = self._make_protocol()
        # It refers to a server's side. Without cycles, an ended connection is freed at once, and no limit counts it.
        del self._make_protocol
        self._is_shaken = True
        self._protocol.connection_made(self)
        if not self.handshake.done():
            self.handshake.set_result(None)

    def _read(self) -> None:
        pieces: list[bytes] = []
        ended = False
        try:
            while not ended:
                piece = self._tls.read(_RECORD)
                pieces.append(piece)
                ended = not piece
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError as error:
            self._fail(error)
        # Reading can produce TLS messages, such as key updates.
        self._flush()
        if pieces:
            self._protocol.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if ended and self._below is not None:
            self._ended = None
            self._below.close()

    def _flush(self) -> None:
        if self._outgoing.pending and self._below is not None and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    def _fail(self, error: Exception) -> None:
        self._ended = error
        self.abort()


class TlsClient(_Tls):
    """Client's side."""

    def __init__(self, protocol: asyncio.Protocol, context: ssl.SSLContext, name: str) -> None:
        super().__init__(context, name, lambda: protocol)


class TlsServer(_Tls):
    """Server's side, which lets the client choose the protocol above by ALPN (RFC 7301)."""

    def __init__(self, context: ssl.SSLContext, choose: Callable[[str | None], asyncio.Protocol]) -> None:
        """`choose` gets the negotiated protocol; None if the client and `context` have none in common."""
        super().__init__(context, None, lambda: choose(self._tls.selected_alpn_protocol()))
