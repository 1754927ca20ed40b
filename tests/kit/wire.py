"""A wire to a server, which a test can cut or freeze, and along which a reader can look: bytes are handed through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import urlsplit

Look = Callable[[bytes], object]


class Wire:
    """A TCP relay: what happens to a network happens here. `reader` makes what reads the requests of a connection.

    Data takes `delay` seconds in each direction.
    """

    def __init__(self, url: str, reader: Callable[[], Look] = lambda: len, delay: float = 0) -> None:
        self._delay = delay
        self._target = urlsplit(url)
        self._reader = reader
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._refuses = False
        self._server: asyncio.Server | None = None
        self.connections = 0
        self.port = 0

    async def start(self, address: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; return the URL on the loopback interface."""
        self._server = await asyncio.start_server(self._relay, address, port)
        self.port = self._server.sockets[0].getsockname()[1]
        return f"{self._target.scheme}://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break every connection, and every new one, until `mend`."""
        self._refuses = True
        for writer in self._open:
            writer.transport.abort()

    def mend(self) -> None:
        self._refuses = False

    def freeze(self) -> None:
        """Let the present connections hang: no data arrives and no connection is closed. New ones work."""
        frozen, self._flows = self._flows, asyncio.Event()
        frozen.clear()
        self._flows.set()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._open:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        self.connections += 1
        try:
            there, back = await asyncio.open_connection(self._target.hostname, self._target.port)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, back}
        flows = self._flows
        for source, sink, look in ((reader, back, self._reader()), (there, writer, len)):
            task = asyncio.create_task(self._pump(source, sink, flows, look))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, flows: asyncio.Event, look: Look
    ) -> None:
        try:
            while data := await source.read(1 << 16):
                await flows.wait()
                look(data)
                if self._delay:  # later data does not wait for earlier data
                    asyncio.get_running_loop().call_later(self._delay, sink.write, data)
                else:
                    sink.write(data)
                    await sink.drain()
            await asyncio.sleep(self._delay)
        except OSError:
            pass  # the other side is gone: so is this one
        finally:
            sink.close()
            self._open.discard(sink)
