"""Serves the page: literal files, views as JSON, and a stream of server-sent events.

Who may look: whoever can reach this machine's loopback, under one of its own names, so that no web site that has a
name point here gets an answer; and only to read. A stream tells the overview when something is new, at most once in
an interval and always the latest: one that does not read holds nothing up but itself, and is closed after a while.
Source of the stream's form: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from urllib.parse import urlsplit

import orjson
from aiohttp import web

from runner import log
from runner.monitoring import endpoints
from runner.monitoring.endpoints import Address, Handler
from runner.objects import ObjectKey
from runner.ui.views import JSON, NotThereError, Views

FLAG = "ui-bind-address"
MOST_STREAMS = 16
_FILES = {"/": "index.html", "/page.js": "page.js", "/page.css": "page.css"}
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_OWN_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds."""

    interval: float = 1.0
    """Between two looks for something new."""
    silence: float = 15.0
    """After which a stream is told something even so: who has left is noticed by that."""
    patience: float = 30.0
    """For which a stream may not read."""


class Page:
    """The server. Make it in the event loop that it looks at."""

    def __init__(self, views: Views, pace: Pace | None = None) -> None:
        self._views = views
        self._pace = pace or Pace()
        self._runner: web.AppRunner | None = None
        self._closing = asyncio.Event()
        self._own_host = ""
        self.streams = 0

    async def start(self, address: Address) -> str:
        """Listen; return the page's address. A place that is taken is a ConfigError."""
        folder = resources.files("runner.ui") / "files"
        handlers: dict[str, Handler] = {
            path: _file((folder / name).read_bytes(), name) for path, name in _FILES.items()
        }
        handlers |= {path: self._json(view) for path, view in self._paths().items()}
        handlers["/events"] = self._events
        guarded = {path: self._guarded(handler) for path, handler in handlers.items()}
        self._own_host = address.host.lower()
        self._runner, port = await endpoints.serve(address, guarded, FLAG)
        host = f"[{address.host}]" if ":" in address.host else address.host
        return f"http://{host}:{port}/"

    async def close(self) -> None:
        """Answer no more."""
        self._closing.set()
        if self._runner is not None:
            await self._runner.cleanup()

    def _paths(self) -> Mapping[str, Callable[[web.Request], Awaitable[JSON]]]:
        views = self._views

        async def overview(_: web.Request) -> JSON:
            return await views.overview()

        async def objects(request: web.Request) -> JSON:
            wish = request.query.get
            return await views.objects(wish("kind", ""), wish("state", ""), wish("search", ""), _page(request))

        async def queue(request: web.Request) -> JSON:
            return await views.queue(request.query.get("kind", ""), _page(request))

        async def one(request: web.Request) -> JSON:
            return await views.object(request.query.get("kind", ""), _key(request))

        async def run(request: web.Request) -> JSON:
            return await views.run(request.query.get("kind", ""), _key(request), request.query.get("ident", ""))

        return {
            "/api/overview": overview,
            "/api/objects": objects,
            "/api/queue": queue,
            "/api/object": one,
            "/api/run": run,
        }

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            if _host(request.host) not in {*_OWN_NAMES, self._own_host}:
                refusal = "this page answers under the names of its own machine only: open it as http://localhost:PORT/"
                return web.Response(status=421, text=refusal, headers=_HEADERS)
            return await handler(request)

        return guarded

    def _json(self, view: Callable[[web.Request], Awaitable[JSON]]) -> Handler:
        async def show(request: web.Request) -> web.StreamResponse:
            try:
                body = orjson.dumps(await view(request))
            except NotThereError as error:
                return web.json_response({"error": str(error)}, status=404, headers=_HEADERS)
            return web.Response(body=body, content_type="application/json", headers=_HEADERS)

        return show

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self.streams >= MOST_STREAMS:
            return web.Response(status=503, text="too many pages are open", headers=_HEADERS)
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        self.streams += 1
        try:
            await response.prepare(request)
            if request.method == "GET":
                await self._tell(response)
        except ConnectionError:
            pass  # whoever looked has left
        except TimeoutError:
            _log.debug("A page that does not read is told nothing more")
            if request.transport is not None:
                request.transport.abort()
        finally:
            self.streams -= 1
        return response

    async def _tell(self, response: web.StreamResponse) -> None:
        """Tell what is new until the operator stops, or nobody listens."""
        clock = asyncio.get_running_loop().time
        told: tuple[object, ...] | None = None
        last = clock()
        while not self._closing.is_set():
            seen = self._views.fingerprint()
            if seen != told or clock() - last >= self._pace.silence:
                text = orjson.dumps(await self._views.overview())
                async with asyncio.timeout(self._pace.patience):
                    await response.write(b"event: overview\ndata: " + text + b"\n\n")
                told, last = seen, clock()
            try:
                await asyncio.wait_for(self._closing.wait(), self._pace.interval)
            except TimeoutError:
                continue


def _file(content: bytes, name: str) -> Handler:
    async def show(_: web.Request) -> web.StreamResponse:
        kind = _TYPES[name.rpartition(".")[2]]
        return web.Response(body=content, content_type=kind, charset="utf-8", headers=_HEADERS)

    return show


def _host(named: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{named}").hostname or "").lower()
    except ValueError:
        return ""


def _page(request: web.Request) -> int:
    text = request.query.get("page", "")
    return int(text) if text.isdecimal() and len(text) < 8 else 1  # noqa: PLR2004 - more pages than could ever be


def _key(request: web.Request) -> ObjectKey:
    return ObjectKey(request.query.get("namespace", ""), request.query.get("name", ""))
