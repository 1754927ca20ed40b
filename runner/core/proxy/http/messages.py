"""HTTP messages as values, and the headers that a proxy forwards.

Source: RFC 9110, 7.6.1 (fields that concern one connection only) and RFC 9112, 6 (where a message ends). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeAlias

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Names in their original case; repeated names in their order."""

CHUNKED = -1
"""Length of a chunked body."""
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
"""Supported protocols. All others are ignored, as a server may do: h2c would hide requests from the proxy."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The start line and headers of a request."""

    method: str
    target: str
    """Path and query, unmodified."""
    headers: Headers = field(repr=False)
    version: str
    """`1.0` or `1.1`."""
    length: int
    """Bytes of the body, or CHUNKED."""
    keep_alive: bool
    upgrade: bytes
    """The requested protocol in lower case; empty if there is none or it is not supported."""

    def get(self, name: bytes) -> bytes:
        """Return the first value of a header, by its name in lower case; empty without one."""
        return get(self.headers, name)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The start line and headers of a response."""

    status: int
    reason: bytes
    headers: Headers = field(repr=False)
    length: int
    """Bytes of the body, CHUNKED or UNTIL_CLOSE. 0 for responses without content, whatever their headers contain."""
    keep_alive: bool


def get(headers: Headers, name: bytes) -> bytes:
    """Return the first value of a header, by its name in lower case; empty without one."""
    for key, value in headers:  # half the time of a generator
        if key.lower() == name:
            return value
    return b""


def joined(headers: Headers, name: bytes) -> bytes:
    """Return all values of a header as one list, by its name in lower case (RFC 9110, 5.2)."""
    return b",".join(value for key, value in headers if key.lower() == name)


def wanted_upgrade(headers: Headers) -> bytes:
    """Return the supported protocol in the `Upgrade` header, in lower case; empty if there is none."""
    for name in get(headers, b"upgrade").lower().split(b","):
        if name.strip() in _UPGRADES:
            return name.strip()
    return b""


def end_to_end(headers: Headers, *, without: frozenset[bytes] = frozenset()) -> Headers:
    """Return the end-to-end headers, except those in `without`."""
    dropped = _HOP_BY_HOP | without
    named = [value for name, value in headers if name.lower() == b"connection"]
    if named:
        dropped |= {option.strip().lower() for value in named for option in value.split(b",")}
    return [(name, value) for name, value in headers if name.lower() not in dropped]


def request_length(headers: Headers) -> int:
    """Return the length of a request's body. The parser has checked that the headers are consistent."""
    if get(headers, b"transfer-encoding"):
        return CHUNKED
    return int(get(headers, b"content-length") or 0)


def response_length(headers: Headers, status: int, *, to_head: bool) -> int:
    """Return the length of a response's body (RFC 9112, 6.3)."""
    if to_head or status < HTTPStatus.OK or status in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}:
        return 0
    if get(headers, b"transfer-encoding"):
        return CHUNKED
    length = get(headers, b"content-length")
    return int(length) if length else UNTIL_CLOSE


def render(start: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Serialize a head."""
    lines = [start, *(b"%b: %b" % header for header in headers), b"\r\n"]
    return b"\r\n".join(lines)


def chunk(piece: bytes) -> bytes:
    """Frame one chunk of a body; the empty chunk ends it."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)
