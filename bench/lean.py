"""A client that costs little: prepared requests on kept connections, answers looked at no further than needed.

What is measured with it is the other side. The same code asks the API server (TLS) and the proxy (plain HTTP), so that
the proxy's advantage of having no TLS towards the client is in the figures, as it is in those of any client.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Self

_PIECE = 256 * 1024
_WITHIN = 60.0
"""Seconds after which an answer is not going to come."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to ask, and as whom."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    headers: tuple[tuple[str, str], ...]

    def get(self, path: str) -> bytes:
        """Prepare a GET."""
        return self._request(f"GET {path}", b"")

    def post(self, path: str, body: bytes) -> bytes:
        """Prepare a POST of JSON."""
        return self._request(f"POST {path}", body)

    def _request(self, start: str, body: bytes) -> bytes:
        lines = [f"{start} HTTP/1.1", f"Host: {self.host}:{self.port}", "Accept: application/json"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(frozen=True, slots=True)
class Answer:
    """The little that is read of an answer."""

    status: int
    head: bytes
    """In lower case."""

    @property
    def is_hit(self) -> bool:
        """Whether the proxy answered from memory."""
        return b"\r\nx-cache: hit\r\n" in self.head


class Connection:
    """One kept connection; answers need a Content-Length."""

    def __init__(self, endpoint: Endpoint) -> None:
        sock = socket.create_connection((endpoint.host, endpoint.port), timeout=_WITHIN)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if endpoint.tls is not None:
            sock = endpoint.tls.wrap_socket(sock, server_hostname=endpoint.host)
        self.socket = sock
        self._data = b""
        self._wanted = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: bytes) -> Answer:
        """Send, and wait for the whole answer."""
        self.send(request)
        while not self._take(self.socket.recv(_PIECE)):
            pass
        return self.answer()

    def send(self, request: bytes) -> None:
        """Send only."""
        self._data, self._wanted = b"", 0
        self.socket.sendall(request)

    def has_arrived(self) -> bool:
        """Take what is there without waiting; return whether the answer is whole."""
        try:
            while not self._take(self.socket.recv(_PIECE)):
                pass
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        return True

    def answer(self) -> Answer:
        """What has arrived."""
        return Answer(int(self._data[9:12]), self._data.partition(b"\r\n\r\n")[0].lower() + b"\r\n")

    def head(self, request: bytes) -> Answer:
        """Send, and wait for the head only: what follows has no end."""
        self.send(request)
        while b"\r\n\r\n" not in self._data:
            self._data += self._some()
        return self.answer()

    def stream(self, request: bytes, *, pause_after: int, pause: float) -> int:
        """Send, and drop the content as it comes, up to the end of a chunked one; return how many bytes it was.

        Stop reading for `pause` seconds after `pause_after` bytes: the sender has to wait then, or to hold the rest.
        """
        self.send(request)
        size, end = 0, b""
        while not end.endswith(b"\r\n0\r\n\r\n"):
            piece = self._some()
            if size <= pause_after < size + len(piece):
                time.sleep(pause)
            size += len(piece)
            end = (end + piece)[-7:]
        return size

    def _take(self, piece: bytes) -> bool:
        if not piece:
            raise ConnectionError("the connection was closed in the middle of an answer")
        self._data += piece
        if not self._wanted:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return False
            self._wanted = end + 4 + self._length(end)
        return len(self._data) >= self._wanted

    def _length(self, end: int) -> int:
        lower = self._data[:end].lower()
        at = lower.find(b"\r\ncontent-length:")
        if at < 0:
            raise ConnectionError(f"an answer without length: {self._data[:end]!r}")
        return int(lower[at + 17 :].split(b"\r\n", 1)[0])

    def _some(self) -> bytes:
        piece = self.socket.recv(_PIECE)
        if not piece:
            raise ConnectionError("the connection was closed in the middle of an answer")
        return piece


def throughput(endpoint: Endpoint, request: bytes, clients: int, seconds: float) -> float:
    """Ask on `clients` connections at once, each again as soon as it has its answer; return answers per second."""
    connections = [Connection(endpoint) for _ in range(clients)]
    done = 0
    try:
        with selectors.DefaultSelector() as selector:
            for connection in connections:
                connection.ask(request)  # the first is not counted: it finds out what all later ones find ready
                connection.socket.setblocking(False)  # noqa: FBT003 - the standard library's own signature
                selector.register(connection.socket, selectors.EVENT_READ, connection)
                connection.send(request)
            began = time.perf_counter()
            while (now := time.perf_counter()) < began + seconds:
                for key, _ in selector.select(_WITHIN):
                    connection = key.data
                    if connection.has_arrived():
                        if connection.answer().status != 200:
                            raise RuntimeError(f"refused: {connection.answer()}")
                        done += 1
                        connection.send(request)
    finally:
        for connection in connections:
            connection.socket.close()
    return done / (now - began)
