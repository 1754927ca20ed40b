"""Agent of one run, in the run's pod: `python3 agent.py SETTINGS_DIR WORK_DIR`.

It opens one TLS connection to the operator, fetches the run's order, starts `ansible-runner worker` with it, and sends
the worker's output as numbered frames. The operator mounts the text of this file into the pod, so it uses only the
standard library and the syntax of Python 3.9. The operator imports the protocol from here.

A frame is a header (kind, number, length of the payload) and its payload. Only DATA and END are numbered, from 1. An
agent outlives an upgrade of the operator. So each operator supports the protocol of its predecessors, and the agent
ignores kinds that it does not support.

Promises: Ansible starts at most once. A frame is in `WORK_DIR` before it is sent and stays there, so the operator can
request all frames again. END is last. No process of the run is left then, except those of other users. A role can
start them with `become`, and they end with the pod. API calls wait while there is no operator. The pod's log contains
only text that the operator returned, and messages about the connection and such processes.

`SETTINGS_DIR` has the files `run`, `token`, `ca.crt`, `server` (host:port) and `name` (of the server, for TLS). They
are read for each attempt to connect. Exit codes: see `Exit`.

With a file `warm`, the agent is idle: it starts `preload.py`, which is beside it, and waits for ASSIGN. From then on it
is the agent of that run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import IO, Any, NamedTuple

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
"""Maximum bytes of a payload."""
LARGEST_HELLO = 16 * 1024
PING_INTERVAL = 10.0
SILENCE = 30.0
"""Seconds without a byte after which a connection is dead."""

_CONNECT = 10.0
"""Seconds for name resolution, for a connection, and for the response to HELLO."""
_FIRST_DELAY = 0.2
_LONGEST_DELAY = 5.0
_PATIENCE = 15 * 60.0
"""Seconds without an operator after which the agent gives up."""
_IDLE_PATIENCE = 30.0
"""The same for an idle agent: only the operator that started it can give it a run."""
_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL to the worker."""
_LEFTOVER_GRACE = 2.0
"""The same for background processes of the role that outlive the worker."""
_KILL_WITHIN = 5.0
"""Seconds after the first SIGKILL in which processes have to end."""
_DELIVERY = 10.0
"""Seconds in which an agent that got SIGTERM tries to deliver END."""
_RELAY_WAIT = 60.0
"""Seconds for which an API call waits for an operator."""
_PIECE = 64 * 1024
_STDERR = 4096
_POLL = 0.02
_LOOK = 1.0
_STUCK = 15.0
"""Seconds without CPU time after which a process that waits for a lock does not continue."""
_STUCK_ERROR = "Ansible did not continue after the kernel had killed a process of it, and was ended"
_OLDEST_RUNNER = (2, 4)
_VERSION_TIMEOUT = 60.0
_PRELOAD_TIMEOUT = 60.0
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""
_CGROUP_OF_SELF = "/proc/self/cgroup"
_CGROUPS = "/sys/fs/cgroup"
_ARTIFACTS = re.compile(rb'\{"zipfile": *(\d+)\}\n')
_ARTIFACTS_BEGIN = b'{"zipfile":'
_LONGEST_ANNOUNCEMENT = 64
_UNLIMITED = 1 << 60
"""Cgroup v1 has no word for an unlimited value, but a number near 2**63."""


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


class Settings(NamedTuple):
    """Contents of `SETTINGS_DIR`."""

    run: str
    token: str
    ca: str
    host: str
    port: int
    name: str

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """Read the files. Raises OSError and ValueError."""
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


class Spool:
    """All numbered frames: the worker's output in a file, and the ending in memory."""

    def __init__(self, path: Path) -> None:
        """Raises FileExistsError if an agent has used this path before."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._ends = array("Q")
        """Offsets of the newlines."""
        self._size = 0
        self._ending: bytes | None = None
        self.on_change: Callable[[], None] = lambda: None

    @property
    def last(self) -> int:
        """Highest number."""
        return len(self._ends) + (self._ending is not None)

    @property
    def is_ended(self) -> bool:
        """True if the ending is set."""
        return self._ending is not None

    def add(self, data: bytes) -> None:
        """Append output; each complete line is a frame. Raises OSError, and AgentError if a line is too long."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        start = self._ends[-1] + 1 if self._ends else 0
        at = data.find(b"\n")
        while at >= 0:
            _check_length(self._size + at - start)
            self._ends.append(self._size + at)
            start = self._size + at + 1
            at = data.find(b"\n", at + 1)
        self._size += len(data)
        _check_length(self._size - start)
        self.on_change()

    def end(self, payload: bytes) -> None:
        """Set the ending. An incomplete last line is dropped."""
        self._ending = payload
        self.on_change()

    def pieces(self, number: int) -> Iterator[bytes]:
        """Yield a frame in pieces."""
        if number > len(self._ends):
            yield encode(Kind.END, number, self._ending or b"")
            return
        at = self._ends[number - 2] + 1 if number > 1 else 0
        end = self._ends[number - 1]
        yield HEADER.pack(Kind.DATA, number, end - at)
        while at < end:
            piece = os.pread(self._file, min(_PIECE, end - at), at)
            if not piece:
                raise AgentError("the file with the worker's output was truncated")
            at += len(piece)
            yield piece


def _check_length(length: int) -> None:
    if length > LARGEST:
        raise AgentError(f"ansible-runner wrote a line of more than {LARGEST} bytes")


class Uplink:
    """Connection to the operator, which is renewed until the outcome of the run is recorded."""

    def __init__(
        self,
        settings: Path,
        order: Path,
        spool: Spool,
        on_order: Callable[[str], None],
        on_stop: Callable[[], None],
    ) -> None:
        """`on_order` is called when the order is complete, or with an error if it cannot be stored."""
        self._folder = settings
        self._order = order
        self._spool = spool
        self._on_order, self._on_stop = on_order, on_stop
        self._agent = os.urandom(16).hex()
        self._is_idle = (settings / "warm").exists()
        self._assigned: dict[str, Any] = {}
        """Run and token, in place of those of the settings."""
        self._address = ""
        """The last operator's."""
        self.problem = ""
        """Why Ansible is not loaded."""
        self._has_order = False
        self._logged = 0
        """Highest number of which the text is in the log."""
        self._is_pinged = False
        self._changed = asyncio.Event()
        self._last_seen = time.monotonic()
        self._reported: set[str] = set()
        self.operator: tuple[Settings, str] | None = None
        """Settings and address of the connected operator."""
        self.on_operator: Callable[[str], None] = lambda _: None
        """Called with the address of each operator that accepts the agent."""
        spool.on_change = self._changed.set

    @property
    def is_idle(self) -> bool:
        """True while the agent has no run."""
        return self._is_idle

    async def keep(self) -> Exit:
        """Stay connected; return why that ended."""
        delay = _FIRST_DELAY
        self._last_seen = time.monotonic()
        while time.monotonic() - self._last_seen < (_IDLE_PATIENCE if self._is_idle else _PATIENCE):
            before, was_idle = self._last_seen, self._is_idle
            ended = await self._try_all()
            if ended is not None:
                return ended
            if was_idle and not self._is_idle:
                continue
            delay = _FIRST_DELAY if self._last_seen > before else min(delay * 2, _LONGEST_DELAY)
            # Many agents lose the same operator at the same time.
            await asyncio.sleep(delay * random.uniform(0.5, 1))  # noqa: S311 - not for cryptography
        if self._is_idle:
            _log("the operator that started this idle pod is gone")
            return Exit.DONE
        _log("no operator accepted this run for too long")
        return Exit.ABANDONED

    async def _try_all(self) -> Exit | None:
        """Try the addresses of the operator in turn, until a connection is lost."""
        loop = asyncio.get_running_loop()
        server = "the operator"
        try:
            settings = Settings.read(self._folder)._replace(**self._assigned)
            server = f"the operator at {settings.host}:{settings.port}"
            found = loop.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
            addresses = [str(each[4][0]) for each in await asyncio.wait_for(found, _CONNECT)]
        except (OSError, ValueError, asyncio.TimeoutError) as error:
            self._report(f"cannot reach {server}: {_text(error)}")
            return None
        for address in sorted(addresses, key=lambda each: each != self._address):
            before = self._last_seen
            try:
                return await self._connect(settings, address)
            except (OSError, ValueError, EOFError, asyncio.TimeoutError) as error:
                if self._last_seen > before:
                    self._report(f"the connection to {server} was lost: {_text(error)}")
                    return None
                self._report(f"cannot connect to {server}, address {address}: {_text(error)}")
        return None

    def _report(self, text: str) -> None:
        """Log a message, once until the next operator accepts the agent."""
        if text not in self._reported:
            self._reported.add(text)
            _log(text)

    async def _connect(self, settings: Settings, address: str) -> Exit | None:
        """Use one connection to its end; return None after ASSIGN. Raises an error if the connection was lost."""
        reader, writer = await asyncio.wait_for(connect(settings, address, ALPN_LINK), _CONNECT)
        try:
            writer.write(
                encode_json(
                    Kind.HELLO,
                    {
                        "protocol": PROTOCOL,
                        "run": settings.run,
                        "token": settings.token,
                        "agent": self._agent,
                        "has_order": self._has_order,
                        "last": self._spool.last,
                        "acknowledged": self._logged,
                        "problem": self.problem,
                    },
                )
            )
            kind, _, payload = await asyncio.wait_for(_read(reader), _CONNECT)
            answer = json.loads(payload)
            if kind == Kind.REFUSED:
                if answer["final"]:
                    return self._refused(answer)
                raise ValueError(f"it refuses this run: {answer['reason']}")
            if kind != Kind.WELCOME or not 0 <= answer["applied"] <= self._spool.last:
                raise ValueError("unexpected response")
            ended = await self._use(reader, writer, answer["applied"] + 1, settings, address)
            if ended is None:
                return None
            writer.close()
            with contextlib.suppress(OSError, asyncio.TimeoutError):  # the operator closed first, or is gone
                await asyncio.wait_for(writer.wait_closed(), _LEFTOVER_GRACE)
        except (KeyError, TypeError) as error:
            raise ValueError("invalid response") from error
        else:
            return ended
        finally:
            writer.transport.abort()

    def _refused(self, answer: dict[str, Any]) -> Exit:
        if self._is_idle:
            return Exit.DONE
        _log(f"the operator ended this run: {answer['reason']}")
        return Exit.REFUSED

    async def _use(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, settings: Settings, address: str
    ) -> Exit | None:
        """Send frames from this number, and process those of the operator."""
        self._reported.clear()
        self._address = address
        self._is_pinged = False
        self.operator = settings, address
        self._last_seen = time.monotonic()
        self.on_operator(address)
        tasks: set[asyncio.Task[Exit | None]] = {
            asyncio.create_task(self._send(writer, number)),
            asyncio.create_task(self._receive(reader)),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()
        finally:
            self.operator = None
            self._last_seen = time.monotonic()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, writer: asyncio.StreamWriter, number: int) -> Exit | None:
        batch = bytearray()
        while True:
            self._changed.clear()
            if self._is_pinged:
                self._is_pinged = False
                batch += encode(Kind.PONG, self._logged)
            while number <= self._spool.last:
                for piece in self._spool.pieces(number):
                    batch += piece
                    if len(batch) >= _PIECE:
                        writer.write(bytes(batch))
                        batch.clear()
                        await writer.drain()
                number += 1
            writer.write(bytes(batch))
            batch.clear()
            await writer.drain()
            await self._changed.wait()

    async def _receive(self, reader: asyncio.StreamReader) -> Exit | None:
        part: IO[bytes] | None = None
        try:
            while True:
                kind, number, payload = await asyncio.wait_for(_read(reader), SILENCE)
                if kind == Kind.ORDER and not self._has_order:
                    part = self._store(part, payload)
                elif kind == Kind.ACKNOWLEDGED and number > self._logged:
                    self._logged = number
                    _write_log(payload)
                elif kind == Kind.PING:
                    self._is_pinged = True
                    self._changed.set()
                elif kind == Kind.STOP:
                    self._on_stop()
                elif kind == Kind.ASSIGN and self._is_idle:
                    answer = json.loads(payload)
                    self._assigned, self._is_idle = {"run": answer["run"], "token": answer["token"]}, False
                    return None
                elif kind == Kind.RECORDED:
                    return Exit.DONE
                elif kind == Kind.REFUSED and json.loads(payload)["final"]:
                    return self._refused(json.loads(payload))
        finally:
            if part is not None:
                part.close()

    def _store(self, part: IO[bytes] | None, payload: bytes) -> IO[bytes] | None:
        """Store a part of the order in a file; return the file."""
        error = ""
        try:
            if part is None:
                part = self._order.open("wb")
            part.write(payload)
            if payload:
                return part
            part.close()
        except OSError as cause:
            error = f"cannot store the order of the run: {_text(cause)}"
        self._has_order = True
        self._on_order(error)
        return None


async def connect(settings: Settings, address: str, protocol: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to an address of the operator. Raises OSError, and ValueError if the server is not an operator."""
    reader, writer = await asyncio.open_connection(
        address, settings.port, ssl=settings.context(protocol), server_hostname=settings.name
    )
    if writer.get_extra_info("ssl_object").selected_alpn_protocol() != protocol:
        writer.transport.abort()
        raise ValueError("the server is not an operator with runs in pods")
    return reader, writer


async def _read(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    kind, number, length = HEADER.unpack(await reader.readexactly(HEADER.size))
    if length > LARGEST:
        raise ValueError("a frame is too long")
    return kind, number, await reader.readexactly(length)


class Relay:
    """Servers on loopback that pass API calls and metrics of the run to the operator."""

    def __init__(self, uplink: Uplink) -> None:
        self._uplink = uplink
        self._addresses: dict[asyncio.StreamWriter, str] = {}
        uplink.on_operator = self._moved

    async def start(self) -> None:
        """Listen. Raises OSError, except for the port for metrics: a run without metrics does not need it."""
        await asyncio.start_server(self._serve, "127.0.0.1", RELAY_PORT)
        try:
            await asyncio.start_server(self._serve_metrics, "127.0.0.1", METRICS_PORT)
        except OSError as error:
            _log(f"cannot listen on 127.0.0.1:{METRICS_PORT} for metrics of roles: {_text(error)}")

    def _moved(self, address: str) -> None:
        """Close connections to another operator. It can be unreachable, or not responsible any more."""
        for writer, other in list(self._addresses.items()):
            if other != address:
                writer.transport.abort()

    async def _serve_metrics(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(reader, writer, ALPN_METRICS)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: str = ALPN_HTTP
    ) -> None:
        upstream = None
        try:
            above, upstream = await self._dial(protocol)
            copies = {asyncio.ensure_future(_copy(reader, upstream)), asyncio.ensure_future(_copy(above, writer))}
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)
        except AgentError as error:
            _log(str(error))
        finally:
            if upstream is not None:
                del self._addresses[upstream]
                upstream.transport.abort()
            writer.close()

    async def _dial(self, protocol: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the operator that accepted the agent; wait for one if there is none."""
        deadline = time.monotonic() + _RELAY_WAIT
        problem = "no operator is connected"
        while time.monotonic() < deadline:
            if self._uplink.operator is not None:
                settings, address = self._uplink.operator
                try:
                    above, upstream = await asyncio.wait_for(connect(settings, address, protocol), _CONNECT)
                except (OSError, ValueError, asyncio.TimeoutError) as error:
                    problem = _text(error)
                else:
                    if protocol == ALPN_METRICS:
                        upstream.write(encode_json(Kind.METRICS, {"run": settings.run, "token": settings.token}))
                    self._addresses[upstream] = address
                    return above, upstream
            await asyncio.sleep(_FIRST_DELAY)
        raise AgentError(f"an API call waited {_RELAY_WAIT:g} s for the operator: {problem}")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):  # either side closed; the caller closes the other one
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()


class Children:
    """Child processes, and orphans below them, which become children of this process."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[subprocess.Popen[bytes], asyncio.Future[int]]] = {}
        self._loop = asyncio.get_running_loop()
        self._has_reported = False
        # The first process of a container needs no call, and a small Python can lack the module.
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes  # noqa: PLC0415

            ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)

    def start(self, command: list[str], **options: Any) -> tuple[subprocess.Popen[bytes], asyncio.Future[int]]:
        """Start a process; return it and its exit code in the future. Raises OSError."""
        process = subprocess.Popen(command, **options)
        ended = self._loop.create_future()
        self._running[process.pid] = process, ended
        return process, ended

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):  # there is no child
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid in self._running:
                    process, ended = self._running.pop(pid)
                    process.returncode = os.waitstatus_to_exitcode(status)
                    ended.set_result(process.returncode)

    async def end_all(self, grace: float) -> None:
        """End the processes below this one that may be signaled: SIGTERM, and after `grace` seconds SIGKILL."""
        notified: set[int] = set()
        foreign: set[int] = set()
        kill_at = time.monotonic() + grace
        while (found := descendants() - foreign) and (now := time.monotonic()) < kill_at + _KILL_WITHIN:
            if now < kill_at:
                foreign |= _signal_all(found - notified, signal.SIGTERM)
                notified |= found
            else:
                foreign |= _signal_all(found, signal.SIGKILL)
            await asyncio.sleep(_POLL)
        if (left := descendants()) and not self._has_reported:
            self._has_reported = True
            _log(
                f"{len(left)} processes of the run remain until the pod ends: another user's, or blocked in the kernel"
            )


def lone_waiter(parent: int) -> tuple[int, bytes, bytes] | None:
    """Return the only process below another one if it waits for a lock: its pid and CPU times. None otherwise."""
    found = descendants(parent)
    if len(found) != 1:
        return None
    pid = found.pop()
    folder = Path(f"/proc/{pid}")
    try:
        if "futex" in (folder / "wchan").read_text():
            user, system = (folder / "stat").read_bytes().rpartition(b")")[2].split()[11:13]
            return pid, user, system
    except OSError:  # it ended meanwhile
        pass
    return None


def descendants(root: int | None = None) -> set[int]:
    """Return the processes below `root`, or below this process, without those that have ended."""
    root = root or os.getpid()
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                # The command is in parentheses, and can contain parentheses and spaces.
                state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                if state not in {"Z", "X"}:
                    parents[int(folder.name)] = int(parent)
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def _signal_all(pids: set[int], number: signal.Signals) -> set[int]:
    """Signal processes; return those of other users."""
    return {pid for pid in pids if not _signal(pid, number)}


def _signal(pid: int, number: signal.Signals) -> bool:
    """Signal a process, unless it ended meanwhile; return False if another user started it."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


class Worker:
    """`ansible-runner worker`."""

    def __init__(self, work: Path, spool: Spool) -> None:
        self._work = work
        self._spool = spool
        self._children = Children()
        self._worker: tuple[subprocess.Popen[bytes], asyncio.Future[int]] | None = None
        self._is_stopping = False
        self._stop: asyncio.Task[None] | None = None
        self._preloaded: tuple[subprocess.Popen[bytes], asyncio.Future[int]] | None = None
        self._problem = asyncio.ensure_future(self._check())

    async def preload(self, settings: Path) -> str:
        """Start a worker that waits with Ansible loaded; return why it is not loaded, or an empty text."""
        reading, writing = os.pipe()
        report = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(report), os.fdopen(reading, "rb")
        )
        try:
            with (self._work / "stderr").open("wb") as stderr:
                process, ended = self._children.start(
                    [sys.executable, str(settings / "preload.py"), str(settings), str(self._work), str(writing)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    pass_fds=(writing,),
                    start_new_session=True,
                )
        except OSError as error:
            transport.close()
            return _text(error)
        finally:
            os.close(writing)
        try:
            text = await asyncio.wait_for(report.read(), _PRELOAD_TIMEOUT)
        except asyncio.TimeoutError:
            _signal_all({process.pid}, signal.SIGKILL)
            await ended  # it writes to the folder of the run
            shutil.rmtree(self._work / "run", ignore_errors=True)
            return f"it was not loaded within {_PRELOAD_TIMEOUT:g} s"
        finally:
            transport.close()
        problem = json.loads(text)["problem"] if text else f"the process that loads it ended: {self._stderr()}"
        if text:
            self._preloaded = process, ended
        return str(problem)

    async def run(self, order: Path, error: str) -> None:
        """Run Ansible and add its output and ending to the spool. `error`: why it must not start, or empty."""
        kills = oom_kills()
        code = None
        watching = asyncio.ensure_future(self._watch(kills))
        try:
            error = error or await self._problem
            if not error:
                code = await self._run(order)
        except (AgentError, OSError) as cause:
            error = _text(cause)
        watching.cancel()
        if watching.done() and not watching.cancelled():
            error = watching.result()
        await self._children.end_all(_LEFTOVER_GRACE)
        ending = {
            "code": code,
            "error": error,
            "stderr": self._stderr(),
            "oom_kills": max(0, oom_kills() - kills),
            "memory_limit": memory_limit(),
            "unused": self._unused(),
        }
        self._spool.end(json.dumps(ending).encode())

    async def _watch(self, kills: int) -> str:
        """End Ansible when it is stuck after the kernel killed a process of it; return the error.

        A worker of Ansible that is killed while it sends a result holds the lock of its queue for ever.
        """
        since, last = time.monotonic(), None
        while last is None or time.monotonic() - since < _STUCK:
            await asyncio.sleep(_LOOK)
            is_possible = self._worker is not None and oom_kills() > kills
            found = lone_waiter(self._worker[0].pid) if is_possible and self._worker is not None else None
            if found is None or found != last:
                since, last = time.monotonic(), found
        self.stop()
        return _STUCK_ERROR

    def stop(self) -> None:
        """End Ansible with SIGTERM, later with SIGKILL."""
        self._is_stopping = True
        if self._stop is None and self._worker is not None:
            self._stop = asyncio.ensure_future(self._end(*self._worker))

    async def kill(self) -> None:
        """End Ansible at once."""
        self._is_stopping = True
        await self._children.end_all(0)

    async def _end(self, process: subprocess.Popen[bytes], ended: asyncio.Future[int]) -> None:
        if not ended.done():
            # ansible-runner ends ansible-playbook, which has a process group of its own.
            os.killpg(process.pid, signal.SIGTERM)
        done, _ = await asyncio.wait({ended}, timeout=_GRACE)
        if not done:
            await self._children.end_all(0)

    async def _check(self) -> str:
        """Return the problem of the installed ansible-runner, or an empty text."""
        needed = "the image needs ansible-runner {}.{} or later".format(*_OLDEST_RUNNER)
        try:
            process, ended = self._children.start(
                ["ansible-runner", "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            return f"cannot start ansible-runner: {_text(error)}; {needed}"
        done, _ = await asyncio.wait({ended}, timeout=_VERSION_TIMEOUT)
        if not done:
            return f"ansible-runner --version did not end within {_VERSION_TIMEOUT:g} s; {needed}"
        assert process.stdout is not None  # noqa: S101 - it is a pipe, for the types
        with process.stdout:
            text = process.stdout.read(_STDERR).decode(errors="replace").strip()
        version = re.search(r"^(\d+)\.(\d+)", text, re.MULTILINE)
        if version is None:
            return f"ansible-runner --version printed {text!r}; {needed}"
        if (int(version[1]), int(version[2])) < _OLDEST_RUNNER:
            return f"ansible-runner is {text}; {needed}"
        return ""

    async def _run(self, order: Path) -> int:
        if self._is_stopping:
            raise AgentError("the run was stopped before Ansible started")
        self._worker = self._begin_preloaded(order) or self._begin(order)
        process, ended = self._worker
        loop = asyncio.get_running_loop()
        pipe, output = await loop.connect_read_pipe(lambda: _Output(self._spool, self.stop), process.stdout)
        code = await ended
        # Background processes of the role can hold the pipe open.
        await self._children.end_all(_LEFTOVER_GRACE)
        await asyncio.wait({output.ended}, timeout=_LEFTOVER_GRACE)
        pipe.close()  # all that the worker wrote was read; a process of another user can still hold it
        await output.ended
        return code

    def _begin(self, order: Path) -> tuple[subprocess.Popen[bytes], asyncio.Future[int]]:
        folder = self._work / "run"
        folder.mkdir(exist_ok=True)  # that of a worker that did not load Ansible
        with order.open("rb") as stdin, (self._work / "stderr").open("wb") as stderr:
            return self._children.start(
                ["ansible-runner", "worker", "--private-data-dir", str(folder)],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )

    def _begin_preloaded(self, order: Path) -> tuple[subprocess.Popen[bytes], asyncio.Future[int]] | None:
        if self._preloaded is None or self._preloaded[1].done():
            return None
        stdin = self._preloaded[0].stdin
        assert stdin is not None  # noqa: S101 - it is a pipe, for the types
        try:
            with stdin:
                stdin.write(f"{order}\n".encode())
        except BrokenPipeError:  # it ended meanwhile
            return None
        return self._preloaded

    def _unused(self) -> str:
        try:
            return (self._work / "unused").read_text(encoding="utf-8")
        except OSError:
            return ""  # the loaded Ansible was used, or there was none

    def _stderr(self) -> str:
        try:
            with (self._work / "stderr").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _STDERR))
                return file.read(_STDERR).decode(errors="replace")
        except OSError:
            return ""  # the worker did not start


class ArtifactsFilter:
    """Removes the artifacts from the worker's output.

    ansible-runner sends them as a zip file: a line with its size, and base64, with the next line directly after it.
    The operator makes its artifacts from the events, and a zip file can be too long for a frame.
    """

    def __init__(self) -> None:
        self._left = 0
        """Bytes of base64 that follow."""
        self._held = b""
        """Begin of a line that can be an announcement of artifacts."""
        self._is_within = False
        """True after the first part of another line."""

    def feed(self, data: bytes) -> bytes:
        """Return the output without artifacts. The begin of a line can be in the result of a later call."""
        kept = bytearray()
        at = 0
        while at < len(data):
            if self._left:
                skipped = min(self._left, len(data) - at)
                self._left -= skipped
                at += skipped
                continue
            end = data.find(b"\n", at) + 1 or len(data)
            line = self._held + data[at:end]
            at, self._held = end, b""
            is_complete = line.endswith(b"\n")
            if not self._is_within and _can_be_announcement(line):
                found = _ARTIFACTS.fullmatch(line)
                if found:
                    self._left = (int(found[1]) + 2) // 3 * 4
                    continue
                if not is_complete:
                    self._held = line
                    continue
            kept += line
            self._is_within = not is_complete
        return bytes(kept)


def _can_be_announcement(line: bytes) -> bool:
    begin = line[: len(_ARTIFACTS_BEGIN)]
    return len(line) <= _LONGEST_ANNOUNCEMENT and begin == _ARTIFACTS_BEGIN[: len(line)]


class _Output(asyncio.Protocol):
    """Standard output of the worker."""

    def __init__(self, spool: Spool, stop: Callable[[], None]) -> None:
        self._spool = spool
        self._filter = ArtifactsFilter()
        self._stop = stop
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with AgentError or OSError if the output cannot be stored."""

    def data_received(self, data: bytes) -> None:
        if self.ended.done():
            return
        try:
            self._spool.add(self._filter.feed(data))
        except OSError as error:
            self._fail(AgentError(f"cannot store the output of ansible-runner: {_text(error)}"))
        except AgentError as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature is asyncio's
        if not self.ended.done():
            self.ended.set_result(None)

    def _fail(self, error: AgentError) -> None:
        self.ended.set_exception(error)
        self._stop()


def oom_kills() -> int:
    """Return how many processes of the container the kernel ended because of the memory limit."""
    found = re.search(r"^oom_kill (\d+)$", _cgroup("memory.events", "memory.oom_control"), re.MULTILINE)
    return int(found[1]) if found else 0


def memory_limit() -> int:
    """Return the memory limit of the container in bytes; 0 is unlimited."""
    text = _cgroup("memory.max", "memory.limit_in_bytes").strip()
    limit = int(text) if text.isdigit() else 0
    return limit if limit < _UNLIMITED else 0


def _cgroup(name: str, name_v1: str) -> str:
    """Return a file of the memory controller, or an empty text."""
    with contextlib.suppress(OSError):  # not on Linux
        for line in Path(_CGROUP_OF_SELF).read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                folder, file = _CGROUPS, name
            elif "memory" in controllers.split(","):
                folder, file = f"{_CGROUPS}/memory", name_v1
            else:
                continue
            # A container often sees its own cgroup as the root, while the path is that of the node.
            for place in (folder + path, folder):
                with contextlib.suppress(OSError):
                    return Path(place, file).read_text()
    return ""


class Agent:
    """All parts of the agent."""

    def __init__(self, settings: Path, work: Path) -> None:
        self._settings = settings
        self._order = work / "order"
        self._spool = Spool(work / "spool")
        self._uplink = Uplink(settings, self._order, self._spool, self._begin, self._stop)
        self._worker = Worker(work, self._spool)
        self._relay = Relay(self._uplink)
        self._relay_error = ""
        self._run: asyncio.Task[None] | None = None
        self._terminated = asyncio.Event()

    async def run(self) -> Exit:
        """Run to the end."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._terminated.set)
        try:
            await self._relay.start()
        except OSError as error:
            self._relay_error = f"cannot listen on 127.0.0.1:{RELAY_PORT} in the pod: {_text(error)}"
        tasks = {asyncio.ensure_future(self._keep()), asyncio.ensure_future(self._await_termination())}
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        code = next(iter(done)).result()
        if code == Exit.REFUSED or self._uplink.is_idle:
            await self._worker.kill()
        elif self._run is not None:
            self._worker.stop()
            await self._run
        return code

    async def _keep(self) -> Exit:
        if self._uplink.is_idle:
            self._uplink.problem = await self._worker.preload(self._settings)
        return await self._uplink.keep()

    def _begin(self, error: str) -> None:
        """Start Ansible, once."""
        if self._run is None:
            self._run = asyncio.ensure_future(self._worker.run(self._order, error or self._relay_error))
            self._run.add_done_callback(self._crash)

    def _stop(self) -> None:
        self._worker.stop()
        self._begin("the run was stopped before Ansible started")

    @staticmethod
    def _crash(run: asyncio.Task[None]) -> None:
        """End the process if it cannot send an ending, so that the pod fails."""
        if not run.cancelled() and run.exception() is not None:
            sys.excepthook(*_exception_info(run.exception()))
            os._exit(1)

    async def _await_termination(self) -> Exit:
        """Wait for SIGTERM, end Ansible, and give the operator time to record the outcome."""
        await self._terminated.wait()
        if self._uplink.is_idle:
            return Exit.TERMINATED
        self._stop()
        if self._run is not None:
            await asyncio.wait({self._run})
        await asyncio.sleep(_DELIVERY)
        return Exit.TERMINATED


def _exception_info(error: Any) -> tuple[Any, Any, Any]:
    return type(error), error, error.__traceback__


def _text(error: BaseException) -> str:
    """Return the text of an error, which is valid UTF-8."""
    return (str(error) or type(error).__name__).encode(errors="replace").decode()


def _log(text: str) -> None:
    _write_log(f"ansible-operator: {text}\n".encode(errors="replace"), 2)


def _write_log(text: bytes, descriptor: int = 1) -> None:
    with contextlib.suppress(OSError):  # nobody reads the pod's log, and the run does not depend on it
        view = memoryview(text)
        while view:
            view = view[os.write(descriptor, view) :]


async def _main(settings: Path, work: Path) -> Exit:
    try:
        agent = Agent(settings, work)
    except FileExistsError as error:
        _log(f"{error.filename} exists: an agent has run in this pod before, and Ansible must not run twice")
        return Exit.USED
    return await agent.run()


def main() -> None:
    """Run the agent with the folders of the command line."""
    # asyncio logs lost TLS connections, which the agent reports itself.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    settings, work = sys.argv[1:]
    sys.exit(asyncio.run(_main(Path(settings), Path(work))))


if __name__ == "__main__":
    main()
