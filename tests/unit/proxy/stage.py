"""A proxy on loopback between a raw client and a raw server, so that every byte on both sides is the test's own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from runner.base.credentials import auth
from runner.base.credentials.auth import HostEnvironment
from runner.core.kube.discovery import ApiResource
from runner.core.proxy.calls import Handler, Observer
from runner.core.proxy.identity import Identities, RunIdentity
from runner.core.proxy.server import Proxy
from runner.features.masking import requests as masked
from runner.features.prune import run_objects as pruned
from runner.features.unchanged import requests as unchanged
from runner.values.errors import NotFoundError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, Owner, key_of
from tests.kit.cluster import kubeconfig_of
from tests.kit.wait import patience

OPERATOR_TOKEN = "operators-own"
OWNER = Owner(
    ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "sample"), "uid-sample"), namespaced=True
)


@dataclass
class Message:
    """A request or response as it was on the wire, its content put together."""

    start: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def get(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def status(self) -> int:
        return int(self.start.split()[1])

    @property
    def target(self) -> str:
        return self.start.split()[1]


async def read_head(reader: asyncio.StreamReader) -> Message:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = [line.partition(":") for line in lines[1:] if line]
    return Message(lines[0], [(name, value.strip(" \t")) for name, _, value in pairs])


async def read_chunk(reader: asyncio.StreamReader) -> bytes:
    size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
    piece = await reader.readexactly(size)
    assert await reader.readexactly(2) == b"\r\n"
    return piece


async def read_message(reader: asyncio.StreamReader, *, to_head: bool = False) -> Message:
    message = await read_head(reader)
    response = message.start.startswith("HTTP/")
    if to_head or (response and message.status in {101, 204, 304}):
        return message
    if message.get("Transfer-Encoding"):
        while piece := await read_chunk(reader):
            message.body += piece
    elif message.get("Content-Length"):
        message.body = await reader.readexactly(int(message.get("Content-Length") or 0))
    elif response and message.status >= 200:
        message.body = await reader.read()
    return message


class Wire:
    """A client's connection, in bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, data: bytes | str, *, to_head: bool = False) -> Message:
        """Send bytes and read one response."""
        self.send(data)
        return await self.answer(to_head=to_head)

    def send(self, data: bytes | str) -> None:
        self.writer.write(data.encode("latin-1") if isinstance(data, str) else data)

    async def answer(self, *, to_head: bool = False) -> Message:
        async with asyncio.timeout(patience()):
            return await read_message(self.reader, to_head=to_head)

    async def is_closed(self) -> bool:
        """Wait for the other side to close."""
        async with asyncio.timeout(patience()):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    def close(self) -> None:
        self.writer.close()


Script: TypeAlias = Callable[[Message, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class ApiServer:
    """The server behind the proxy. `script` answers each request whose content it has read."""

    script: Script
    seen: list[Message] = field(default_factory=list)
    connections: int = 0
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a connection ends."""
    heads_only: bool = False
    """Leave the content to the script."""
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                message = await (read_head(reader) if self.heads_only else read_message(reader))
                self.seen.append(message)
                await self.script(message, reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.lost.set()
            writer.close()

    def answers(self, *raw: bytes) -> None:
        """Give these answers, the last again and again."""
        left = list(raw)

        async def script(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(left.pop(0) if len(left) > 1 else left[0])

        self.script = script


def reply(body: bytes = b"{}", start: str = "200 OK", *headers: str) -> bytes:
    is_typed = any(header.lower().startswith("content-type:") for header in headers)
    media = [] if is_typed else ["Content-Type: application/json"]
    lines = [f"HTTP/1.1 {start}", *media, f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def make_run(**different: object) -> RunIdentity:
    values: dict[str, object] = {"ident": "job-1", "owner": OWNER, "inject": True, "watch_dependents": True}
    return RunIdentity(**{**values, "service_account": "", **different})  # type: ignore[arg-type]


@dataclass
class Stage:
    """A proxy, what is behind it, and a run that may use it."""

    reply = staticmethod(reply)
    make_run = staticmethod(make_run)
    read_head = staticmethod(read_head)
    read_chunk = staticmethod(read_chunk)
    read_message = staticmethod(read_message)

    api: ApiServer
    proxy: Proxy
    identities: Identities
    run: RunIdentity
    token: str
    port: int
    wires: list[Wire] = field(default_factory=list)

    async def connect(self) -> Wire:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.port))
        self.wires.append(wire)
        return wire

    def request(self, start: str = "GET /api/v1/pods", *headers: str, body: bytes = b"") -> bytes:
        lines = [f"{start} HTTP/1.1", "Host: here", f"Authorization: Bearer {self.token}", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    async def ask(self, start: str, *headers: str, body: bytes = b"") -> Message:
        """Ask on a connection of its own."""
        wire = await self.connect()
        answer = await wire.ask(self.request(start, *headers, body=body))
        wire.close()
        return answer

    async def get(self, path: str = "/api/v1/pods", *headers: str) -> Message:
        return await self.ask(f"GET {path}", *headers)


@dataclass
class RecordedDependents:
    """API server with the discovery of `/api/v1` and some objects; dependents that record what handlers report."""

    discovery: Object
    existing: dict[ObjectKey, Object | Exception] = field(default_factory=dict)
    reports: list[tuple[str, str]] = field(default_factory=list)
    interested: bool = True

    async def request(self, method: str, path: str) -> Object:
        assert (method, path) == ("GET", "/api/v1")
        return self.discovery

    async def get(self, _resource: ApiResource, key: ObjectKey) -> Object:
        obj = self.existing.get(key, NotFoundError("no", status=404))
        if isinstance(obj, Exception):
            raise obj
        return obj

    def wants(self, _owner: Owner, _resource: ApiResource, _namespace: str) -> bool:
        return self.interested

    def read(self, owner: Owner, resource: ApiResource, obj: Object) -> None:
        self.reports.append((f"read {resource.plural} of {owner.ref.key.name}", key_of(obj).name))

    def wrote(self, owner: Owner, resource: ApiResource, obj: Object) -> None:
        self.reports.append((f"wrote {resource.plural} of {owner.ref.key.name}", key_of(obj).name))

    def deleted(self, owner: Owner, resource: ApiResource, answer: Object) -> None:
        self.reports.append((f"deleted {resource.plural} of {owner.ref.key.name}", key_of(answer).name))


Staged: TypeAlias = Callable[..., AbstractAsyncContextManager[Stage]]
"""Starts a stage with handlers of the test's own, see `stand`."""


@asynccontextmanager
async def stand(
    folder: Path,
    *handlers: Handler,
    observers: Sequence[Observer] = (),
    tls: ssl.SSLContext | None = None,
    acting_as: str = "",
    **cluster: object,
) -> AsyncIterator[Stage]:
    """Start a server and a proxy before it; `cluster` is what else the operator's kubeconfig says of the cluster, and
    `acting_as` whom its user impersonates.
    """
    api = ApiServer(lambda *_: asyncio.sleep(0))
    api.answers(reply())
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0, ssl=tls)
    api.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    path = folder / "operator.kubeconfig"
    path.write_text(kubeconfig_of({"server": api.url, **cluster}, {"token": OPERATOR_TOKEN, "as": acting_as}))
    credentials = await auth.load(str(path), None, HostEnvironment({}, folder))
    identities = Identities()
    own = [masked.OBSERVER, unchanged.OBSERVER, pruned.OBSERVER]
    proxy = Proxy(credentials, identities, handlers, [*own, *observers], {masked.NO_LOG_PATH: masked.receive})
    port = await proxy.start("127.0.0.1", 0)
    run = make_run()
    stage = Stage(api, proxy, identities, run, identities.issue(run), port)
    try:
        yield stage
    finally:
        for wire in stage.wires:
            wire.close()
        await proxy.close(0.0)
        server.close()
