"""REST client for the API server.

Owns: connections, timeouts, and the retries that are safe for every caller.

- 401 is retried once with fresh credentials.
- 429, and 5xx with `Retry-After`, are retried a limited number of times: the server has not started to process them.
- aiohttp repeats an idempotent request once if a kept connection was closed.

Other errors are for the caller.

Promises: every call ends within its timeout. Watches have connections of their own and never delay a call. Errors are
those of `runner.values.errors`: ApiError for an error response, ApiUnavailableError without a response.

Assumes: one event loop. Must not import: watch, cache.
"""

from __future__ import annotations

import asyncio
import platform
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self, TypeAlias
from urllib.parse import urlencode

import aiohttp
import orjson
from yarl import URL

from runner import __version__
from runner.base.credentials.auth import Credentials
from runner.core.kube import answers, decode
from runner.core.kube.discovery import ApiResource
from runner.core.kube.sockets import Sockets
from runner.values.errors import ApiError, ApiUnavailableError, ServerError, ThrottledError, UnauthorizedError
from runner.values.objects import Object, ObjectKey

Params = Mapping[str, str]
CallObserver: TypeAlias = Callable[[str, str, Params, str, int, str], None]
"""Receives a call's method, path, query and content type, the status of its response, and the impersonated user.

The status is 0 if there was no response."""
NO_RESPONSE = 0
"""Status of a call without a response, for a `CallObserver`."""

_USER_AGENT = (
    f"ansible-operator/{__version__} ({platform.system().lower()}/{platform.machine()}) "
    f"python/{platform.python_version()}"
)
_JSON = "application/json"
# An aggregated API without partial objects responds with full ones.
_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
_CONNECT = 10.0
_STREAM_BUFFER = 1 << 18
_BAD_REDIRECT = 300
_ESCAPED_BY_GO = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
}


class PatchType(Enum):
    """Media types of a patch (https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-apply)."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of plain calls, in seconds."""

    total: float = 60.0
    """Timeout of a call without its retries."""
    attempts: int = 4
    """Attempts for a call that the server defers."""
    longest_wait: float = 10.0
    """Longest `Retry-After` to wait for."""
    connections: int = 32
    """Maximum number of connections for plain calls."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of objects. Label and field selectors are spelled as in the API; empty: all."""

    labels: str = ""
    fields: str = ""
    metadata_only: bool = False
    """True for objects without spec and status (`PartialObjectMetadata`)."""

    @property
    def params(self) -> dict[str, str]:
        """Parameters of a list or watch."""
        selectors = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in selectors.items() if value}


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list."""

    items: list[Object] = field(repr=False)
    resource_version: str
    cont: str
    """Continue token for the next page; empty on the last."""
    size: int
    """Size of the response in bytes."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One request, which can be sent several times."""

    method: str
    path: str
    params: Params
    body: bytes | None = field(default=None, repr=False)
    content_type: str = _JSON
    accept: str = _JSON
    user: str = ""
    """Impersonated user; empty: none."""
    warns: bool = True

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Client:
    """Client of one API server. An asynchronous context manager."""

    def __init__(
        self, credentials: Credentials, limits: ClientLimits | None = None, noted: CallObserver | None = None
    ) -> None:
        """`noted` is called for each call."""
        self.credentials = credentials
        self._noted = noted
        self._limits = limits or ClientLimits()
        self._warnings = answers.Warnings()
        self._calls: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._sockets = Sockets()

    async def __aenter__(self) -> Self:
        self._calls = _session(self._limits.connections, self._sockets)
        self._streams = _session(0, self._sockets)
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in (self._calls, self._streams):
            if session is not None:
                await session.close()
        self._calls = self._streams = None
        await self._sockets.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        content_type: str = _JSON,
        user: str = "",
    ) -> Object:
        """Send one request and return the object in the response. `path` begins with `/`.

        With `user`, the request impersonates this user.
        """
        data = None if body is None else _dump(body)
        call = _Call(method, path, params or {}, data, content_type, user=user)
        return _parse(call, await self._call(call))

    async def get(self, resource: ApiResource, key: ObjectKey) -> Object:
        """Read one object."""
        return await self.request("GET", resource.path(key.namespace, key.name))

    async def read(self, path: str) -> bytes:
        """Return the JSON at a path, byte for byte."""
        return await self._call(_Call("GET", path, {}))

    async def list_page(
        self, resource: ApiResource, namespace: str, selection: Selection, limit: int, cont: str, *, warns: bool = True
    ) -> ListPage:
        """Read one page of a list; an empty `cont` requests the first. `warns`: log warnings. GoneError: start over."""
        params = {**selection.params, "limit": str(limit), **({"continue": cont} if cont else {})}
        accept = _METADATA_LIST if selection.metadata_only else _JSON
        call = _Call("GET", resource.path(namespace), params, accept=accept, warns=warns)
        answer = _parse(call, raw := await self._call(call))
        meta = answer.get("metadata") or {}
        items: list[Object] = answer.get("items") or []
        for item in items:
            # Items of built-in kinds come without the type that their list has.
            item.setdefault("apiVersion", resource.gvk.api_version)
            item.setdefault("kind", resource.gvk.kind)
        return ListPage(items, str(meta.get("resourceVersion") or ""), str(meta.get("continue") or ""), len(raw))

    async def create(self, resource: ApiResource, namespace: str, obj: Mapping[str, Any]) -> Object:
        """Create an object. Raises ConflictError if its name exists."""
        return await self.request("POST", resource.path(namespace), body=obj)

    async def patch(
        self,
        resource: ApiResource,
        key: ObjectKey,
        body: object,
        *,
        content_type: PatchType,
        subresource: str = "",
        params: Params | None = None,
    ) -> Object:
        """Patch an object. An apply patch needs `fieldManager`, and perhaps `force`, in `params`."""
        path = resource.path(key.namespace, key.name, subresource)
        return await self.request("PATCH", path, params=params, body=body, content_type=content_type.value)

    async def delete(
        self,
        resource: ApiResource,
        key: ObjectKey,
        *,
        uid: str = "",
        version: str = "",
        user: str = "",
    ) -> Object:
        """Request the deletion of an object.

        With `uid`, raises ConflictError if another object has the name; with `version`, if the object has changed.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        conditions = {name: value for name, value in (("uid", uid), ("resourceVersion", version)) if value}
        if conditions:
            options["preconditions"] = conditions
        return await self.request("DELETE", resource.path(key.namespace, key.name), body=options, user=user)

    @asynccontextmanager
    async def stream(
        self, path: str, params: Params, *, idle: float, metadata_only: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch (or another response of JSON lines) and yield its lines, raw.

        The iterator ends when the server closes; an incomplete last line is dropped. Raises ApiUnavailableError after
        `idle` seconds without a byte, and if the connection fails. Only a 401 is retried.
        """
        call = _Call("GET", path, params, accept=_METADATA if metadata_only else _JSON)
        patience = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=idle)
        answer = await self._open(self._streams, call, patience)
        try:
            async with aclosing(_lines(call, answer, self.credentials.base_url)) as lines:
                yield lines
        finally:
            # The response has no end, so the connection cannot be reused.
            answer.close()

    async def _call(self, call: _Call) -> bytes:
        """Send a call and repeat it while the server defers it."""
        patience = aiohttp.ClientTimeout(total=self._limits.total, sock_connect=_CONNECT)
        for attempt in range(1, self._limits.attempts + 1):
            try:
                answer = await self._open(self._calls, call, patience)
                async with answer, _translated(call, self.credentials.base_url):
                    return await answer.read()
            except ApiError as error:
                if not _is_put_off(error) or attempt == self._limits.attempts:
                    raise
                wait = min(error.retry_after if error.retry_after is not None else 1.0, self._limits.longest_wait)
                await asyncio.sleep(wait * random.uniform(1.0, 1.2))  # noqa: S311 - spreads load, guards nothing
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _open(
        self, session: aiohttp.ClientSession | None, call: _Call, patience: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Send a request and return a successful response, its body unread. A 401 is retried with fresh credentials."""
        if session is None:
            raise RuntimeError("Client is used outside its `async with`")
        try:
            return await self._send(session, call, patience)
        except UnauthorizedError:
            await self.credentials.refresh()
            return await self._send(session, call, patience)

    async def _send(
        self, session: aiohttp.ClientSession, call: _Call, patience: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        credentials = self.credentials
        headers = await credentials.headers()
        headers["Accept"] = call.accept
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        if call.user:
            headers["Impersonate-User"] = call.user
        url = URL(f"{credentials.base_url}{call.path}?{urlencode(call.params)}".rstrip("?"), encoded=True)
        async with _translated(call, credentials.base_url):
            try:
                answer = await session.request(
                    call.method,
                    url,
                    data=call.body,
                    headers=headers,
                    timeout=patience,
                    proxy=credentials.proxy,
                    ssl=credentials.ssl or True,
                    server_hostname=credentials.server_hostname,
                    allow_redirects=False,
                    read_bufsize=_STREAM_BUFFER,
                )
            except (aiohttp.ClientError, OSError) as error:
                self._note(call, NO_RESPONSE)
                if isinstance(error, aiohttp.ClientConnectorCertificateError):
                    # The server's authority may have been renewed; the next try finds out.
                    await credentials.refresh()
                raise
            if call.warns:
                self._warnings.note(str(call), answer.headers.getall("Warning", ()))
            self._note(call, answer.status)
            if answer.status >= _BAD_REDIRECT:
                async with answer:
                    raise answers.error(str(call), answer.status, answer.headers, await answer.read())
        return answer

    def _note(self, call: _Call, status: int) -> None:
        if self._noted is not None:
            self._noted(call.method, call.path, call.params, call.content_type, status, call.user)


def _session(connections: int, sockets: Sockets) -> aiohttp.ClientSession:
    """Create a session; 0 connections means no limit."""
    connector = aiohttp.TCPConnector(limit=connections, keepalive_timeout=30, socket_factory=sockets.make)
    return aiohttp.ClientSession(
        connector=connector,
        # Lists are read within the cluster: unpacking them would cost the event loop more than the network saves.
        headers={"User-Agent": _USER_AGENT, "Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    )


def _dump(body: object) -> bytes:
    """Encode JSON as Go does, because a JSON patch's tests compare text and the API server escapes these characters.

    In JSON they occur in strings only.
    """
    data = orjson.dumps(body)
    for character, escaped in _ESCAPED_BY_GO.items():
        data = data.replace(character, escaped)
    return data


def _is_put_off(error: ApiError) -> bool:
    """Return True if the server requests a retry and has not started to process the call."""
    return isinstance(error, ThrottledError) or (isinstance(error, ServerError) and error.retry_after is not None)


@asynccontextmanager
async def _translated(call: _Call, base_url: str) -> AsyncIterator[None]:
    """Convert errors of aiohttp to ApiUnavailableError."""
    try:
        yield
    except TimeoutError as error:
        raise ApiUnavailableError(f"{call}: {base_url} did not respond in time") from error
    except (aiohttp.ClientError, OSError) as error:
        sent = not isinstance(error, aiohttp.ClientConnectorError)
        raise ApiUnavailableError(f"{call}: {base_url}: {answers.cause(error)}", sent=sent) from error


async def _lines(call: _Call, answer: aiohttp.ClientResponse, base_url: str) -> AsyncGenerator[bytes]:
    """Yield each line without its newline; drop the text after the last newline.

    The time is proportional to the bytes, also for a line in thousands of pieces.
    """
    pieces: list[bytes] = []
    async with _translated(call, base_url):
        async for chunk in answer.content.iter_any():
            start = 0
            while (end := chunk.find(b"\n", start)) >= 0:
                line = chunk[start:end]
                if pieces:
                    line = b"".join([*pieces, line])
                    pieces.clear()
                if line.strip():
                    yield line
                start = end + 1
            if start < len(chunk):
                pieces.append(chunk[start:])


def _parse(call: _Call, raw: bytes) -> Object:
    try:
        obj = decode.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiUnavailableError(
            f"{call}: the response is not JSON ({error}); check for a proxy in front of the API server"
        ) from error
    if not isinstance(obj, dict):
        raise ApiUnavailableError(
            f"{call}: the response is not a JSON object; check for a proxy in front of the API server"
        )
    return obj
