"""Protocol between an agent and the operator, and what all parts of the agent use.

A frame is a header (kind, number, length of the payload) and its payload. Only DATA and END are numbered, from 1. An
agent outlives an upgrade of the operator. So each operator supports the protocol of its predecessors, and the agent
ignores kinds that it does not support.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import struct
from collections.abc import Awaitable
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

PROTOCOL = 1
ALPN_LINK = "ansible-operator-link"
ALPN_HTTP = "http/1.1"
ALPN_METRICS = "ansible-operator-metrics"
"""After a frame of the kind METRICS, HTTP requests of the module `osdk_metric`."""
RELAY_PORT = 48443
"""Port on loopback for the API calls of the run."""
METRICS_PORT = 5050
"""Port on loopback for metrics of roles. It is the default of the module `osdk_metric`."""
HEADER = struct.Struct(">BQI")
LARGEST = 64 * 1024 * 1024
"""Maximum bytes of a line of the worker. The agent shortens those that exceed the bounds of events."""
LARGEST_HELLO = 16 * 1024
PING_INTERVAL = 10.0
SILENCE = 30.0
"""Seconds without a byte after which a connection is dead."""

CONNECT = 10.0
"""Seconds for name resolution, for a connection, and for the response to HELLO."""
FIRST_DELAY = 0.2
"""Seconds before another attempt to connect."""
PIECE = 64 * 1024


class Kind(IntEnum):
    """Kind of a frame. The agent sends the first five, the operator sends the rest."""

    HELLO = 1
    """JSON: `protocol`, `run`, `token`, `agent` (random, differs between processes), `has_order`, `last` (highest frame
    number so far), `acknowledged` (highest number of which the text is in the pod's log). An idle agent: `problem` (why
    Ansible is not loaded, or empty)."""
    DATA = 2
    """One line of the worker's standard output, without its newline. Artifacts are not sent."""
    END = 3
    """JSON: `code` (exit code of the worker, negative for a signal, null if it did not start), `error`, `stderr` (its
    end), `oom_kills`, `memory_limit` (bytes, 0 is unlimited), `unused` (why a run in a warm pod did not use the loaded
    Ansible, or empty)."""
    PONG = 4
    """The number is that of `acknowledged`."""
    METRICS = 5
    """JSON: `run`, `token`. First frame of a connection with metrics."""
    WELCOME = 16
    """JSON: `applied`; the agent continues with the next number."""
    REFUSED = 17
    """JSON: `reason`, `final`."""
    ORDER = 18
    """Part of what `ansible-runner transmit` wrote; an empty one ends it."""
    ACKNOWLEDGED = 19
    """UTF-8 text for the pod's log, about the frame of this number."""
    STOP = 20
    RECORDED = 21
    PING = 22
    ASSIGN = 23
    """JSON: `run`, `token`. An idle agent connects again with them; another one ignores it."""


class Exit(IntEnum):
    """Exit code of the agent."""

    DONE = 0
    """The operator recorded the outcome of the run, whatever it was, or does not need the idle agent any more."""
    USED = 2
    """An agent has run in this folder before."""
    REFUSED = 3
    """The operator refuses the run finally."""
    ABANDONED = 4
    """No operator accepted the agent for too long."""
    TERMINATED = 143
    """SIGTERM, and no operator recorded the outcome in time."""


class AgentError(Exception):
    """The run cannot start or continue. The text is for the user."""


class Contact(NamedTuple):
    """How the agent of a run reaches its operator."""

    run: str
    token: str
    ca: str
    host: str
    port: int
    name: str

    @classmethod
    def read(cls, folder: Path) -> Contact:
        """Read the files of the Secret beside the agent. Raises OSError and ValueError."""
        run, token, ca, server, name = (
            (folder / file).read_text(encoding="utf-8").strip() for file in ("run", "token", "ca.crt", "server", "name")
        )
        host, _, port = server.rpartition(":")
        return cls(run, token, ca, host.strip("[]"), int(port), name)

    def context(self, protocol: str) -> ssl.SSLContext:
        """Return the TLS context of a connection. Raises ssl.SSLError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(cadata=self.ca)
        context.set_alpn_protocols([protocol])
        return context


def encode(kind: Kind, number: int = 0, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return HEADER.pack(kind, number, len(payload)) + payload


def encode_json(kind: Kind, value: dict[str, Any], number: int = 0) -> bytes:
    """Return a frame with a JSON payload."""
    return encode(kind, number, json.dumps(value).encode())


async def connect(contact: Contact, address: str, protocol: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to an address of the operator. Raises OSError, and ValueError if the server is not an operator."""
    reader, writer = await asyncio.open_connection(
        address, contact.port, ssl=contact.context(protocol), server_hostname=contact.name
    )
    if writer.get_extra_info("ssl_object").selected_alpn_protocol() != protocol:
        writer.transport.abort()
        raise ValueError("the server is not an operator with runs in pods")
    return reader, writer


async def read(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """Return the next frame. Raises OSError, EOFError and ValueError."""
    kind, number, length = HEADER.unpack(await reader.readexactly(HEADER.size))
    if length > LARGEST:
        raise ValueError("a frame is too long")
    return kind, number, await reader.readexactly(length)


async def within(seconds: float, task: Awaitable[T]) -> T:
    """Return the result of a coroutine. Raises asyncio.TimeoutError.

    In place of `asyncio.wait_for`, which before Python 3.12 ignores a cancellation at the moment of the result.
    """
    future = asyncio.ensure_future(task)
    try:
        done, _ = await asyncio.wait({future}, timeout=seconds)
    finally:
        future.cancel()
    if not done:
        await asyncio.wait({future})
        raise asyncio.TimeoutError
    return future.result()


def text_of(error: BaseException) -> str:
    """Return the text of an error, which is valid UTF-8."""
    return (str(error) or type(error).__name__).encode(errors="replace").decode()


def log(text: str) -> None:
    """Write a message to the pod's log."""
    write_log(f"ansible-operator: {text}\n".encode(errors="replace"), 2)


def write_log(text: bytes, descriptor: int = 1) -> None:
    """Write to the pod's log."""
    with contextlib.suppress(OSError):  # nobody reads the pod's log, and the run does not depend on it
        view = memoryview(text)
        while view:
            view = view[os.write(descriptor, view) :]
