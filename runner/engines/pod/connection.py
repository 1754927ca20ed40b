"""Operator's side of connections of agents: the first frame, all later ones, and the check whether the agent is alive.

Promises: the connection is closed if its first frame is too long or invalid, or if the agent is silent. After HELLO,
each invalid frame is an error of the run (`AgentLink.fail`). Memory is limited to one frame, what arrives with it, and
what the link takes. A large frame waits for a turn, which ends when the engine has processed the frame. An agent sends
PONG only after PING. Must not import: the meaning of runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar, get_args, get_type_hints

import orjson

from runner.agent import frames
from runner.agent.bounds import LONGEST_EVENT
from runner.agent.frames import HEADER, PROTOCOL, Kind
from runner.base import log
from runner.core.proxy.http.limits import LARGE, Turn, Turns

T = TypeVar("T", bound=Any)
_LARGEST = {Kind.DATA: 2 * LONGEST_EVENT, Kind.END: frames.LARGEST_HELLO * 4, Kind.PONG: 0}
_REFUSED = 10.0
"""Seconds in which a refused agent reads why."""
_log = log.get(__name__)


class MalformedError(Exception):
    """The agent sent an invalid frame."""


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of an agent; see `frames.Kind.HELLO`."""

    protocol: int
    run: str
    token: str
    agent: str
    has_order: bool
    last: int
    acknowledged: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class MetricsHello:
    """First frame of a connection with metrics; see `frames.Kind.METRICS`."""

    run: str
    token: str


_types: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)


def parse(form: type[T], payload: bytes) -> T:
    """Return a JSON object as a dataclass, after a check of its types. Raises MalformedError.

    A field with a default may be missing, because earlier agents do not send it.
    """
    try:
        value = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise MalformedError(f"invalid JSON: {error}") from error
    if not isinstance(value, dict):
        raise MalformedError("invalid JSON: not an object")
    values = {field.name: value.get(field.name, field.default) for field in fields(form)}
    for name, types in _types(form).items():
        if type(values[name]) not in (get_args(types) or (types,)):  # not isinstance: True is an int
            raise MalformedError(f"invalid JSON: {name} is missing or has another type")
    parsed: T = form(**values)
    return parsed


def switch(transport: asyncio.Transport, protocol: asyncio.Protocol) -> None:
    """Replace the protocol of an open connection."""
    transport.set_protocol(protocol)
    protocol.connection_made(transport)


def refuse(transport: asyncio.WriteTransport, reason: str, *, final: bool) -> None:
    """Refuse an agent and close its connection."""
    transport.write(frames.encode(Kind.REFUSED, payload=orjson.dumps({"reason": reason, "final": final})))
    transport.close()
    asyncio.get_running_loop().call_later(_REFUSED, transport.abort)


class FirstFrame(asyncio.Protocol):
    """Protocol of a new connection until its first frame, which contains a token. The server limits the time."""

    def __init__(
        self,
        kind: Kind,
        form: type[T],
        admit: Callable[[asyncio.Transport, T], asyncio.Protocol | None],
        on_invalid: Callable[[], None],
    ) -> None:
        """`admit` gets the frame, and returns the protocol that it has switched to; None if it refuses the client."""
        self._kind, self._form = kind, form
        self._admit, self._on_invalid = admit, on_invalid
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the frame."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a stream's protocol is given, for the types
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Begin after the frame."""
        self._buffer += data
        try:
            hello, size = self._parse()
        except MalformedError as error:
            _log.debug("Agent sent an invalid frame", error=str(error))
            self._on_invalid()
            self._transport.abort()
            return
        above = self._admit(self._transport, hello) if hello is not None else None
        if above is not None and (rest := bytes(self._buffer[size:])):
            above.data_received(rest)

    def _parse(self) -> tuple[Any, int]:
        """Return the content of the frame, None if it is not complete; and the size of the frame."""
        if len(self._buffer) < HEADER.size:
            return None, 0
        kind, _, length = HEADER.unpack_from(self._buffer)
        if kind != self._kind or length > frames.LARGEST_HELLO:
            raise MalformedError(f"the first frame is not {self._kind.name}, or is too long")
        size = HEADER.size + length
        is_complete = len(self._buffer) >= size
        return parse(self._form, bytes(self._buffer[HEADER.size : size])) if is_complete else None, size


class AgentLink:
    """One agent, over any number of connections."""

    accepts: frozenset[Kind]
    """Kinds of frames after HELLO."""
    subject = "run"
    """What the agent has, for messages."""
    is_fenced = False
    """True if all agents are refused finally."""

    def __init__(self, token: str) -> None:
        self.token = token
        self._connection: AgentConnection | None = None
        self._agent: str | None = None
        self.connects = 0
        """How often the agent was accepted."""

    @property
    def is_connected(self) -> bool:
        """True while the agent is connected."""
        return self._connection is not None

    def objection(self, hello: Hello) -> str:
        """Return why an agent with the token is refused, or an empty text."""
        if hello.protocol != PROTOCOL:
            return f"protocol {hello.protocol} is not supported, only {PROTOCOL}"
        return "" if self._agent in {None, hello.agent} else f"another agent has this {self.subject}"

    def attach(self, connection: AgentConnection, hello: Hello) -> None:
        """Use the new connection of an agent."""
        self._drop()
        self._agent, self._connection = hello.agent, connection
        self.connects += 1

    def _detach(self) -> AgentConnection | None:
        connection, self._connection = self._connection, None
        return connection

    def _drop(self) -> None:
        if (connection := self._detach()) is not None:
            connection.abort()

    async def space(self) -> None:
        """Wait until another frame may arrive."""

    def receive_frame(self, kind: int, number: int, payload: bytes, turn: Turn | None) -> None:
        """Process a frame, and end the turn afterwards. Raises MalformedError."""

    def fail(self, error: Exception) -> None:
        """The agent sent an invalid frame: close its connection."""

    def lose(self, connection: AgentConnection, *, orderly: bool) -> None:
        """A connection is closed; `orderly` if the agent closed it and no data was lost."""
        if self._connection is connection:
            self._detach()
            _log.debug("Agent disconnected", orderly=orderly)


class AgentConnection(asyncio.StreamReaderProtocol):
    """One connection of an agent that was accepted."""

    def __init__(self, link: AgentLink, turns: Turns) -> None:
        """`turns` are for large frames."""
        super().__init__(asyncio.StreamReader(frames.PIECE), self._begin)
        self._link = link
        self._turns = turns
        self._unanswered = 0
        """PINGs without PONG."""
        self._is_orderly = False

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._ping())]

    def connection_lost(self, exc: Exception | None) -> None:
        """End, after the frames that have arrived."""
        self._is_orderly = exc is None
        super().connection_lost(None)

    def send(self, kind: Kind, number: int = 0, payload: bytes = b"") -> None:
        """Send a frame. Call `drain` after large ones."""
        self._writer.write(frames.encode(kind, number, payload))

    async def drain(self) -> None:
        """Wait until the write buffer has space, or the connection is lost."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def refuse(self, reason: str, *, final: bool) -> None:
        """Refuse the agent and close the connection. The link gets nothing more."""
        self._end()
        refuse(self._writer.transport, reason, final=final)

    def abort(self) -> None:
        """Close at once. The link gets nothing more."""
        self._end()
        self._writer.transport.abort()

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _follow(self) -> None:
        """Pass on the frames of the agent until the connection is lost."""
        try:
            while True:
                await self._link.space()
                await self._receive()
        except MalformedError as error:
            _log.debug("Agent sent an invalid frame", error=str(error))
            self._link.fail(error)
        except Exception as error:
            self._link.lose(self, orderly=self._is_orderly)
            self.abort()
            if not isinstance(error, OSError | EOFError):
                raise  # a defect, which asyncio logs

    async def _receive(self) -> None:
        kind, number, length = HEADER.unpack(await self._read(HEADER.size))
        self._check(kind, length)
        turn = await self._turns.take(self._writer.transport.abort) if length > LARGE else None
        try:
            payload = await self._read(length)
            if turn is not None:
                turn.arrived()
            self._unanswered -= kind == Kind.PONG
            self._link.receive_frame(kind, number, payload, turn)
        except BaseException:
            if turn is not None:
                turn.end()
            raise

    def _check(self, kind: int, length: int) -> None:
        if kind not in self._link.accepts:
            raise MalformedError(f"a frame of the unknown kind {kind}")
        if length > _LARGEST[Kind(kind)]:
            raise MalformedError(f"a frame of the kind {Kind(kind).name} with {length} bytes")
        if kind == Kind.PONG and not self._unanswered:
            raise MalformedError("PONG without PING")

    async def _read(self, length: int) -> bytes:
        """Return bytes of a frame. Raises EOFError if the connection is lost, and TimeoutError if it is silent."""
        data = bytearray()
        while len(data) < length:
            async with asyncio.timeout(frames.SILENCE):
                piece = await self._reader.read(length - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(frames.PING_INTERVAL)
            self._unanswered += 1
            self.send(Kind.PING)
