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
from pathlib import Path
from weakref import WeakSet

import orjson

from runner.agent.frames import ALPN_HTTP, ALPN_LINK, ALPN_METRICS, PROTOCOL, Kind
from runner.base import log
from runner.core.proxy.http.limits import LARGE, Newcomers, Turn, Turns
from runner.core.proxy.http.tls import TlsServer
from runner.engines.pod.connection import (
    AgentConnection,
    Hello,
    MalformedError,
    MetricsConnection,
    MetricsHello,
    Receiver,
    parse,
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
_NOT_HERE = "the run is not here"
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


class Link:
    """One run's connection to its agent."""

    accepts = frozenset({Kind.DATA, Kind.END, Kind.PONG})

    def __init__(self, links: Links, token: str, order: Path, applied: int) -> None:
        self._links = links
        self.token = token
        self._order = order
        self._connection: AgentConnection | None = None
        self._agent: str | None = None
        self._sending: asyncio.Task[None] | None = None
        self._received = applied
        self._frames: deque[Frame] = deque()
        self._size = 0
        self._is_ended = False
        self._arrived = asyncio.Event()
        self._failure: Exception | None = None
        self._unsent: deque[tuple[int, bytes]] = deque()
        self._unconfirmed: deque[tuple[int, bytes]] = deque()
        """Texts that the agent has not confirmed. They are sent again after a reconnect."""
        self._text_size = 0
        self._is_stopping = False
        self._is_recorded = False
        self._is_fenced = False
        self._metrics: WeakSet[asyncio.Transport] = WeakSet()
        self._gone = asyncio.Event()
        self.connects = 0
        """How often the agent was accepted."""
        self.turn: Turn | None = None

    @property
    def is_connected(self) -> bool:
        """True while an agent is connected."""
        return self._connection is not None

    async def receive(self) -> Frame:
        """Return the next frame.

        Raises MalformedError instead of an invalid frame and each later one, OSError if the order cannot be read, and
        ClosedError after `fence` or `close`.
        """
        self._end_turn()
        while not self._frames:
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            await self._arrived.wait()
        frame = self._frames.popleft()
        self._size -= len(frame.payload) + _FRAME
        if self._connection is not None and self._size < _READ_AHEAD // 2:
            self._connection.resume()
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
        self.resume_texts()

    def stop(self) -> None:
        """Request the end of Ansible, also after a reconnect. The agent sends the last frame when it has ended."""
        self._is_stopping = True
        self._cancel_order()
        if self._connection is not None:
            self._connection.send(Kind.STOP)

    async def recorded(self, within: float) -> bool:
        """Notify the agent that the outcome is recorded; return True if it ended within this time in seconds."""
        self._is_recorded = True
        if self._connection is not None:
            self._connection.send(Kind.RECORDED)
        try:
            async with asyncio.timeout(within):
                await self._gone.wait()
        except TimeoutError:
            return False
        return True

    def fence(self) -> None:
        """Refuse the run finally, and drop all frames that were not received."""
        self._is_fenced = True
        connection = self._detach()
        if connection is not None:
            connection.refuse("the run was ended", final=True)
        self._end(ClosedError("the run is fenced"))

    def close(self) -> None:
        """Forget the run. Its agent is refused, but not finally: another operator can have the run."""
        self._links.forget(self)
        connection = self._detach()
        if connection is not None:
            connection.abort()
        self._end(ClosedError("the run is closed"))

    # For the server and the connection.

    def attach(self, connection: AgentConnection, hello: Hello) -> Link | None:
        """Accept an agent that has the token, or refuse it and return None."""
        objection = self._objection(hello)
        if objection or self._is_fenced:
            self._links.refused += 1
            _log.debug("Agent refused", reason=objection, final=self._is_fenced)
            connection.refuse(objection, final=self._is_fenced)
            return None
        replaced = self._detach()
        if replaced is not None:
            replaced.abort()
        self._agent = hello.agent
        self._connection = connection
        self.connects += 1
        self._links.resumes += self.connects > 1
        _log.debug("Agent connected", connects=self.connects, applied=self._received, last=hello.last)
        connection.send(Kind.WELCOME, payload=orjson.dumps({"applied": self._received}))
        if self._size > _READ_AHEAD:
            connection.pause()
        if self._is_stopping:
            connection.send(Kind.STOP)
        elif not hello.has_order and not hello.last:
            self._sending = asyncio.create_task(self._send_order(connection))
        self._unsent.extendleft(reversed(self._unconfirmed))
        self._unconfirmed.clear()
        self._confirm(self._unsent, hello.acknowledged)
        self.resume_texts()
        if self._is_recorded:
            connection.send(Kind.RECORDED)
        return self

    def attach_metrics(self, transport: asyncio.Transport) -> bool:
        """Accept a connection with metrics of the run's role until the run ends.

        Return False if it has ended, or has too many connections.
        """
        if self._is_fenced or len(self._metrics) >= _MOST_METRICS:
            return False
        self._metrics.add(transport)
        return True

    def receive_frame(self, kind: int, number: int, payload: bytes) -> None:
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
        self._frames.append(Frame(number, payload, end=self._is_ended))
        self._size += len(payload) + _FRAME
        if self._size > _READ_AHEAD and self._connection is not None:
            self._connection.pause()
        self._arrived.set()

    def fail(self, error: Exception) -> None:
        """Let `receive` raise this error after the frames that it has not returned."""
        connection = self._detach()
        if connection is not None:
            connection.abort()
        self._failure = self._failure or error
        self._arrived.set()

    def resume_texts(self) -> None:
        """Send texts while the agent reads them."""
        while self._unsent and self._connection is not None and not self._connection.is_congested:
            number, text = self._unsent.popleft()
            self._unconfirmed.append((number, text))
            self._connection.send(Kind.ACKNOWLEDGED, number, text)

    def lose(self, connection: AgentConnection, *, orderly: bool) -> None:
        """Wait for the next connection."""
        if self._connection is connection:
            self._detach()
            _log.debug("Agent disconnected", orderly=orderly)
            if orderly and self._is_recorded:
                self._gone.set()

    # Internal.

    def _objection(self, hello: Hello) -> str:
        """Return why the agent is refused, or an empty text.

        Unless the run is fenced, the agent tries again: another operator can accept it, or this one can fence the run.
        """
        if self._is_fenced:
            return "the run was ended"
        if hello.protocol != PROTOCOL:
            return f"protocol {hello.protocol} is not supported, only {PROTOCOL}"
        if self._agent not in {None, hello.agent}:
            return "another agent has this run"
        if self._failure is None and hello.last < self._received:
            self.fail(MalformedError(f"frames are lost: the agent has {hello.last}, {self._received} were received"))
        return "" if self._failure is None else f"the run failed: {self._failure}"

    def _end_turn(self) -> None:
        """End the turn of a large frame unless it waits for the engine."""
        if self.turn is not None and all(len(frame.payload) <= LARGE for frame in self._frames):
            self.turn.end()

    def _end(self, failure: ClosedError) -> None:
        for transport in list(self._metrics):
            transport.abort()
        self._frames.clear()
        self._size = 0
        self._failure = failure
        self._end_turn()
        self._arrived.set()

    def _detach(self) -> AgentConnection | None:
        self._cancel_order()
        connection, self._connection = self._connection, None
        return connection

    def _cancel_order(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _confirm(self, texts: deque[tuple[int, bytes]], number: int) -> None:
        """Forget texts that are in the pod's log."""
        while texts and texts[0][0] <= number:
            self._text_size -= len(texts.popleft()[1])

    async def _send_order(self, connection: AgentConnection) -> None:
        at = 0
        try:
            while piece := await asyncio.to_thread(_read, self._order, at):
                connection.send(Kind.ORDER, payload=piece)
                await connection.drain()
                at += len(piece)
        except OSError as error:
            self._sending = None
            self.fail(error)
            return
        connection.send(Kind.ORDER)
        self._sending = None


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

    async def start(self, host: str, port: int, context: ssl.SSLContext) -> int:
        """Listen on `port`, or on a free one if it is 0; return it. Raises OSError."""
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
            return MetricsConnection(self._admit_metrics, admitted)
        if protocol == ALPN_LINK:
            return AgentConnection(self._admit, self._count_refused, self._turns, admitted)
        return _Closed()

    def add(self, connection: _Accepted) -> None:
        """Add a connection, which `close` aborts."""
        self._connections.add(connection)

    def remove(self, connection: _Accepted) -> None:
        """Remove a closed connection, or one with API calls."""
        self._connections.discard(connection)

    def _admit(self, connection: AgentConnection, hello: Hello) -> Receiver | None:
        link = self._with_token(hello)
        if link is not None:
            return link.attach(connection, hello)
        connection.refuse(_NOT_HERE, final=False)
        return None

    def _admit_metrics(self, transport: asyncio.Transport, hello: MetricsHello) -> asyncio.Protocol | None:
        link = self._with_token(hello)
        if self._metrics is None or not isinstance(link, Link) or not link.attach_metrics(transport):
            return None
        return self._metrics()

    def _with_token(self, hello: Hello | MetricsHello) -> Link | IdleLink | None:
        """Return a run or idle agent if the token is its own; otherwise count a refused connection."""
        link = self._runs.get(hello.run)
        expected = link.token if link else ""
        is_right = hmac.compare_digest(expected.encode(), hello.token.encode())
        if link is not None and is_right:
            return link
        self._count_refused()
        _log.debug("Agent refused", reason=_NOT_HERE)
        return None

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
