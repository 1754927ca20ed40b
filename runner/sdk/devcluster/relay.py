"""Relay from a loopback port of this machine to the same port in a cluster's network namespace.

Run as a script: `relay.py PORT PID`. A socket stays in the namespace in which it was created. The relay therefore
creates the listening socket, enters the namespace of the process PID, and connects there. It transmits bytes only: TLS
is between the client and the API server.

Must import only the standard library and its neighbour `leash`: it runs with `python -I -S`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from runner.sdk.devcluster import leash
else:
    sys.path.insert(0, str(Path(__file__).parent))  # `-I` leaves it out
    import leash

_LOOPBACK = "127.0.0.1"
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: the client gets a reset, as from a server that was killed


class Side(asyncio.Protocol):
    """One side of a relayed connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Forward the data."""
        if self.other and self.other.transport:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        """Forward the end of the input; this side can still write."""
        if self.other and self.other.transport and not self.other.transport.is_closing():
            self.other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        """Stop reading from the other side while this side is slow."""
        if self.other and self.other.transport:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the other side again."""
        if self.other and self.other.transport and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        """Close the other side after its data is written."""
        if self.other and self.other.transport:
            self.other.transport.close()


class Front(Side):
    """The client's side; connects the other one."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the server before data is read."""
        super().connection_made(transport)
        cast("asyncio.Transport", transport).pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        front = cast("asyncio.Transport", self.transport)
        try:
            _, back = await asyncio.get_running_loop().create_connection(Side, _LOOPBACK, self._port)
        except OSError:
            front.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            front.abort()
            return
        self.other, back.other = back, self
        if front.is_closing():
            cast("asyncio.Transport", back.transport).close()
        else:
            front.resume_reading()


async def serve(listener: socket.socket, port: int) -> None:
    """Relay connections forever."""
    server = await asyncio.get_running_loop().create_server(lambda: Front(port), sock=listener)
    await server.serve_forever()


def main(port: int, process: str) -> None:
    """Listen, enter the namespace, and relay."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # with the socket that reserves the port
    listener.bind((_LOOPBACK, port))
    listener.listen(1024)
    leash.enter(Path("/proc", process, "ns"), ("net",))
    asyncio.run(serve(listener, port))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
