"""Server of the status page: static files, views as JSON, and a stream of server-sent events.

Access is read-only and limited to clients on this machine. A `Host` header with another name is rejected, against DNS
rebinding. A stream sends the current overview when something changed, at most once per interval. A client that does not
read is disconnected and delays nothing else.
Format of the stream: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from urllib.parse import urlsplit

import orjson
from aiohttp import web

from runner.base import log
from runner.base.config.settings import Settings
from runner.base.credentials import auth
from runner.base.monitoring import endpoints
from runner.base.monitoring.background import Work
from runner.base.monitoring.endpoints import Address, Handler
from runner.core.reconcile.controller import Controller
from runner.core.reconcile.feature import Operator, Part
from runner.features.ui.journal import Journal
from runner.features.ui.views import JSON, OperatorInfo, PageNotFoundError, Query, Views
from runner.values.objects import ObjectKey

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
class StreamTimings:
    """Timings of event streams in seconds."""

    interval: float = 1.0
    """Minimum time between two events."""
    keepalive: float = 15.0
    """Maximum time between two events; a write detects that the client has left."""
    write_timeout: float = 30.0
    """Maximum time of a write."""


class StatusPage:
    """The server. Create it in the operator's event loop."""

    def __init__(self, views: Views, timings: StreamTimings) -> None:
        self._views = views
        self._timings = timings
        self._runner: web.AppRunner | None = None
        self._closing = asyncio.Event()
        self._own_host = ""
        self.streams = 0

    async def start(self, address: Address) -> str:
        """Listen; return the URL of the page. Raises ConfigError if the address is in use."""
        folder = resources.files("runner.features.ui") / "files"
        handlers: dict[str, Handler] = {
            path: _file((folder / name).read_bytes(), name) for path, name in _FILES.items()
        }
        views = self._views
        handlers |= {
            "/api/overview": _json(lambda _: views.overview()),
            "/api/objects": _json(views.objects),
            "/api/queue": _json(views.queue),
            "/api/object": _json(views.object),
            "/api/runs": _json(views.runs),
            "/api/run": _json(views.run),
            "/api/details": _json(views.details),
            "/events": self._events,
        }
        guarded = {path: self._guarded(handler) for path, handler in handlers.items()}
        self._own_host = address.host.lower()
        self._runner, port = await endpoints.serve(address, guarded, FLAG)
        host = f"[{address.host}]" if ":" in address.host else address.host
        return f"http://{host}:{port}/"

    async def close(self) -> None:
        """Stop the server."""
        self._closing.set()
        if self._runner is not None:
            await self._runner.cleanup()

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            if _host(request.host) not in {*_OWN_NAMES, self._own_host}:
                refusal = "invalid Host header: open the page as http://localhost:PORT/"
                return web.Response(status=421, text=refusal, headers=_HEADERS)
            return await handler(request)

        return guarded

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self.streams >= MOST_STREAMS:
            return web.Response(status=503, text="too many open pages", headers=_HEADERS)
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        self.streams += 1
        try:
            await response.prepare(request)
            if request.method == "GET":
                await self._send_overviews(response)
        except ConnectionError:
            pass  # the client has disconnected
        except TimeoutError:
            _log.debug("Disconnecting a status page that does not read")
            if request.transport is not None:
                request.transport.abort()
        finally:
            self.streams -= 1
        return response

    async def _send_overviews(self, response: web.StreamResponse) -> None:
        """Send changed overviews until the operator stops or the client disconnects."""
        clock = asyncio.get_running_loop().time
        sent: tuple[object, ...] | None = None
        last = clock()
        while not self._closing.is_set():
            current = self._views.fingerprint()
            if current != sent or clock() - last >= self._timings.keepalive:
                text = orjson.dumps(await self._views.overview())
                async with asyncio.timeout(self._timings.write_timeout):
                    await response.write(b"event: overview\ndata: " + text + b"\n\n")
                sent, last = current, clock()
            try:
                async with asyncio.timeout(self._timings.interval):
                    await self._closing.wait()
            except TimeoutError:
                continue


def _json(view: Callable[[Query], Awaitable[JSON]]) -> Handler:
    async def show(request: web.Request) -> web.StreamResponse:
        try:
            body = orjson.dumps(await view(_query(request.query.get)))
        except PageNotFoundError as error:
            return web.json_response({"error": str(error)}, status=404, headers=_HEADERS)
        return web.Response(body=body, content_type="application/json", headers=_HEADERS)

    return show


def _file(content: bytes, name: str) -> Handler:
    async def show(_: web.Request) -> web.StreamResponse:
        kind = _TYPES[name.rpartition(".")[2]]
        return web.Response(body=content, content_type=kind, charset="utf-8", headers=_HEADERS)

    return show


def _host(header: str) -> str:
    """Return the name in a Host header without the port."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def _query(get: Callable[[str, str], str]) -> Query:
    page = get("page", "")
    return Query(
        kind=get("kind", ""),
        key=ObjectKey(get("namespace", ""), get("name", "")),
        ident=get("ident", ""),
        state=get("state", ""),
        result=get("result", ""),
        search=get("search", ""),
        page=int(page) if page.isdecimal() and len(page) < 8 else 1,  # noqa: PLR2004 - more digits than any page number has
    )


class OperatorPage(Part):
    """The page."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._journal = Journal(time.time)
        self.recorders = (self._journal,)

    async def start(self, operator: Operator, kinds: Sequence[Controller]) -> Mapping[str, Work]:
        """Serve the page."""
        settings, cluster = operator.settings, operator.client.credentials.base_url
        name = name_of(settings, auth.pod_namespace(auth.HostEnvironment.of_process()))
        place = OperatorInfo(name, cluster, settings.namespaces, settings.runner_dir, time.time())
        sections = [added for part in operator.parts if (added := part.sections()) is not None]
        views = Views(place, kinds, self._journal, sections, operator.dependents.owned_by)
        page = StatusPage(views, StreamTimings())
        url = await page.start(self._address)
        operator.stack.push_async_callback(page.close)
        _log.info("Serving the status page", url=url)
        return {"status page": views.follow}


def name_of(settings: Settings, pod_namespace: str | None) -> str:
    """Return the name of the operator: in pods, the folders of all projects have the same one."""
    return settings.leader_election_id or pod_namespace or settings.watches_file.resolve().parent.name
