"""What a run asks of the API server, written down on its way to the proxy, and asked again by a client of no other use.

The relay hands bytes through and reads along. The replay keeps one connection and asks one thing after the other: the
least time in which these calls can be made.
"""

from __future__ import annotations

import http.client
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httptools

from tests.kit.wire import Wire

_EXPECTED = {http.client.NOT_FOUND, http.client.CONFLICT, http.client.UNPROCESSABLE_ENTITY}


@dataclass(slots=True)
class Call:
    """A request as it was sent."""

    method: str
    target: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    connection: int = 0
    """Number of its connection, from 1."""


@dataclass(frozen=True, slots=True)
class Relay:
    """A place to connect to instead of the proxy."""

    port: int
    calls: list[Call]
    """What was asked so far, in the order in which the calls began."""


class _Reader:
    """Reads the requests of one connection; named and called by httptools."""

    def __init__(self, calls: list[Call], connection: int) -> None:
        self._calls = calls
        self._connection = connection
        self._parser = httptools.HttpRequestParser(self)
        self._call = Call("", "")
        self._upgraded = False

    def feed(self, data: bytes) -> None:
        """Read on. What follows an upgrade of the connection is no HTTP, and is not recorded."""
        if self._upgraded:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._upgraded = True
            self._calls.remove(self._call)

    def on_message_begin(self) -> None:
        self._call = Call("", "", connection=self._connection)
        self._calls.append(self._call)

    def on_url(self, url: bytes) -> None:
        self._call.target += url.decode()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._call.headers.append((name.decode(), value.decode()))

    def on_headers_complete(self) -> None:
        self._call.method = self._parser.get_method().decode()

    def on_body(self, body: bytes) -> None:
        self._call.body += body


@asynccontextmanager
async def recording(host: str, port: int) -> AsyncIterator[Relay]:
    """Relay to `host` and `port` for as long as the block lasts."""
    calls: list[Call] = []
    numbers = itertools.count(1)
    wire = Wire(f"http://{host}:{port}", lambda: _Reader(calls, next(numbers)).feed)
    await wire.start()
    try:
        yield Relay(wire.port, calls)
    finally:
        await wire.stop()


def replay(host: str, port: int, calls: list[Call]) -> float:
    """Make the calls; return the seconds that it took. One that is refused is a RuntimeError."""
    connection = http.client.HTTPConnection(host, port, timeout=60)
    began = time.perf_counter()
    try:
        for call in calls:
            connection.putrequest(call.method, call.target, skip_host=True, skip_accept_encoding=True)
            for name, value in call.headers:
                connection.putheader(name, value)
            connection.endheaders(call.body or None)
            answer = connection.getresponse()
            answer.read()
            # A run requests objects that are missing too, and sends versions that a repeated call finds outdated.
            if answer.status >= http.client.BAD_REQUEST and answer.status not in _EXPECTED:
                raise RuntimeError(f"{call.method} {call.target}: {answer.status}")
        return time.perf_counter() - began
    finally:
        connection.close()
