"""HTTP messages as plain values, and what of their headers is passed on.

Source: RFC 9110, 7.6.1 (fields that concern one connection only) and RFC 9112, 6 (where a message ends). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeAlias

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Names as they were spelled; several of one name in their order."""

CHUNKED = -1
"""Length of a body that says itself where it ends."""
UNTIL_CLOSE = -2
"""Length of a body that ends with the connection."""

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_UPGRADES = frozenset({b"websocket", b"spdy/3.1"})
"""Protocols that are passed on. Others are ignored, as a server may: h2c would hide requests from the proxy."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The start line and headers of a request."""

    method: str
    target: str
    """As it was sent: path and query."""
    headers: Headers = field(repr=False)
    version: str
    """`1.0` or `1.1`."""
    length: int
    """Bytes of the body, or CHUNKED."""
    keep_alive: bool
    upgrade: bytes
    """The protocol that the client would like to go on with, in lower case; empty without one that we pass on."""

    def get(self, name: bytes) -> bytes:
        """The first value of a header, by its name in lower case; empty without one."""
        return get(self.headers, name)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The start line and headers of a response."""

    status: int
    reason: bytes
    headers: Headers = field(repr=False)
    length: int
    """Bytes of the body, CHUNKED or UNTIL_CLOSE. 0 also where the headers speak of a body that does not come."""
    keep_alive: bool

    def get(self, name: bytes) -> bytes:
        """The first value of a header, by its name in lower case; empty without one."""
        return get(self.headers, name)


def get(headers: Headers, name: bytes) -> bytes:
    """The first value of a header, by its name in lower case; empty without one."""
    return next((value for key, value in headers if key.lower() == name), b"")


def wanted_upgrade(headers: Headers) -> bytes:
    """The protocol that a request asks to go on with, if we pass it on; in lower case."""
    for name in get(headers, b"upgrade").lower().split(b","):
        if name.strip() in _UPGRADES:
            return name.strip()
    return b""


def end_to_end(headers: Headers, *, without: frozenset[bytes] = frozenset()) -> Headers:
    """The headers that go further than one connection; the body's length not among them where it is in `without`."""
    dropped = _HOP_BY_HOP | without
    named = [value for name, value in headers if name.lower() == b"connection"]
    if named:
        dropped |= {option.strip().lower() for value in named for option in value.split(b",")}
    return [(name, value) for name, value in headers if name.lower() not in dropped]


def request_length(headers: Headers) -> int:
    """Where a request's body ends. The parser has made sure that the headers agree."""
    if get(headers, b"transfer-encoding"):
        return CHUNKED
    return int(get(headers, b"content-length") or 0)


def response_length(headers: Headers, status: int, *, to_head: bool) -> int:
    """Where a response's body ends (RFC 9112, 6.3)."""
    if to_head or status < HTTPStatus.OK or status in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}:
        return 0
    if get(headers, b"transfer-encoding"):
        return CHUNKED
    length = get(headers, b"content-length")
    return int(length) if length else UNTIL_CLOSE


def render(start: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Put a head on the wire."""
    lines = [start, *(b"%b: %b" % header for header in headers), b"\r\n"]
    return b"\r\n".join(lines)


def chunk(piece: bytes) -> bytes:
    """Frame one piece of a chunked body; the empty piece ends it."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)
