"""A server for agents with an authority of its own, and the agent's connection in this process."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import socket
import ssl
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from runner.agent import frames
from runner.agent.frames import HEADER, Exit, Kind
from runner.agent.spool import Spool
from runner.agent.uplink import Uplink
from runner.engines.pod import jobs
from runner.engines.pod.links import Link, Links
from runner.engines.pod.spool import Frame
from tests.kit.wait import patience

NAME = "operator.pods.test"
RUN, TOKEN = "run-1", "token-1"
ORDER = b'{"kwargs": {}}\n' * 20_000
"""Several frames."""


class Echo(asyncio.Protocol):
    """What answers API calls: it sends back what it got."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"echo:" + data)


class EchoOfMetrics(Echo):
    """The same for metrics."""

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"metrics:" + data)


@dataclass
class Operator:
    """A server that can be restarted on its port."""

    folder: Path
    context: ssl.SSLContext
    ca: bytes
    host: str = "127.0.0.1"
    port: int = 0
    metrics: Callable[[], asyncio.Protocol] = EchoOfMetrics
    links: Links = field(init=False)

    async def start(self) -> None:
        self.links = Links(Echo, self.metrics)
        self.port = await self.links.start(self.host, self.port, self.context)

    def open(self, applied: int = 0, run: str = RUN, token: str = TOKEN) -> Link:
        order = self.folder / "order-of-the-operator"
        order.write_bytes(ORDER)
        return self.links.open(run, token, order, applied)

    def settings(self, token: str = TOKEN, **files: str) -> Path:
        """The folder of the Secret that an agent gets."""
        folder = self.folder / "settings"
        folder.mkdir(exist_ok=True)
        contents = {
            "run": RUN,
            "token": token,
            "ca.crt": self.ca.decode(),
            "server": f"{self.host}:{self.port}",
            "name": NAME,
        }
        for name, text in (contents | files).items():
            (folder / name).write_text(text)
        return folder


@dataclass
class Pod:
    """The agent's connection and spool, without processes."""

    uplink: Uplink
    spool: Spool
    order: Path
    stops: list[None]
    keeping: asyncio.Task[Exit]

    @property
    def began(self) -> bool:
        """Whether it has the order."""
        return self.uplink._has_order


class Client:
    """A client whose every byte is the test's own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, operator: Operator, protocol: str = frames.ALPN_LINK) -> Client:
        context = ssl.create_default_context(cadata=operator.ca.decode())
        if protocol:
            context.set_alpn_protocols([protocol])
        return cls(
            *await asyncio.open_connection(operator.host, operator.port, ssl=context, server_hostname=NAME),
        )

    def send(self, kind: int, number: int = 0, payload: bytes = b"") -> None:
        self.writer.write(HEADER.pack(kind, number, len(payload)) + payload)

    def hello(self, **fields: object) -> None:
        value = {
            "protocol": 1,
            "run": RUN,
            "token": TOKEN,
            "agent": "a",
            "has_order": True,
            "last": 0,
            "acknowledged": 0,
        }
        self.send(Kind.HELLO, 0, orjson.dumps(value | fields))

    def hello_of_metrics(self, run: str = RUN, token: str = TOKEN) -> None:
        self.send(Kind.METRICS, 0, orjson.dumps({"run": run, "token": token}))

    async def receive(self) -> tuple[int, int, bytes]:
        async with asyncio.timeout(patience()):
            kind, number, length = HEADER.unpack(await self.reader.readexactly(HEADER.size))
            return kind, number, await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """All bytes until the server closes the connection."""
        pieces: list[bytes] = []
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            async with asyncio.timeout(patience()):
                while piece := await self.reader.read(65536):
                    pieces.append(piece)
        return b"".join(pieces)

    def close(self) -> None:
        self.writer.transport.abort()


async def receive_all(link: Link) -> list[Frame]:
    """All frames until the last one."""
    frames: list[Frame] = []
    async with asyncio.timeout(patience()):
        while not frames or not frames[-1].end:
            frames.append(await link.receive())
    return frames


def ending(code: int | None = 0, **fields: object) -> bytes:
    return orjson.dumps(
        {"code": code, "error": "", "stderr": "", "oom_kills": 0, "memory_limit": 0} | fields,
    )


def free_port() -> int:
    """Return a port that is reserved for servers of asyncio until this process ends.

    They share it with the socket here, which does not listen. The kernel gives it to no other socket.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    holder.detach()
    return port


def agent_application(**constants: object) -> bytes:
    """The agent with other values of these constants."""
    stream, found = io.BytesIO(), []
    with zipfile.ZipFile(io.BytesIO(jobs.archive())) as original, zipfile.ZipFile(stream, "w") as changed:
        for file in original.namelist():
            source = original.read(file).decode()
            for name, value in constants.items():
                source, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", source, flags=re.MULTILINE)
                found += [name] * count
            changed.writestr(file, source)
    assert sorted(found) == sorted(constants)
    return stream.getvalue()
