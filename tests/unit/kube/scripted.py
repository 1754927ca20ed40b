"""An API server whose answers the test scripts.

A real HTTP server on loopback that can misbehave as no real one does on demand. It stands at the I/O seam; what a
well-behaved API server does is tested against the real one in tests/integration/kube.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import orjson
from aiohttp import web

from runner.values.objects import GVK

Answer: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Line: TypeAlias = dict[str, Any] | bytes | float | str | asyncio.Event

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
    """A watch: dicts become lines, bytes are sent as they are, "abort" breaks, "stay" stays open.

    A number waits so many seconds, an Event until it is set.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for line in lines:
            match line:
                case float():
                    await asyncio.sleep(line)
                case asyncio.Event():
                    await line.wait()
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


def bookmark(version: int) -> dict[str, Any]:
    meta = {"resourceVersion": str(version)}
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


KubeConfigFile: TypeAlias = Callable[..., Path]
