"""Connections of clients, and connections to the API server.

Owns: which malformed requests are rejected (RFC 9112, 3.2 and 6), and where a response ends, which depends on its
request. Must not import: the meaning of messages.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import cast

import httptools

from runner.core.proxy.http import messages
from runner.core.proxy.http.connection import Connection, MalformedError
from runner.core.proxy.http.messages import UNTIL_CLOSE, RequestHead, ResponseHead

_FIRST_FINAL = 200
_SWITCHING = 101


class ClientConnection(Connection[RequestHead]):
    """Connection of a client: receives requests, sends responses."""

    def __init__(self) -> None:
        self._url = b""
        self.admitted: Callable[[], object] = lambda: None
        """Called after the first request with a valid token, and when the connection is lost."""
        super().__init__()

    @property
    def peer(self) -> object:
        """The address of the client; None after the loss of the connection."""
        return None if self._transport is None else self._transport.get_extra_info("peername")

    def _new_parser(self) -> httptools.HttpRequestParser:
        return httptools.HttpRequestParser(self)

    def on_url(self, piece: bytes) -> None:
        """Collect the target."""
        self._url += piece
        self._size += len(piece)

    def _head(self) -> RequestHead:
        parser = cast("httptools.HttpRequestParser", self._parser)
        target, self._url = self._url, b""
        headers = self._headers
        version = parser.get_http_version()
        _check_request(version, headers)
        length = messages.request_length(headers)
        if length and parser.should_upgrade():
            raise MalformedError("a request with Upgrade cannot have content")
        return RequestHead(
            method=parser.get_method().decode("ascii"),
            target=_path_of(target),
            headers=headers,
            version=version,
            length=length,
            keep_alive=version == "1.1" and parser.should_keep_alive(),
            upgrade=messages.wanted_upgrade(headers) if parser.should_upgrade() else b"",
        )


class ServerConnection(Connection[ResponseHead]):
    """Connection to the API server: sends requests, receives responses."""

    def __init__(self) -> None:
        self._reason = b""
        self._answers_head = False
        self.tls: ssl.SSLContext | None = None
        """The TLS context of the connection."""
        self.is_reused = False
        self.has_answered = False
        """True if part of the current response was received."""
        super().__init__()

    def _new_parser(self) -> httptools.HttpResponseParser:
        return httptools.HttpResponseParser(self)

    def expect(self, method: str) -> None:
        """Set the method of the next request: a response to HEAD or a successful one to CONNECT has no content."""
        self._answers_head = method in {"HEAD", "CONNECT"}
        self.has_answered = False

    def data_received(self, data: bytes) -> None:
        """Parse data, or pass it to the joined connection."""
        self.has_answered = True
        super().data_received(data)

    def on_status(self, piece: bytes) -> None:
        """Collect the reason."""
        self._reason += piece

    def _head(self) -> ResponseHead:
        parser = cast("httptools.HttpResponseParser", self._parser)
        reason, self._reason = self._reason, b""
        status = parser.get_status_code()
        return ResponseHead(
            status=status,
            reason=reason,
            headers=self._headers,
            length=messages.response_length(self._headers, status, to_head=self._answers_head),
            keep_alive=parser.should_keep_alive(),
        )

    def on_headers_complete(self) -> None:
        """Create a message; a response without content ends here, whatever its headers contain."""
        super().on_headers_complete()
        head, body, _ = self._messages[-1]
        self._ends_with_connection = head.length == UNTIL_CLOSE
        if self._answers_head and head.status >= _FIRST_FINAL:
            body.ended = True
            self._body = None
            # The parser would wait for content.
            self._parser_is_spent = True

    def _parse(self, data: bytes) -> None:
        self._parser_is_spent = False
        super()._parse(data)
        if self._parser_is_spent and self._parser is not None:
            self._parser = self._new_parser()


def _check_request(version: str, headers: messages.Headers) -> None:
    """Reject ambiguous requests that the parser accepts."""
    if version not in {"1.0", "1.1"}:
        raise MalformedError("the version must be HTTP/1.0 or HTTP/1.1")
    hosts = sum(name.lower() == b"host" for name, _ in headers)
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise MalformedError("a request must have exactly one Host header")
    coding = messages.get(headers, b"transfer-encoding")
    if coding and (coding.lower() != b"chunked" or version != "1.1"):
        raise MalformedError("Transfer-Encoding must be chunked, and the version HTTP/1.1")


def _path_of(target: bytes) -> str:
    """Return the path and query of a target in origin or absolute form (RFC 9112, 3.2)."""
    text = target.decode("latin-1")
    if text[:7].lower() == "http://":
        slash = text.find("/", 7)
        text = text[slash:] if slash > 0 else "/"
    if not text.startswith("/") or "#" in text:
        raise MalformedError("the request target must be a path")
    return text
