"""What stands between operator and API server, and fails on request: HTTP over TLS, with the server's own certificate.

Every fault is a `Rule`: which requests, how many of them, and what becomes of one. Without rules everything is handed
through, watches as they come. Runs in a thread of its own; its methods may be called from any.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
from aiohttp import web
from yarl import URL

_NOT_PASSED_ON = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "upgrade", "te", "trailer"}
_REASONS = {401: "Unauthorized", 409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
_UNAUTHORIZED = 401


@dataclass(frozen=True, slots=True)
class Refuse:
    """The API server is not asked; this is the answer."""

    status: int
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """The request waits before the API server gets it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """The API server does what it is asked; the connection ends before its answer."""


@dataclass(frozen=True, slots=True)
class ExpireInStream:
    """A watch opens, and says that it is too old."""


Deed: TypeAlias = Refuse | Delay | LoseAnswer | ExpireInStream


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


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of a share of some requests."""

    which: Callable[[web.BaseRequest], bool]
    deed: Deed
    share: float = 1.0


class Relay:
    """The way to one API server."""

    def __init__(self, target: str, certificates: Path, chance: random.Random) -> None:
        """`certificates`: the folder with ca.crt, apiserver.crt and apiserver.key."""
        self.rules: tuple[Rule, ...] = ()
        self.expired: frozenset[str] = frozenset()
        """Tokens that are refused."""
        self.made: Counter[str] = Counter()
        """How often each deed was done."""
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
        self._runner = web.ServerRunner(self._server)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls, shutdown_timeout=0.1)
        await site.start()
        return f"https://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        if self._runner and self._session:
            await self._cut(1.0)
            await self._runner.cleanup()
            await self._session.close()

    async def _cut(self, share: float) -> None:
        for connection in list(self._server.connections) if self._server else ():
            if connection.transport is not None and self._chance.random() < share:
                self.made["connection cut"] += 1
                connection.transport.abort()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") in self.expired:
            self.made["token refused"] += 1
            return _status(Refuse(_UNAUTHORIZED))
        deed = self._deed(request)
        match deed:
            case Refuse():
                return _status(deed)
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case ExpireInStream():
                return web.json_response({"type": "ERROR", "object": _body(410)})
        return await self._hand_on(request, lose=isinstance(deed, LoseAnswer))

    def _deed(self, request: web.BaseRequest) -> Deed | None:
        for rule in self.rules:
            if rule.which(request) and self._chance.random() < rule.share:
                name = f"answered {rule.deed.status}" if isinstance(rule.deed, Refuse) else type(rule.deed).__name__
                self.made[name] += 1
                return rule.deed
        return None

    async def _hand_on(self, request: web.BaseRequest, *, lose: bool) -> web.StreamResponse:
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_PASSED_ON}
        url = URL(self._target + request.raw_path, encoded=True)
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
                answer.headers.extend(
                    (name, value) for name, value in upstream.headers.items() if name.lower() not in _NOT_PASSED_ON
                )
                await answer.prepare(request)
                async for piece in upstream.content.iter_any():
                    await answer.write(piece)
                await answer.write_eof()
        except (aiohttp.ClientError, OSError):
            _abort(request)  # one side has gone: so has the other
        return answer


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


def _status(refusal: Refuse) -> web.Response:
    headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
    return web.json_response(_body(refusal.status), status=refusal.status, headers=headers, dumps=json.dumps)


def _body(code: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": _REASONS[code],
        "code": code,
        "message": f"made by the fault suite: {_REASONS[code]}",
    }
