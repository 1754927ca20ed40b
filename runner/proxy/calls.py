"""What handlers pass to each other: a call on its way up, an answer on its way down.

Promises: content streams in both directions; whoever wants it whole says how much of it. Must not import: handlers.
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
    500: "InternalError",
    503: "ServiceUnavailable",
}


class Content(Protocol):
    """The content of an answer."""

    @property
    def ended(self) -> bool:
        """Whether all of it has arrived; some may still have to be taken."""
        ...

    def take(self) -> bytes:
        """Return what is there, perhaps nothing."""
        ...

    async def read(self) -> bytes:
        """Return what is there, waiting for some of it; nothing means the end. BrokenError when it breaks off."""
        ...


class Whole:
    """Content that is there as a whole."""

    __slots__ = ("_data",)

    ended = True

    def __init__(self, data: bytes) -> None:
        self._data = data

    def take(self) -> bytes:
        """Return what is there."""
        data, self._data = self._data, b""
        return data

    async def read(self) -> bytes:
        """Return what is there."""
        return self.take()


@dataclass(slots=True)
class Call:
    """A request on its way to the API server. Handlers may replace `headers` and `content`."""

    head: RequestHead
    info: RequestInfo
    client: ClientConnection
    headers: Headers = field(repr=False)
    """What goes on: end to end, without the client's credentials."""
    content: Body | bytes = field(repr=False)
    session: Session | None = None
    """Whose call this is; set by the first handler."""
    cached: str = ""
    """`hit` or `miss`, where it was a GET of an owned object; for the log."""

    @property
    def run(self) -> Session:
        """Whose call this is, behind the first handler."""
        if self.session is None:
            raise RuntimeError("a call that nobody has authenticated")
        return self.session


@dataclass(slots=True)
class Answer:
    """A response on its way to the client."""

    status: int
    reason: bytes
    headers: Headers = field(repr=False)
    """End to end; with Content-Length where the length is known."""
    length: int
    """Bytes, CHUNKED or UNTIL_CLOSE."""
    content: Content = field(repr=False)
    finish: Callable[[], None] = field(repr=False, default=lambda: None)
    """Called once, when the content was sent or nobody wants it any more."""
    upgraded: ServerConnection | None = field(repr=False, default=None)
    """Where the client's bytes go from now on, when both sides have left HTTP."""

    async def whole(self, most: int) -> bytes | None:
        """Read the content, which still goes to the client; None, and it streams on, when it is more than `most`."""
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
    """One step on a call's way. It answers itself or lets the rest of the way answer."""

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Answer a call."""
        ...


def refusal(code: int, message: str, *more: tuple[bytes, bytes]) -> Answer:
    """An answer of the proxy's own, in the API's form
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
