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
from asyncio import StreamReader, StreamWriter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.sdk.devcluster import leash
else:
    sys.path.insert(0, str(Path(__file__).parent))  # `-I` leaves it out
    import leash

_LOOPBACK = "127.0.0.1"
_CHUNK = 1 << 18
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: the client gets a reset, as from a server that was killed


async def relay(port: int, reader: StreamReader, writer: StreamWriter) -> None:
    """Connect a client to the server, until both sides have ended or one of them is lost."""
    try:
        from_server, to_server = await asyncio.open_connection(_LOOPBACK, port)
    except OSError:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()
        return
    try:
        async with asyncio.TaskGroup() as directions:
            directions.create_task(_forward(reader, to_server))
            directions.create_task(_forward(from_server, writer))
    except* OSError:
        pass
    finally:
        to_server.close()
        writer.close()


async def _forward(reader: StreamReader, writer: StreamWriter) -> None:
    """Forward data and its end; the receiver can still write then."""
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def serve(listener: socket.socket, port: int) -> None:
    """Relay connections forever."""
    server = await asyncio.start_server(partial(relay, port), sock=listener)
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
