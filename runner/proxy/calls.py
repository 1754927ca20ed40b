"""Values that handlers exchange: requests (calls) and responses (answers).

Promises: content is streamed in both directions; a handler that needs all of it sets a limit. Must not import:
handlers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import orjson

from runner.proxy.http.connection import Body
from runner.proxy.http.ends import ClientConnection, ServerConnection
from runner.proxy.http.messages import Headers, RequestHead
from runner.proxy.identity import Session
from runner.proxy.request import RequestInfo

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Gone",
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
    session: Session | None = None
    """The session of the run; set by the first handler."""
    cached: str = ""
    """`hit` or `miss` for a GET of an owned object; for the log."""

    @property
    def run(self) -> Session:
        """The session of the run; only after authentication."""
        if self.session is None:
            raise RuntimeError("the request is not authenticated")
        return self.session


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
    finish: Callable[[], None] = field(repr=False, default=lambda: None)
    """Called once, after the content was sent or dropped."""
    upgraded: ServerConnection | None = field(repr=False, default=None)
    """The connection to the API server after a protocol upgrade."""

    async def whole(self, most: int) -> bytes | None:
        """Read the content, which is still sent to the client; None if it exceeds `most` bytes and is streamed."""
        if isinstance(self.content, Body):
            data = await self.content.read_all(most)
            if data is None:
                return None
        else:
            data = await self.content.read()
        self.content = Whole(data)
        return data


Proceed: TypeAlias = Callable[[Call], Awaitable[Answer]]


class Handler(Protocol):
    """One step of request processing. It answers a call, or calls `proceed` for the next step."""

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Answer a call."""
        ...


def refusal(code: int, message: str, *more: tuple[bytes, bytes]) -> Answer:
    """Return an error response of the proxy as a Status object
    (https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#response-status-kind).
    """  # noqa: D205 - the address is one word
    body = orjson.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": _REASONS.get(code, ""),
            "code": code,
        }
    )
    headers = [(b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body)), *more]
    return Answer(code, b"", headers, len(body), Whole(body))
