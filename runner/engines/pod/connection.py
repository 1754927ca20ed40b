"""Operator's side of connections of an agent: frames, flow control, and the check whether the agent is alive; metrics.

Promises: the connection is closed if HELLO does not arrive in time, is too long or invalid, or if the agent is silent.
After HELLO, each invalid frame is an error of the run (`Receiver.fail`). Memory is limited to one frame and what the
receiver does not pause. A large frame waits for a turn, which ends when the receiver has processed the frame. An agent
sends PONG only after PING. Must not import: the meaning of runs.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar, get_args, get_type_hints

import orjson

from runner.agent import frames
from runner.agent.bounds import LONGEST_EVENT
from runner.agent.frames import HEADER, Kind
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


class Receiver(Protocol):
    """Receiver of the frames after HELLO."""

    accepts: frozenset[Kind]
    turn: Turn | None
    """Turn of a large frame. It is set before `receive_frame` gets the frame, and ended when that is processed."""

    def receive_frame(self, kind: int, number: int, payload: bytes) -> None:
        """Process a frame. Raises MalformedError."""

    def fail(self, error: MalformedError) -> None:
        """The agent sent an invalid frame. The connection is closed afterwards."""

    def resume_texts(self) -> None:
        """The connection has space for more data again."""

    def lose(self, connection: AgentConnection, *, orderly: bool) -> None:
        """The connection is closed; `orderly` if the agent closed it and no data was lost."""


class AgentConnection(asyncio.Protocol):
    """One connection."""

    def __init__(
        self,
        admit: Callable[[AgentConnection, Hello], Receiver | None],
        on_invalid: Callable[[], None],
        turns: Turns,
        admitted: Callable[[], object],
    ) -> None:
        """`admit` returns None if it refuses the agent. `on_invalid` is called if the agent sends no valid HELLO.

        `turns` are for large frames. `admitted` is called when the agent is accepted.
        """
        self._admit = admit
        self._on_invalid = on_invalid
        self._turns = turns
        self._admitted = admitted
        self._receiver: Receiver | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._awaited: asyncio.Task[None] | None = None
        """Waits for the turn of a large frame."""
        self._turn: Turn | None = None
        """Turn of the large frame that arrives."""
        self._unanswered = 0
        """PINGs without PONG."""
        self._drained: asyncio.Future[None] | None = None
        self._is_paused = False
        self.last_seen = self._loop.time()
        """Time of the event loop at the last byte. It does not change while reading is paused."""

    @property
    def is_congested(self) -> bool:
        """True if the write buffer is full."""
        return self._drained is not None

    def send(self, kind: Kind, number: int = 0, payload: bytes = b"") -> None:
        """Send a frame. Call `drain` after large ones."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frames.encode(kind, number, payload))

    async def drain(self) -> None:
        """Wait until the write buffer has space, or the connection is lost."""
        if self._drained is not None:
            await asyncio.shield(self._drained)

    def refuse(self, reason: str, *, final: bool) -> None:
        """Refuse the agent and close the connection."""
        self.send(Kind.REFUSED, payload=orjson.dumps({"reason": reason, "final": final}))
        self._receiver = None
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(_REFUSED, self.abort)

    def abort(self) -> None:
        """Close at once. The receiver gets nothing more."""
        self._receiver = None
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Stop reading."""
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Continue reading."""
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self.last_seen = self._loop.time()
            if self._awaited is None:
                self._transport.resume_reading()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for HELLO; the server limits the time."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a stream's protocol is given, for the types
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Process all complete frames."""
        self.last_seen = self._loop.time()
        self._buffer += data
        self._process()

    def _process(self) -> None:
        try:
            self._parse()
        except MalformedError as error:
            _log.debug("Agent sent an invalid frame", error=str(error))
            receiver = self._receiver
            self.abort()
            self._buffer.clear()
            if receiver is None:
                self._on_invalid()
            else:
                receiver.fail(error)

    def pause_writing(self) -> None:
        """Pause: the write buffer is full."""
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        """Resume: the write buffer has space."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)
        if self._receiver is not None:
            self._receiver.resume_texts()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        for pending in (self._timer, self._awaited):
            if pending is not None:
                pending.cancel()
        if self._turn is not None:
            self._turn.end()
        receiver, self._receiver = self._receiver, None
        self.resume_writing()
        self._transport = None
        if receiver is not None:
            receiver.lose(self, orderly=exc is None)

    # Internal.

    def _parse(self) -> None:
        at = 0
        while self._transport is not None and not self._transport.is_closing():
            if len(self._buffer) - at < HEADER.size:
                break
            kind, number, length = HEADER.unpack_from(self._buffer, at)
            self._check(kind, length)
            end = at + HEADER.size + length
            if length > LARGE and self._receiver is not None and self._turn is None:
                self._await_turn()
                break
            if len(self._buffer) < end:
                break
            with memoryview(self._buffer) as view:
                payload = bytes(view[at + HEADER.size : end])
            at = end
            if self._receiver is None:
                self._greet(payload)
            else:
                self._unanswered -= kind == Kind.PONG
                if self._turn is not None:
                    self._turn.arrived()
                    self._receiver.turn, self._turn = self._turn, None
                self._receiver.receive_frame(kind, number, payload)
        del self._buffer[:at]

    def _check(self, kind: int, length: int) -> None:
        if self._receiver is None:
            if kind != Kind.HELLO or length > frames.LARGEST_HELLO:
                raise MalformedError("the first frame is not HELLO, or is too long")
            return
        if kind not in self._receiver.accepts:
            raise MalformedError(f"a frame of the unknown kind {kind}")
        if length > _LARGEST[Kind(kind)]:
            raise MalformedError(f"a frame of the kind {Kind(kind).name} with {length} bytes")
        if kind == Kind.PONG and not self._unanswered:
            raise MalformedError("PONG without PING")

    def _await_turn(self) -> None:
        """Read no more of a large frame before its turn."""
        if self._awaited is not None or self._transport is None:
            return
        self._transport.pause_reading()

        async def wait() -> None:
            self._turn = await self._turns.take(self.abort)
            self._awaited = None
            if self._transport is not None and not self._is_paused:
                self.last_seen = self._loop.time()
                self._transport.resume_reading()
            self._process()

        self._awaited = asyncio.create_task(wait())

    def _greet(self, payload: bytes) -> None:
        self._receiver = self._admit(self, parse(Hello, payload))
        if self._receiver is not None:
            self._admitted()
            self._timer = self._loop.call_later(frames.PING_INTERVAL, self._ping)

    def _ping(self) -> None:
        """Send PING, or close the connection if the agent does not respond."""
        if not self._is_paused and self._awaited is None and self._loop.time() - self.last_seen > frames.SILENCE:
            _log.debug("Agent does not respond, closing its connection")
            if self._transport is not None:
                self._transport.abort()
            return
        if not self.is_congested:
            self.send(Kind.PING)
            self._unanswered += 1
        self._timer = self._loop.call_later(frames.PING_INTERVAL, self._ping)


class MetricsConnection(asyncio.Protocol):
    """Connection with metrics of a run's role: after the token of the run, the endpoint for metrics replaces this."""

    def __init__(
        self,
        admit: Callable[[asyncio.Transport, MetricsHello], asyncio.Protocol | None],
        admitted: Callable[[], object],
    ) -> None:
        """`admit` returns the endpoint's protocol; None if it refuses them. Then `admitted` is called."""
        self._admit = admit
        self._admitted = admitted
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the token."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a stream's protocol is given, for the types
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Begin after the token."""
        self._buffer += data
        try:
            self._greet()
        except MalformedError as error:
            _log.debug("Agent sent an invalid frame", error=str(error))
            self._transport.abort()

    def _greet(self) -> None:
        if len(self._buffer) < HEADER.size:
            return
        kind, _, length = HEADER.unpack_from(self._buffer)
        if kind != Kind.METRICS or length > frames.LARGEST_HELLO:
            raise MalformedError("the first frame of a connection with metrics is not METRICS, or is too long")
        end = HEADER.size + length
        if len(self._buffer) < end:
            return
        above = self._admit(self._transport, parse(MetricsHello, bytes(self._buffer[HEADER.size : end])))
        if above is None:
            self._transport.abort()
            return
        self._admitted()
        self._transport.set_protocol(above)
        above.connection_made(self._transport)
        if rest := bytes(self._buffer[end:]):
            above.data_received(rest)
