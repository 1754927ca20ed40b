"""Server for the agents of runs in pods: accepts their connections, and the API calls and metrics that they pass on.

Owns: the TLS port, the choice of the protocol by ALPN, the tokens, and the frames between an agent and the engine.

Promises: the engine gets each frame once and in order, over any number of connections and agents' retries. An agent
gets the order only if no other agent of the run can have it. After `fence`, no frame is accepted. An agent with an
invalid token gets the same response for each name. An invalid frame is an error of its run only. For each run, the
operator holds at most one connection, about 1 MiB of frames, and 256 KiB of texts. Of larger frames, it holds two of
all runs. A connection without a valid token is closed after some seconds, or earlier if there are many (`Newcomers`).

The texts for the pod's log are best effort: none is repeated, and some are missing if the agent does not read them.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from weakref import WeakSet

import orjson

from runner.agent.frames import ALPN_HTTP, ALPN_LINK, ALPN_METRICS, Kind
from runner.base import log
from runner.core.proxy.http.limits import Newcomers, Turn, Turns
from runner.core.proxy.http.tls import TlsServer
from runner.engines.pod.connection import (
    AgentConnection,
    AgentLink,
    FirstFrame,
    Hello,
    MalformedError,
    MetricsHello,
    parse,
    refuse,
    switch,
)
from runner.engines.pod.idle import IdleLink
from runner.engines.pod.spool import Frame

_BACKLOG = 64
"""Connections that the event loop accepts at once: each handshake needs a millisecond."""
_LARGE_FRAMES, _LARGE_WITHIN = 2, 60.0
"""Large frames at once, and seconds for each."""
_READ_AHEAD = 1024 * 1024
"""Bytes of frames that the engine has not received, at which reading from the agent stops."""
_FRAME = 200
"""Approximate bytes of memory of a frame without its payload."""
_MOST_TEXT = 256 * 1024
_MOST_METRICS = 64
"""Connections with metrics of one run."""
_PIECE = 256 * 1024
_TURNS = 1000
"""Maximum iterations of the event loop; a few are usually enough."""
_NOT_HERE, _ENDED = "the run is not here", "the run was ended"
"""Reasons for which an agent is refused."""
_log = log.get(__name__)


class ClosedError(Exception):
    """The run was fenced or closed while a frame was awaited."""


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """How the worker ended; see `frames.Kind.END`."""

    code: int | None
    error: str
    stderr: str
    oom_kills: int
    memory_limit: int
    unused: str = ""


class Link(AgentLink):
    """One run's connection to its agent."""

    accepts = frozenset({Kind.DATA, Kind.END, Kind.PONG})

    def __init__(self, links: Links, token: str, order: Path, applied: int) -> None:
        super().__init__(token)
        self._links = links
        self._order = order
        self._sending: asyncio.Task[None] | None = None
        self._received = applied
        self._frames: deque[tuple[Frame, Turn | None]] = deque()
        self._size = 0
        self._has_space = asyncio.Event()
        self._turn: Turn | None = None
        """Turn of the large frame that the engine processes."""
        self._is_ended = False
        self._arrived = asyncio.Event()
        self._failure: Exception | None = None
        self._unsent: deque[tuple[int, bytes]] = deque()
        self._unconfirmed: deque[tuple[int, bytes]] = deque()
        """Texts that the agent has not confirmed. They are sent again after a reconnect."""
        self._text_size = 0
        self._is_stopping = False
        self._is_recorded = False
        self._to_send = asyncio.Event()
        self._metrics: WeakSet[asyncio.Transport] = WeakSet()
        self._gone = asyncio.Event()

    async def receive(self) -> Frame:
        """Return the next frame. The one before it counts as processed.

        Raises MalformedError instead of an invalid frame and each later one, OSError if the order cannot be read, and
        ClosedError after `fence` or `close`.
        """
        self._end_turn()
        while not self._frames:
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            await self._arrived.wait()
        frame, self._turn = self._frames.popleft()
        self._size -= len(frame.payload) + _FRAME
        if self._size < _READ_AHEAD // 2:
            self._has_space.set()
        return frame

    def acknowledge(self, number: int, text: str) -> None:
        """Write text to the pod's log. It is best effort; call it at most once for a frame, in order."""
        if not text:
            return
        self._unsent.append((number, text.encode(errors="replace")))
        self._text_size += len(self._unsent[-1][1])
        while self._text_size > _MOST_TEXT and len(self._unconfirmed) + len(self._unsent) > 1:
            _, dropped = (self._unconfirmed or self._unsent).popleft()
            self._text_size -= len(dropped)
        self._to_send.set()

    def stop(self) -> None:
        """Request the end of Ansible, also after a reconnect. The agent sends the last frame when it has ended."""
        self._is_stopping = True
        if self._connection is not None:
            self._connection.send(Kind.STOP)

    async def recorded(self, within: float) -> bool:
        """Notify the agent that the outcome is recorded; return True if it ended within this time in seconds."""
        self._is_recorded = True
        self._to_send.set()
        try:
            async with asyncio.timeout(within):
                await self._gone.wait()
        except TimeoutError:
            return False
        return True

    def fence(self) -> None:
        """Refuse the run finally, and drop all frames that were not received."""
        self.is_fenced = True
        if (connection := self._detach()) is not None:
            connection.refuse(_ENDED, final=True)
        self._end(ClosedError("the run is fenced"))

    def close(self) -> None:
        """Forget the run. Its agent is refused, but not finally: another operator can have the run."""
        self._links.forget(self)
        self._drop()
        self._end(ClosedError("the run is closed"))

    # For the server and the connection.

    def objection(self, hello: Hello) -> str:
        """Return why the agent is refused, or an empty text.

        Unless the run is fenced, the agent tries again: another operator can accept it, or this one can fence the run.
        """
        if self.is_fenced:
            return _ENDED
        if objection := super().objection(hello):
            return objection
        if self._failure is None and hello.last < self._received:
            self.fail(MalformedError(f"frames are lost: the agent has {hello.last}, {self._received} were received"))
        return "" if self._failure is None else f"the run failed: {self._failure}"

    def attach(self, connection: AgentConnection, hello: Hello) -> None:
        """Use the new connection of the agent."""
        super().attach(connection, hello)
        self._links.resumes += self.connects > 1
        _log.debug("Agent connected", connects=self.connects, applied=self._received, last=hello.last)
        connection.send(Kind.WELCOME, payload=orjson.dumps({"applied": self._received}))
        if self._is_stopping:
            connection.send(Kind.STOP)
        self._unsent.extendleft(reversed(self._unconfirmed))
        self._unconfirmed.clear()
        self._confirm(self._unsent, hello.acknowledged)
        needs_order = not hello.has_order and not hello.last
        self._sending = asyncio.create_task(self._send(connection, needs_order=needs_order))

    def attach_metrics(self, transport: asyncio.Transport) -> bool:
        """Accept a connection with metrics of the run's role until the run ends.

        Return False if it has ended, or has too many connections.
        """
        if self.is_fenced or len(self._metrics) >= _MOST_METRICS:
            return False
        self._metrics.add(transport)
        return True

    async def space(self) -> None:
        """Wait until the engine has received most frames, if they are many."""
        if self._size > _READ_AHEAD:
            self._has_space.clear()
            await self._has_space.wait()

    def receive_frame(self, kind: int, number: int, payload: bytes, turn: Turn | None) -> None:
        """Process a frame of the agent."""
        if kind == Kind.PONG:
            self._confirm(self._unconfirmed, number)
            return
        if self._is_ended:
            raise MalformedError(f"frame {number} after the last one, {self._received}")
        if number != self._received + 1:
            raise MalformedError(f"frame {number} instead of {self._received + 1}")
        self._is_ended = kind == Kind.END
        if self._is_ended:
            parse(AgentEnd, payload)
        self._received = number
        self._links.frames += 1
        self._frames.append((Frame(number, payload, end=self._is_ended), turn))
        self._size += len(payload) + _FRAME
        self._arrived.set()

    def fail(self, error: Exception) -> None:
        """Let `receive` raise this error after the frames that it has not returned."""
        self._drop()
        self._failure = self._failure or error
        self._arrived.set()

    def lose(self, connection: AgentConnection, *, orderly: bool) -> None:
        """Wait for the next connection."""
        if self._connection is connection and orderly and self._is_recorded:
            self._gone.set()
        super().lose(connection, orderly=orderly)

    # Internal.

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.end()

    def _end(self, failure: ClosedError) -> None:
        for transport in list(self._metrics):
            transport.abort()
        while self._frames:
            self._end_turn()
            _, self._turn = self._frames.popleft()
        self._end_turn()
        self._size = 0
        self._failure = failure
        self._arrived.set()

    def _detach(self) -> AgentConnection | None:
        if self._sending is not None:
            self._sending.cancel()
        return super()._detach()

    def _confirm(self, texts: deque[tuple[int, bytes]], number: int) -> None:
        """Forget texts that are in the pod's log."""
        while texts and texts[0][0] <= number:
            self._text_size -= len(texts.popleft()[1])

    async def _send(self, connection: AgentConnection, *, needs_order: bool) -> None:
        """Send the order, then texts while the agent reads them, and at last that the outcome is recorded."""
        at = 0
        try:
            while needs_order and not self._is_stopping:
                piece = await asyncio.to_thread(_read, self._order, at)
                connection.send(Kind.ORDER, payload=piece)
                await connection.drain()
                at += len(piece)
                needs_order = bool(piece)
        except OSError as error:
            self.fail(error)
            return
        while True:
            self._to_send.clear()
            while self._unsent:
                number, text = self._unsent.popleft()
                self._unconfirmed.append((number, text))
                connection.send(Kind.ACKNOWLEDGED, number, text)
                await connection.drain()
            if self._is_recorded:
                connection.send(Kind.RECORDED)
            await self._to_send.wait()


def _read(path: Path, at: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.read(_PIECE)


class Links:
    """Server for agents, and all runs that it accepts."""

    def __init__(
        self, http: Callable[[], asyncio.Protocol], metrics: Callable[[], asyncio.Protocol] | None = None
    ) -> None:
        """`http` makes the protocol of a connection with API calls, `metrics` that of one with metrics of roles.

        Without `metrics`, connections with metrics are refused.
        """
        self._http = http
        self._metrics = metrics
        self._runs: dict[str, Link | IdleLink] = {}
        """Also idle agents, by the name of their pod."""
        self._server: asyncio.Server | None = None
        self._connections: set[_Accepted] = set()
        self._turns = Turns(_LARGE_FRAMES, _LARGE_WITHIN)
        self.newcomers = Newcomers("server for pods of runs")
        self.frames = 0
        """Numbered frames that were accepted."""
        self.resumes = 0
        """Connections of agents that had been connected before."""
        self.refused = 0
        """Connections that were refused: an invalid HELLO, an unknown run, a wrong token, another agent."""

    async def start(self, host: str | None, port: int, context: ssl.SSLContext) -> int:
        """Listen on `port`, or on a free one if it is 0; return it. None means all interfaces. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Accepted(self, context), host, port, backlog=_BACKLOG)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def open(self, run: str, token: str, order: Path, applied: int = 0) -> Link:
        """Accept the agent of a run from now on. `order` is a file; `applied` is the last number that is recorded."""
        if run in self._runs:
            raise ValueError(f"the run {run} is open already")
        link = self._runs[run] = Link(self, token, order, applied)
        return link

    def expect(self, pod: str, token: str, changed: Callable[[], None]) -> IdleLink:
        """Accept the idle agent of a warm pod from now on; see `IdleLink`."""
        link = self._runs[pod] = IdleLink(token, self.forget, changed)
        return link

    async def close(self) -> None:
        """Close the port, all runs and the connections of agents. The proxy closes those with API calls."""
        if self._server is not None:
            self._server.close()
        for link in list(self._runs.values()):
            link.close()
        # The transports close in the next iterations of the event loop.
        for _ in range(_TURNS):
            for connection in list(self._connections):
                connection.abort()
            await asyncio.sleep(0)
            if not self._connections:
                return

    # For the parts of this module.

    def forget(self, link: Link | IdleLink) -> None:
        """Remove a run or an idle agent."""
        self._runs = {name: other for name, other in self._runs.items() if other is not link}

    def choose(self, protocol: str | None, admitted: Callable[[], object]) -> asyncio.Protocol:
        """Return the protocol of a new connection. It calls `admitted` after a valid token."""
        if protocol == ALPN_HTTP:
            admitted()  # the proxy has its own limit
            return self._http()
        if protocol == ALPN_METRICS:
            return FirstFrame(Kind.METRICS, MetricsHello, partial(self._admit_metrics, admitted), lambda: None)
        if protocol == ALPN_LINK:
            return FirstFrame(Kind.HELLO, Hello, partial(self._admit, admitted), self._count_refused)
        return _Closed()

    def add(self, connection: _Accepted) -> None:
        """Add a connection, which `close` aborts."""
        self._connections.add(connection)

    def remove(self, connection: _Accepted) -> None:
        """Remove a closed connection, or one with API calls."""
        self._connections.discard(connection)

    def _admit(
        self, admitted: Callable[[], object], transport: asyncio.Transport, hello: Hello
    ) -> asyncio.Protocol | None:
        link = self._with_token(hello)
        objection = _NOT_HERE if link is None else link.objection(hello)
        if link is None or objection:
            self.refused += 1
            _log.debug("Agent refused", reason=objection)
            refuse(transport, objection, final=link is not None and link.is_fenced)
            return None
        admitted()
        connection = AgentConnection(link, self._turns)
        switch(transport, connection)
        link.attach(connection, hello)
        return connection

    def _admit_metrics(
        self, admitted: Callable[[], object], transport: asyncio.Transport, hello: MetricsHello
    ) -> asyncio.Protocol | None:
        link = self._with_token(hello)
        self.refused += link is None
        if self._metrics is None or not isinstance(link, Link) or not link.attach_metrics(transport):
            transport.abort()
            return None
        admitted()
        switch(transport, above := self._metrics())
        return above

    def _with_token(self, hello: Hello | MetricsHello) -> Link | IdleLink | None:
        """Return a run or idle agent if the token is its own."""
        link = self._runs.get(hello.run)
        expected = link.token if link else ""
        is_right = hmac.compare_digest(expected.encode(), hello.token.encode())
        return link if is_right else None

    def _count_refused(self) -> None:
        self.refused += 1


class _Accepted(TlsServer):
    """Accepted connection."""

    def __init__(self, links: Links, context: ssl.SSLContext) -> None:
        super().__init__(context, self._choose)
        self._links = links
        self._admitted: Callable[[], object] = lambda: None
        links.add(self)
        self.handshake.add_done_callback(_shaken)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, if there are not too many connections."""
        self._admitted = self._links.newcomers.add(transport.get_extra_info("peername"), self.abort)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Delegate."""
        self._admitted()
        self._links.remove(self)
        super().connection_lost(exc)

    def _choose(self, protocol: str | None) -> asyncio.Protocol:
        if protocol == ALPN_HTTP:
            self._links.remove(self)
        return self._links.choose(protocol, self._admitted)


def _shaken(handshake: asyncio.Future[None]) -> None:
    if not handshake.cancelled() and handshake.exception() is not None:
        _log.debug("TLS handshake with an agent failed", error=str(handshake.exception()))


class _Closed(asyncio.Protocol):
    """Protocol that closes its connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
