"""An API server whose answers the test scripts.

A real HTTP server on loopback that can misbehave as no real one does on demand. It stands at the I/O seam; what a
well-behaved API server does is tested against the real one in tests/integration/kube.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import pytest
from aiohttp import web

from runner.kube.cache import Cache, Change
from runner.kube.client import Client, ClientLimits, Selection
from runner.kube.credentials import auth
from runner.kube.credentials.auth import HostEnvironment
from runner.kube.discovery import Discovery
from runner.kube.watch import Watcher
from runner.kube.watch_events import Applied, Deleted, Restarted, Synced, WatchEvent
from runner.kube.watch_stream import WatchPolicy
from runner.objects import GVK, key_of

Answer: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Line: TypeAlias = dict[str, Any] | bytes | float | str

WIDGET = GVK("example.com", "v1", "Widget")
DISCOVERY = "/apis/example.com/v1"
ALL = f"{DISCOVERY}/widgets"


@dataclass(frozen=True)
class Seen:
    """A request that arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    peer: object
    """The connection's other end: the same for two requests on one connection."""


def reply(obj: object, status: int = 200, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        body = obj if isinstance(obj, bytes) else orjson.dumps(obj)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=body, headers=named, content_type="application/json")

    return answer


def refuse(code: int, reason: str, message: str = "", **headers: str) -> Answer:
    return reply({"kind": "Status", "code": code, "reason": reason, "message": message or reason}, code, **headers)


async def abort(request: web.Request) -> web.StreamResponse:
    """Break the connection without a word."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def hang(_: web.Request) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


def stream(*lines: Line) -> Answer:
    """A watch: dicts become lines, bytes are sent as they are, a number waits, "abort" breaks, "stay" stays open."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for line in lines:
            match line:
                case float():
                    await asyncio.sleep(line)
                case "stay":
                    await asyncio.Event().wait()
                case "abort":
                    return await abort(request)
                case bytes():
                    await response.write(line)
                case _:
                    await response.write(orjson.dumps(line) + b"\n")
        return response

    return answer


def widget(name: str, version: int, *, uid: str = "", namespace: str = "ns", **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {**meta, "generation": 1}, **more}


def event(kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": obj}


def bookmark(version: int, *, ends_list: bool = False) -> dict[str, Any]:
    meta: dict[str, Any] = {"resourceVersion": str(version)}
    if ends_list:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return event("BOOKMARK", {"kind": "Widget", "apiVersion": "example.com/v1", "metadata": meta})


def expired() -> dict[str, Any]:
    return event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})


def page(version: int, *items: dict[str, Any], cont: str = "") -> Answer:
    return reply(
        {"kind": "WidgetList", "metadata": {"resourceVersion": str(version), "continue": cont}, "items": items}
    )


def served(*, namespaced: bool = True) -> Answer:
    verbs = ["get", "list", "watch", "create", "patch", "delete"]
    return reply(
        {
            "kind": "APIResourceList",
            "groupVersion": "example.com/v1",
            "resources": [
                {"name": "widgets", "kind": "Widget", "namespaced": namespaced, "verbs": verbs},
                {"name": "widgets/status", "kind": "Widget", "namespaced": namespaced, "verbs": ["get", "patch"]},
            ],
        }
    )


async def until(condition: Callable[[], object], deadline: float = 5.0) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(deadline):
        while not condition():
            await asyncio.sleep(0.002)


@dataclass
class Api:
    """The scripted server. Each path has a list of answers; the last one is given again and again."""

    reply = staticmethod(reply)
    refuse = staticmethod(refuse)
    stream = staticmethod(stream)
    page = staticmethod(page)
    served = staticmethod(served)
    abort = staticmethod(abort)
    hang = staticmethod(hang)
    widget = staticmethod(widget)
    event = staticmethod(event)
    bookmark = staticmethod(bookmark)
    expired = staticmethod(expired)
    until = staticmethod(until)

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    script: dict[str, list[Answer]] = field(default_factory=dict)

    def on(self, path: str, *answers: Answer) -> None:
        """Answer requests to `path` with these, one after the other; replaces what was there."""
        self.script[path] = list(answers)

    def of(self, path: str) -> list[Seen]:
        """The requests to `path` so far."""
        return [request for request in self.seen if request.path == path]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        peer = request.transport.get_extra_info("peername") if request.transport else None
        body = await request.read()
        self.seen.append(Seen(request.method, request.path, dict(request.query), dict(request.headers), body, peer))
        answers = self.script.get(request.path)
        if not answers:
            return await refuse(404, "NotFound")(request)
        return await (answers.pop(0) if len(answers) > 1 else answers[0])(request)


def policy(**changes: Any) -> WatchPolicy:
    """A policy for tests: what takes seconds in life takes milliseconds here."""
    quick: dict[str, Any] = {
        "idle_limit": 5.0,
        "list_idle_limit": 5.0,
        "settled": 0.0,
        "first_backoff": 0.005,
        "longest_backoff": 0.02,
        "first_kind_poll": 0.005,
        "longest_kind_poll": 0.02,
        "first_page": 2,
    }
    return WatchPolicy(**{**quick, **changes})


class Follower:
    """Consumes a watcher as a controller does."""

    def __init__(self, watcher: Watcher, cache: Cache) -> None:
        self.watcher = watcher
        self.cache = cache
        self.events: list[WatchEvent] = []
        self.changes: list[Change] = []

    async def run(self) -> None:
        async for happened in self.watcher.events():
            self.events.append(happened)
            self.changes += self.cache.apply(self.watcher.namespace, happened)

    def __str__(self) -> str:
        return " ".join(map(_word, self.events))

    async def reaches(self, words: str) -> None:
        """Wait until all that was said so far is `words`: `[ +a ] -a` is a list of one object that then went."""
        try:
            await until(lambda: str(self) == words)
        except TimeoutError:
            raise AssertionError(f"expected {words!r}, saw {str(self)!r}; {self.watcher.last_error}") from None

    async def passes(self, words: str) -> None:
        """Wait until what was said begins with `words`, which silence may have more follow by now."""
        try:
            await until(lambda: str(self).startswith(words))
        except TimeoutError:
            raise AssertionError(f"expected {words!r} first, saw {str(self)!r}; {self.watcher.last_error}") from None

    @property
    def names(self) -> list[str]:
        return sorted(key.name for key in self.cache.keys())  # noqa: SIM118 - a cache is no mapping


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


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """The scripted server, running; it serves the discovery of Widgets."""
    made = Api()
    made.on(DISCOVERY, served())
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


KubeConfigFile: TypeAlias = Callable[..., Path]


@pytest.fixture
def write_kubeconfig(tmp_path: Path) -> KubeConfigFile:
    """Write a kubeconfig with one context."""

    def write(server: str, *, name: str = "config", user: dict[str, Any] | None = None, **cluster: Any) -> Path:
        path = tmp_path / name
        path.write_bytes(
            orjson.dumps(
                {
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                    "clusters": [{"name": "k", "cluster": {"server": server, **cluster}}],
                    "users": [{"name": "u", "user": user or {}}],
                }
            )
        )
        return path

    return write


@pytest.fixture
async def client(api: Api, write_kubeconfig: KubeConfigFile, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of the scripted server."""
    path = write_kubeconfig(api.url, user={"token": "t0ken"})
    credentials = await auth.load(str(path), None, HostEnvironment({}, tmp_path))
    async with Client(credentials, ClientLimits(longest_wait=0.02)) as made:
        yield made


Following: TypeAlias = Callable[..., Any]


@pytest.fixture
def following(client: Client) -> Following:
    """Follow Widgets for as long as a block lasts."""

    @asynccontextmanager
    async def follow(namespace: str = "", selector: str = "", **changes: Any) -> AsyncIterator[Follower]:
        watcher = Watcher(client, Discovery(client), WIDGET, namespace, Selection(selector), policy(**changes))
        follower = Follower(watcher, Cache())
        task = asyncio.create_task(follower.run())
        try:
            yield follower
            assert not task.done(), "the watcher ended"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return follow
