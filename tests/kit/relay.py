"""What stands between operator and API server, and fails on request: HTTP over TLS, with the server's own certificate.

Every fault is a `Rule`: which requests, how many of them, and what becomes of one. Without rules everything is handed
through, watches as they come. A `Lag` holds the events of one path's watches back. A `KillPoint` ends the operator at
one of its writes. Runs in a thread of its own; its methods may be called from any.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

_NOT_PASSED_ON = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "upgrade", "te", "trailer"}
_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}
_UNAUTHORIZED = 401
_FIRST_REFUSAL = 300
_TLS_CLOSES = 0.25
"""Seconds in which connections over TLS close."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The API server is not asked; this is the answer."""

    status: int
    retry_after: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Delay:
    """The request waits before the API server gets it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class LoseRequest:
    """The connection ends before the API server gets the request."""


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """The API server does what it is asked; the connection ends before its answer."""


@dataclass(frozen=True, slots=True)
class ExpireInStream:
    """A watch opens, and says that it is too old."""


Action: TypeAlias = Refuse | Delay | LoseRequest | LoseAnswer | ExpireInStream


def anything(_: web.BaseRequest) -> bool:
    """Every request."""
    return True


def is_watch(request: web.BaseRequest) -> bool:
    """A watch, from the start or taken up."""
    return request.query.get("watch") == "true"


def is_watch_taken_up(request: web.BaseRequest) -> bool:
    """A watch that goes on from a place in time, which the server may have forgotten."""
    return is_watch(request) and request.query.get("resourceVersion", "") not in {"", "0"}


def is_status_write(request: web.BaseRequest) -> bool:
    """A write of an object's status."""
    return request.method in {"PATCH", "PUT"} and request.path.endswith("/status")


def is_write(request: web.BaseRequest) -> bool:
    """Any write."""
    return request.method in {"PATCH", "PUT", "POST", "DELETE"}


class Release(Enum):
    """What becomes of the events that a frozen watch has missed."""

    EACH = "each"
    """All of them arrive, in order."""
    MERGED = "merged"
    """Only the last one of each object arrives."""
    EXPIRED = "expired"
    """None arrives: the server ends the watch with 410."""


@dataclass(slots=True)
class Lag:
    """How far the watches of one path lag behind."""

    delay: float = 0.0
    """Seconds before each event."""
    release: Release = Release.EACH
    flows: asyncio.Event = field(default_factory=asyncio.Event)
    past: dict[str, Any] | None = None
    """List from which a frozen watch continues; None: the current one."""
    received: int = 0
    """Events that the API server sent."""

    def is_frozen(self) -> bool:
        """Whether events wait."""
        return not self.flows.is_set()

    async def pass_on(self, source: AsyncIterable[bytes], answer: web.StreamResponse) -> None:
        """Write the events of a watch, late."""
        lines: asyncio.Queue[bytes] = asyncio.Queue()

        async def read() -> None:
            async for line in source:
                self.received += 1
                lines.put_nowait(line)
            lines.put_nowait(b"")

        reading = asyncio.create_task(read())
        try:
            while line := await lines.get():
                await asyncio.sleep(self.delay)
                batch = [line]
                if self.is_frozen():
                    await self.flows.wait()
                    while not lines.empty():
                        batch.append(lines.get_nowait())
                    if self.release is Release.EXPIRED:
                        await answer.write(json.dumps({"type": "ERROR", "object": _body(410)}).encode() + b"\n")
                        return
                    if self.release is Release.MERGED:
                        batch = merged(batch)
                for each in batch:
                    await answer.write(each)
        finally:
            reading.cancel()


def merged(lines: Iterable[bytes]) -> list[bytes]:
    """Keep the last event of each object, as a watch that is taken up later would have it."""
    first: dict[tuple[str, str], dict[str, Any]] = {}
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for event in (json.loads(line) for line in lines if line):
        meta = event["object"].get("metadata", {})
        key = meta.get("namespace", ""), meta.get("name", "")
        first.setdefault(key, event)
        last.pop(key, None)
        last[key] = event
    found = []
    for key, event in last.items():
        began = first[key]["type"]
        if began == "ADDED" and event["type"] == "DELETED":
            continue
        kind = "MODIFIED" if began != "ADDED" and event["type"] == "ADDED" else event["type"]
        found.append({**event, "type": "ADDED" if began == "ADDED" and kind == "MODIFIED" else kind})
    return [json.dumps(event).encode() + b"\n" for event in found]


@dataclass(frozen=True, slots=True)
class KillPoint:
    """One effective write of the operator or its runs, and whether the operator ends before or after it."""

    number: int
    """From 1."""
    before: bool
    kill: Callable[[], None]
    path: str = ""
    """Only writes whose path contains it count."""

    def is_reached(self, request: web.BaseRequest, written: Iterable[Written]) -> bool:
        """Whether the next write, or the last one, is the one."""
        count = sum(self.path in each.path for each in written)
        return self.path in request.path and count == self.number - self.before


@dataclass(frozen=True, slots=True)
class Written:
    """An effective write: one that gave an object a new version, or removed it."""

    method: str
    path: str


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of a share of some requests."""

    which: Callable[[web.BaseRequest], bool]
    action: Action
    share: float = 1.0


class Relay:
    """The way to one API server."""

    def __init__(self, target: str, certificates: Path, chance: random.Random) -> None:
        """`certificates`: the folder with ca.crt, apiserver.crt and apiserver.key."""
        self.rules: tuple[Rule, ...] = ()
        self.expired: frozenset[str] = frozenset()
        """Tokens that are refused."""
        self.made: Counter[str] = Counter()
        """How often each action was done."""
        self.lags: dict[str, Lag] = {}
        """By the path of the watches."""
        self.written: list[Written] = []
        """Effective writes since `forget_writes`."""
        self.kill_point: KillPoint | None = None
        self._versions: dict[str, str] = {}
        self._target = target
        self._chance = chance
        self._upstream_tls = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._server: web.Server | None = None
        self._runner: web.ServerRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    def start(self) -> str:
        """Listen; return the URL."""
        self._thread.start()
        url: str = self._do(self._start())
        return url

    def stop(self) -> None:
        """End every connection."""
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, share: float) -> None:
        """Break this share of the connections, whatever goes on there."""
        self._do(self._cut(share))

    def lag(self, path: str) -> Lag:
        """Let the watches of a path lag; call it before the operator opens one."""
        lag = self.lags.setdefault(path, Lag())
        self._soon(lag.flows.set)
        return lag

    def freeze(self, path: str, past: dict[str, Any] | None = None) -> None:
        """Hold the events of a path back. `past`: the list that watches get that are opened meanwhile."""
        lag = self.lags[path]
        lag.past = past
        self._soon(lag.flows.clear)

    def thaw(self, path: str, release: Release = Release.EACH) -> None:
        """Let a path's watches catch up."""
        lag = self.lags[path]
        lag.release = release
        self._soon(lag.flows.set)

    def forget_writes(self, kill_point: KillPoint | None = None) -> None:
        """Count writes from here, and end the operator at one of them."""
        self.written, self.kill_point = [], kill_point

    def _soon(self, call: Callable[[], object]) -> None:
        async def do() -> None:
            call()

        self._do(do())

    @property
    def connections(self) -> int:
        """How many connections the operator holds."""
        return len(self._server.connections) if self._server else 0

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self) -> str:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._upstream_tls)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None, sock_connect=10)
        )
        self._server = web.Server(self._answer, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        return f"https://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        if self._runner and self._session:
            await self._cut(1.0)
            await self._runner.cleanup()
            await self._session.close()
            # https://docs.aiohttp.org/en/stable/client_advanced.html#graceful-shutdown
            await asyncio.sleep(_TLS_CLOSES)

    async def _cut(self, share: float) -> None:
        for connection in list(self._server.connections) if self._server else ():
            if connection.transport is not None and self._chance.random() < share:
                self.made["connection cut"] += 1
                connection.transport.abort()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") in self.expired:
            self.made["token refused"] += 1
            return _status(Refuse(_UNAUTHORIZED))
        action = self._action(request)
        if isinstance(action, Delay):
            await asyncio.sleep(action.seconds)
        if (own := _own(request, action)) is not None:
            return own
        if has_effect(request):
            return await self._write(request, lose=isinstance(action, LoseAnswer))
        lag = self.lags.get(request.path)
        if lag is not None and lag.is_frozen() and lag.past is not None and not is_watch(request):
            return web.json_response(lag.past)  # like a server that lags behind
        return await self._hand_on(request, lose=isinstance(action, LoseAnswer))

    async def _write(self, request: web.BaseRequest, *, lose: bool) -> web.StreamResponse:
        """Hand a write on, and note it; end the operator if it is the one to end it at."""
        point = self.kill_point
        if point is not None and point.before and point.is_reached(request, self.written):
            self._kill(request, point)
            return web.StreamResponse()
        body, headers = await request.read(), _passed_on(request.headers)
        try:
            if self._session is None:  # pragma: no cover - for the type checker
                raise AssertionError
            async with self._session.request(
                request.method, self._url(request), data=body, headers=headers
            ) as upstream:
                content = await upstream.read()
                self._note(request, upstream.status, content)
        except (aiohttp.ClientError, OSError):
            _abort(request)
            return web.StreamResponse()
        if point is not None and not point.before and point.is_reached(request, self.written):
            self._kill(request, point)
            return web.StreamResponse()
        if lose:
            _abort(request)
            return web.StreamResponse()
        return web.Response(
            status=upstream.status, reason=upstream.reason, body=content, headers=_passed_on(upstream.headers)
        )

    def _kill(self, request: web.BaseRequest, point: KillPoint) -> None:
        self.kill_point = None
        point.kill()
        _abort(request)

    def _note(self, request: web.BaseRequest, status: int, content: bytes) -> None:
        if status >= _FIRST_REFUSAL or "dryRun" in request.query:
            return
        try:
            meta = json.loads(content).get("metadata", {})
        except ValueError:  # protobuf
            meta = {}
        uid, version = meta.get("uid", ""), meta.get("resourceVersion", "")
        if request.method == "DELETE" or not uid or self._versions.get(uid) != version:
            self._versions[uid] = version
            self.written.append(Written(request.method, request.path))

    def _url(self, request: web.BaseRequest) -> URL:
        return URL(self._target + request.raw_path, encoded=True)

    def _action(self, request: web.BaseRequest) -> Action | None:
        for rule in self.rules:
            if rule.which(request) and self._chance.random() < rule.share:
                name = (
                    f"answered {rule.action.status}" if isinstance(rule.action, Refuse) else type(rule.action).__name__
                )
                self.made[name] += 1
                return rule.action
        return None

    async def _hand_on(self, request: web.BaseRequest, *, lose: bool) -> web.StreamResponse:
        body = await request.read()
        headers, url = _passed_on(request.headers), self._url(request)
        answer = web.StreamResponse()
        try:
            if self._session is None:  # pragma: no cover - for the type checker
                raise AssertionError
            async with self._session.request(request.method, url, data=body or None, headers=headers) as upstream:
                if lose:
                    await upstream.read()
                    _abort(request)
                    return answer
                answer.set_status(upstream.status, upstream.reason)
                answer.headers.extend(_passed_on(upstream.headers))
                await answer.prepare(request)
                lag = self.lags.get(request.path) if is_watch(request) else None
                if lag is not None:
                    await lag.pass_on(upstream.content, answer)
                else:
                    async for piece in upstream.content.iter_any():
                        await answer.write(piece)
                await answer.write_eof()
        except (aiohttp.ClientError, OSError):
            _abort(request)  # one side has gone: so has the other
        return answer


def has_effect(request: web.BaseRequest) -> bool:
    """Whether a request writes objects, other than Events and reviews of access."""
    return is_write(request) and not any(part in request.path for part in ("/events", "reviews"))


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _NOT_PASSED_ON}


def _own(request: web.BaseRequest, action: Action | None) -> web.StreamResponse | None:
    """Return the answer to a request that the API server does not get; None if it gets the request."""
    match action:
        case Refuse():
            return _status(action)
        case LoseRequest():
            _abort(request)
            return web.StreamResponse()
        case ExpireInStream():
            return web.json_response({"type": "ERROR", "object": _body(410)})
        case _:
            return None


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


def _status(refusal: Refuse) -> web.Response:
    headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
    body = _body(refusal.status, refusal.message)
    return web.json_response(body, status=refusal.status, headers=headers, dumps=json.dumps)


def _body(code: int, message: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": _REASONS[code],
        "code": code,
        "message": message or f"made by the fault suite: {_REASONS[code]}",
    }


def through(url: str, kubeconfig: Path, token_file: Path) -> Path:
    """Lead a kubeconfig through the relay, its token into a file that can be renewed."""
    document = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    document["clusters"][0]["cluster"]["server"] = url
    token_file.write_text(document["users"][0]["user"]["token"], encoding="utf-8")
    document["users"][0]["user"] = {"tokenFile": str(token_file)}
    kubeconfig.write_text(yaml.safe_dump(document), encoding="utf-8")
    return kubeconfig
