"""Requests of runs, written down on their way to the API server."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httptools

from tests.kit.wire import Wire


@dataclass(slots=True)
class Call:
    """A request as it was sent."""

    connection: int
    """Number of its connection, from 1."""
    method: str = ""
    target: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)


class _Reader:
    """Reads the requests of one connection; named and called by httptools."""

    def __init__(self, calls: list[Call], connection: int) -> None:
        self._calls = calls
        self._call = Call(connection)
        self._parser = httptools.HttpRequestParser(self)
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
        self._call = Call(self._call.connection)
        self._calls.append(self._call)

    def on_url(self, url: bytes) -> None:
        self._call.target += url.decode()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._call.headers.append((name.decode(), value.decode()))

    def on_headers_complete(self) -> None:
        self._call.method = self._parser.get_method().decode()


@asynccontextmanager
async def recording(host: str, port: int) -> AsyncIterator[tuple[int, list[Call]]]:
    """Relay to `host` and `port` during the block; yield the port of the relay, and the calls in their order."""
    calls: list[Call] = []
    numbers = itertools.count(1)
    wire = Wire(f"http://{host}:{port}", lambda: _Reader(calls, next(numbers)).feed)
    await wire.start()
    try:
        yield wire.port, calls
    finally:
        await wire.stop()
