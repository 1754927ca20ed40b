"""Values that handlers exchange: requests (calls) and responses (answers).

Promises: content is streamed in both directions, unless a handler or observer needs all of it, up to a limit. Large
content is held in turns: each run holds that of one call, and the proxy that of a few. It is parsed at most once, by
the first one that needs its object. Must not import: handlers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol, TypeAlias

import orjson

from runner.agent.bounds import MOST_VALUES
from runner.core.proxy import content
from runner.core.proxy.content import LARGEST_ANSWER, Parsed
from runner.core.proxy.http import messages
from runner.core.proxy.http.connection import Body
from runner.core.proxy.http.ends import ClientConnection, ServerConnection
from runner.core.proxy.http.limits import LARGE, Turns
from runner.core.proxy.http.messages import Headers, RequestHead
from runner.core.proxy.identity import ActiveRun
from runner.core.proxy.request import RequestInfo
from runner.values.objects import Object, maps

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Gone",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class Content(Protocol):
    """The content of a response."""

    @property
    def ended(self) -> bool:
        """True if all content was received; some of it can still be buffered."""
        ...

    def take(self) -> bytes:
        """Return the buffered content, which can be empty."""
        ...

    async def read(self) -> bytes:
        """Wait for content and return it; empty at the end. Raises BrokenError if the connection is lost."""
        ...


class Whole:
    """Complete content."""

    __slots__ = ("_data",)

    ended = True

    def __init__(self, data: bytes) -> None:
        self._data = data

    def take(self) -> bytes:
        """Return the content once, then nothing."""
        data, self._data = self._data, b""
        return data

    async def read(self) -> bytes:
        """Return the content once, then nothing."""
        return self.take()


@dataclass(slots=True)
class Call:
    """A client's request. Handlers can replace `headers` and `content`."""

    head: RequestHead
    info: RequestInfo
    client: ClientConnection
    headers: Headers = field(repr=False)
    """End-to-end headers to forward, without the client's credentials."""
    content: Body | bytes = field(repr=False)
    active: ActiveRun | None = None
    """The active run; set by the authentication."""
    noted: dict[str, str] = field(default_factory=dict, repr=False)
    """Further fields of the log line about the call."""
    ends: list[Callable[[], object]] = field(default_factory=list, repr=False)
    """Functions that close what the call has opened; the server calls `end`."""
    turns: Turns | None = field(default=None, repr=False)
    """Turns for large content, which are over at the end of the call."""
    sending: asyncio.Task[None] | None = field(default=None, init=False, repr=False)
    """Sends content that is streamed."""
    _kept: bytearray | None = field(default_factory=bytearray, init=False, repr=False)
    """Streamed content, to repeat the request; None if it is too large."""
    _has_turn: bool = field(default=False, init=False, repr=False)
    _parsed: Parsed | None = field(default=None, init=False, repr=False)

    @property
    def run(self) -> ActiveRun:
        """The active run; only after authentication."""
        if self.active is None:
            raise RuntimeError("the request is not authenticated")
        return self.active

    @property
    def media(self) -> str:
        """The media type of the content."""
        return content.media_type(self.head.get(b"content-type"))

    async def data(self) -> bytes | None:
        """Read the complete content; None if it is too large, and it is still streamed."""
        if isinstance(self.content, bytes):
            return self.content
        if self.head.length > content.LARGEST_REQUEST:
            return None
        self._continue()
        data = await self.content.read_all(content.LARGEST_REQUEST, self.take_turn)
        if data is not None:
            self.content = data
        return data

    def _continue(self) -> None:
        if self.head.get(b"expect").lower() == b"100-continue":
            self.client.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def keep(self, piece: bytes) -> None:
        """Keep a piece of streamed content, unless there is too much of it."""
        if self._kept is None:
            return
        self._kept += piece
        if max(len(self._kept), self.head.length) > content.LARGEST_REQUEST or self.info.is_endless:
            self._kept = None
        elif len(self._kept) > LARGE:
            await self.take_turn()

    async def is_repeatable(self) -> bool:
        """Return whether the request can be sent again: all its content is held, and now also the rest of it."""
        if not isinstance(self.content, Body):
            return True
        if self.sending is not None:
            self.sending.cancel()
            await asyncio.wait({self.sending})
        if self._kept is None:
            return False
        kept = bytes(self._kept)
        if not kept:
            self._continue()
        rest = await self.content.read_all(content.LARGEST_REQUEST - len(kept), self.take_turn)
        self.content = self.content if rest is None else kept + rest
        return rest is not None

    async def take_turn(self) -> None:
        """Wait until the call may hold large content. It keeps that permission to its end."""
        if self._has_turn or self.turns is None:
            return
        self._has_turn = True
        await self.run.large.acquire()
        self.ends.append(self.run.large.release)
        self.ends.append((await self.turns.take(self.client.abort)).end)

    def parsed(self) -> Parsed:
        """Return the parsed content, if all of it was read by `data`."""
        if self._parsed is None and isinstance(self.content, bytes):
            self._parsed = content.parse(self.media, self.content)
        return self._parsed or Parsed(None)

    def replace_object(self, obj: Object) -> None:
        """Replace the object in the content, which was read."""
        if not isinstance(self.content, bytes):
            raise TypeError("the content was not read")
        self.content, self._parsed = content.dump(self.media, obj, self.content), Parsed(obj)

    def detached(self) -> Call:
        """Return the same call for a task that can outlive it; `end` it with the task."""
        call = Call(self.head, self.info, self.client, self.headers, self.content, self.active, turns=self.turns)
        call._parsed, call._has_turn = self._parsed, self._has_turn
        return call

    def end(self) -> None:
        """Close what the call has opened, latest first: after the response was sent or dropped, and after an error."""
        while self.ends:
            try:
                self.ends.pop()()
            except Exception:
                self.end()
                raise


@dataclass(slots=True)
class Answer:
    """A response to the client."""

    status: int
    reason: bytes
    headers: Headers = field(repr=False)
    """End-to-end headers; with Content-Length if the length is known."""
    length: int
    """Bytes, CHUNKED or UNTIL_CLOSE."""
    content: Content = field(repr=False)
    release: Callable[[], object] = field(repr=False, default=lambda: None)
    """Drops the rest of complete content, and releases the connection to the API server before the call ends."""
    upgraded: ServerConnection | None = field(repr=False, default=None)
    """The connection to the API server after a protocol upgrade."""
    take_turn: Callable[[], Awaitable[None]] | None = field(repr=False, default=None)
    """Waits until large content may be held."""
    _is_read: bool = field(default=False, init=False, repr=False)
    _data: bytes | None = field(default=None, init=False, repr=False)
    _parsed: Parsed | None = field(default=None, init=False, repr=False)

    @property
    def is_success(self) -> bool:
        """False for a redirection or an error."""
        return self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def media(self) -> str:
        """The media type of the content."""
        return content.media_type(messages.get(self.headers, b"content-type"))

    async def whole(self, most: int) -> bytes | None:
        """Read the content, which is still sent to the client; None if it exceeds `most` bytes and is streamed."""
        if isinstance(self.content, Body):
            data = await self.content.read_all(most, self.take_turn)
            if data is None:
                return None
            self.release()
        else:
            data = await self.content.read()
        self.content = Whole(data)
        return data

    async def data(self, most: int = LARGEST_ANSWER) -> bytes | None:
        """Return the uncompressed content, which is still sent to the client; None if it exceeds `most` bytes."""
        if not self._is_read:
            data = await self.whole(most)
            if data is not None:
                self._data = content.unpack(messages.get(self.headers, b"content-encoding"), data)
            self._is_read = True
        return self._data

    def parsed(self) -> Parsed:
        """Return the parsed content, if all of it was read by `data`."""
        if self._parsed is None and self._data:
            self._parsed = content.parse(self.media, self._data, MOST_VALUES)
        return self._parsed or Parsed(None)

    async def object(self) -> Object | None:
        """Return the JSON object in the content, which is still sent to the client.

        None if there is none, if the content is too large, or if parts of the object nest too deeply.
        """
        if self.media != content.JSON:
            return None
        await self.data()
        parsed = self.parsed()
        return parsed.object if parsed.is_complete else None

    @property
    def obj(self) -> Object:
        """The object of `object`, if all of the content was read by `data`; empty if there is none."""
        parsed = self.parsed() if self.media == content.JSON else Parsed(None)
        return (parsed.object if parsed.is_complete else None) or {}

    async def objects(self, kind: str) -> list[Object]:
        """Return the objects of a kind in the content, which is still sent to the client; empty if there are none.

        Their metadata suffices: deeper values can be missing, and objects in protobuf and in a table have nothing else.
        """
        if self.media not in {content.JSON, content.PROTOBUF}:
            return []
        await self.data()
        obj = self.parsed().object
        if obj is None:
            return []
        actual = str(obj.get("kind", ""))
        if actual == "Table":
            return [row["object"] for row in maps(obj.get("rows")) if isinstance(row.get("object"), dict)]
        if actual.endswith("List") and actual != kind:
            return maps(obj.get("items"))
        is_partial = self.media == content.PROTOBUF and actual == kind
        return [{**obj, "kind": "PartialObjectMetadata"} if is_partial else obj]


Proceed: TypeAlias = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Observer:
    """Functions that record something of calls and their responses, and change neither."""

    requested: Callable[[Call], Awaitable[None]] | None = None
    """Called before the handlers."""
    answered: Callable[[Call, Answer], Awaitable[None]] | None = None
    """Called before the client gets the response of the handlers."""


class Handler(Protocol):
    """One step of request processing. It answers a call, or calls `proceed` for the next step."""

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Answer a call."""
        ...


def complete(status: int, data: bytes, *more: tuple[bytes, bytes]) -> Answer:
    """Return a response with complete JSON."""
    headers = [(b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(data)), *more]
    return Answer(status, b"", headers, len(data), Whole(data))


def refusal(code: int, message: str, *more: tuple[bytes, bytes]) -> Answer:
    """Return an error response of the proxy."""
    return complete(code, orjson.dumps(failure(code, _REASONS.get(code, ""), message)), *more)


def failure(code: int, reason: str, message: str) -> Object:
    """Return the Status object of an error
    (https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#response-status-kind).
    """  # noqa: D205 - the address is one word
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**status, "message": message, "reason": reason, "code": code}
