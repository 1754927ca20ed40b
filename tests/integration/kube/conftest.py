"""A client and a kind of its own for each test, and a wire to the real API server that a test can cut or freeze."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pytest
import yaml

from runner.errors import ConflictError, KindNotFoundError, NotFoundError
from runner.kube.cache import Cache, Change
from runner.kube.client import EVERYTHING, Client, Selection
from runner.kube.credentials import auth
from runner.kube.credentials.auth import HostEnvironment
from runner.kube.discovery import ApiResource, Discovery
from runner.kube.watch import Watcher
from runner.kube.watch_events import Applied, Deleted, Restarted, Synced, WatchEvent
from runner.kube.watch_stream import WatchPolicy
from runner.objects import GVK, Object, ObjectKey, key_of
from runner.sdk.devcluster import DevCluster

CRD = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
QUICK = WatchPolicy(longest_backoff=1.0, first_kind_poll=0.2, longest_kind_poll=0.5)


async def until(condition: Callable[[], object], what: str = "", deadline: float = 30.0) -> None:
    """Wait until `condition` holds."""
    try:
        async with asyncio.timeout(deadline):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"waited {deadline:g} s in vain {what}") from None


async def connect(path: Path) -> Client:
    """Make a client of a kubeconfig's cluster."""
    return Client(await auth.load(str(path), None, HostEnvironment({}, path.parent)))


def altered(kubeconfig: Path, to: Path, *, server: str = "", user: dict[str, Any] | None = None) -> Path:
    """Write a copy of a kubeconfig with another server, or with more in its user."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"].update(user or {})
    if server:
        document["clusters"][0]["cluster"]["server"] = server
    path = to / f"{uuid.uuid4().hex}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


class Kind:
    """A kind that a CRD makes, and its objects."""

    def __init__(self, client: Client, *, scope: str = "Namespaced") -> None:
        self.client = client
        self.discovery = Discovery(client)
        self.group = f"t{uuid.uuid4().hex[:8]}.example.com"
        self.gvk = GVK(self.group, "v1", "Widget")
        self._scope = scope

    @property
    def _name(self) -> ObjectKey:
        return ObjectKey("", f"widgets.{self.group}")

    async def install(self, schema: Object | None = None) -> ApiResource:
        """Create the CRD, whose objects hold anything without a schema; return once objects can be created."""
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }
        names = {"kind": "Widget", "plural": "widgets"}
        spec = {"group": self.group, "names": names, "scope": self._scope, "versions": [version]}
        definition = {
            "apiVersion": CRD.api_version,
            "kind": CRD.kind,
            "metadata": {"name": self._name.name},
            "spec": spec,
        }
        crds = await self.discovery.find(CRD)
        async with asyncio.timeout(30):
            while True:
                try:
                    await self.client.create(crds, "", definition)
                    break
                except ConflictError:
                    await asyncio.sleep(0.05)
            while True:
                with contextlib.suppress(KindNotFoundError, NotFoundError):
                    resource = await self.discovery.find(self.gvk)
                    await self.client.list_page(resource, "", EVERYTHING, 1, "")
                    return resource
                await asyncio.sleep(0.05)

    async def remove(self) -> None:
        """Delete the CRD and with it all objects."""
        self.discovery.forget(self.gvk)
        with contextlib.suppress(NotFoundError):
            await self.client.delete(await self.discovery.find(CRD), self._name)

    async def create(self, namespace: str, name: str, **more: Any) -> Object:
        meta = {"name": name, **more.pop("metadata", {})}
        obj = {"apiVersion": self.gvk.api_version, "kind": "Widget", "metadata": meta, "spec": {"size": 1}, **more}
        return await self.client.create(await self.discovery.find(self.gvk), namespace, obj)


class Wire:
    """A TCP relay to the API server: what happens to a network happens here."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._refuses = False
        self._server: asyncio.Server | None = None
        self.connections = 0

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        return f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

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
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pump(source, sink, flows))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, flows: asyncio.Event) -> None:
        try:
            while data := await source.read(1 << 16):
                await flows.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass  # the other side is gone: so is this one
        finally:
            sink.close()
            self._open.discard(sink)


@dataclass
class Followed:
    """What a follower's watcher said and its cache made of it."""

    watcher: Watcher
    cache: Cache
    events: list[WatchEvent]
    changes: list[Change]

    until = staticmethod(until)

    def __str__(self) -> str:
        return " ".join(map(_word, self.events))

    @property
    def names(self) -> list[str]:
        return sorted(key.name for key in self.cache.keys())  # noqa: SIM118 - a cache is no mapping

    async def reaches(self, words: str) -> None:
        await until(lambda: str(self) == words, f"for {words!r}; saw {self}; {self.watcher.last_error}")

    async def holds(self, *names: str) -> None:
        await until(lambda: self.names == sorted(names), f"for {names}; holds {self.names}; {self.watcher.last_error}")


def _word(happened: WatchEvent) -> str:
    match happened:
        case Restarted():
            return "["
        case Synced():
            return "]"
        case Applied(obj):
            return f"+{key_of(obj).name}"
        case Deleted(obj):
            return f"-{key_of(obj).name}"


Follow: TypeAlias = Callable[..., Any]
Connect: TypeAlias = Callable[..., Awaitable[Client]]


@pytest.fixture
def follow() -> Follow:
    """Follow a kind for as long as a block lasts."""

    @asynccontextmanager
    async def run(
        client: Client, gvk: GVK, namespace: str = "", selector: str = "", policy: WatchPolicy = QUICK
    ) -> AsyncIterator[Followed]:
        watcher = Watcher(client, Discovery(client), gvk, namespace, Selection(selector), policy)
        followed = Followed(watcher, Cache(), [], [])

        async def consume() -> None:
            async for happened in watcher.events():
                followed.events.append(happened)
                followed.changes += followed.cache.apply(namespace, happened)

        task = asyncio.create_task(consume())
        try:
            yield followed
            assert not task.done(), "the watcher ended"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return run


@pytest.fixture
async def client(kubeconfig: Path) -> AsyncIterator[Client]:
    """The administrator's client."""
    async with await connect(kubeconfig) as made:
        yield made


@pytest.fixture
def connected(tmp_path: Path, kubeconfig: Path) -> Connect:
    """Make another client of the same cluster, its kubeconfig's user changed."""

    async def make(**user: Any) -> Client:
        return await connect(altered(kubeconfig, tmp_path, user=user))

    return make


@pytest.fixture
async def kind(client: Client) -> AsyncIterator[Kind]:
    """A namespaced kind, installed."""
    made = Kind(client)
    await made.install()
    yield made
    await made.remove()


@pytest.fixture
async def absent_kind(client: Client) -> AsyncIterator[Kind]:
    """A namespaced kind whose CRD is not installed yet."""
    made = Kind(client)
    yield made
    await made.remove()


@pytest.fixture
async def cluster_kind(client: Client) -> AsyncIterator[Kind]:
    """A cluster-scoped kind, installed."""
    made = Kind(client, scope="Cluster")
    await made.install()
    yield made
    await made.remove()


@pytest.fixture
async def wire(devcluster: DevCluster, tmp_path: Path) -> AsyncIterator[tuple[Wire, Client]]:
    """A wire, and a client at its end."""
    made = Wire(devcluster.url)
    async with await connect(altered(devcluster.kubeconfig, tmp_path, server=await made.start())) as far:
        yield made, far
    await made.stop()


async def direct(client: Client, resource: ApiResource, namespace: str) -> dict[ObjectKey, Object]:
    """Everything there is, straight from the API server, without `managedFields`."""
    found: dict[ObjectKey, Object] = {}
    cont = ""
    while True:
        page = await client.list_page(resource, namespace, EVERYTHING, 200, cont)
        for obj in page.items:
            obj["metadata"].pop("managedFields", None)
            found[key_of(obj)] = obj
        if not (cont := page.cont):
            return found


@pytest.fixture
def everything() -> Callable[..., Awaitable[dict[ObjectKey, Object]]]:
    """List straight from the API server."""
    return direct
