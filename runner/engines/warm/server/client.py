"""Client of one fork server: starts it, sends requests, checks and ends it. `pool` chooses the server of a run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from runner.base import log
from runner.base.config import shortages
from runner.core.engine import starter
from runner.core.engine.starter import READ_AHEAD, TAKEN_BY_START, Started
from runner.core.engine.wire import PER_RUN, Order
from runner.engines.warm import messages, procfs
from runner.engines.warm.messages import Load
from runner.engines.warm.server import scratch as scratch_folders
from runner.engines.warm.stamps import Stamp, stamp

_START = Path(__file__).with_name("start.py")
_START_WITHIN = 120.0
_ANSWER_WITHIN = 30.0
_STDERR_LIMIT = 4096
_STDERR_WITHIN = 2.0
"""Seconds to read the error output of a server that ended. Its child processes may keep the pipe open for longer."""
_TAKEN_BY_RUN = 2 * messages.STREAMS + 1
"""Descriptors for the pipes of a run, and one to wait for its end."""
_CHECK_EVERY = 1.0
"""Seconds between two checks that the loaded files are up to date."""


class ServerError(Exception):
    """A fork server cannot start runs."""


class ForkError(ServerError):
    """The server cannot fork a run. It continues to serve."""


class ServerDiedError(ServerError):
    """The server ended before it answered. The request had no effect."""


@dataclass(frozen=True, slots=True)
class _Forked:
    """A supervisor without an order, and the descriptors of its streams."""

    pid: int
    control: int
    events: int
    errors: int

    def takes_an_order(self) -> bool:
        """Return True if it lives. Otherwise close its streams."""
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                return True
        self.close()
        return False

    def close(self) -> None:
        """Close its streams. Without an order, it then ends."""
        _close(self.control, self.events, self.errors)


class Server:
    """A fork server that is ready, with a supervisor that waits for the next run."""

    def __init__(self, process: asyncio.subprocess.Process, connection: socket.socket, scratch: Path) -> None:
        self._process = process
        self._connection = connection
        self._scratch = scratch
        self._lock = asyncio.Lock()
        self._stderr_tail = b""
        self._stderr_task = asyncio.create_task(self._read_stderr())
        self._stamps: dict[str, Stamp | None] = {}
        self._checked_at = 0.0
        self._closed = False
        self._killed = ""
        """Why the operator killed the server."""
        self._ahead: asyncio.Task[_Forked] | None = None
        """The fork of the next run's supervisor."""
        self.started_at = time.monotonic()
        self.runs = 0
        self.disabled: Mapping[str, str] = {}
        """Why shortcuts failed the self-test, by name."""
        self.problems: Sequence[str] = ()
        """Other findings of the self-test."""

    @classmethod
    async def start(cls, environment: Mapping[str, str], folder: Path, load: Load) -> Server:
        """Start a server for runs with this environment, and preload `load`.

        The variables in `PER_RUN` differ between runs, so each gets a placeholder. The server's files are in `folder`.
        Raises `ServerError`.
        """
        scratch = None
        try:
            # Not in a thread: a cancellation meanwhile would leave the folder behind.
            shortages.check_descriptors(TAKEN_BY_START)
            scratch = scratch_folders.make(folder)
            messages.write(scratch / messages.LOAD, load)
            server = await cls._launch(scratch, environment)
        except BaseException as error:
            if scratch is not None:
                await asyncio.shield(_remove(scratch))
            if isinstance(error, OSError):
                raise ServerError(f"cannot start a fork server: {error}") from error
            raise
        try:
            await server._load_or_end()  # noqa: SLF001 - the same class
        except OSError as error:  # descriptors ran out meanwhile, for example
            raise ServerError(f"cannot start a fork server: {error}") from error
        return server

    @classmethod
    async def _launch(cls, scratch: Path, environment: Mapping[str, str]) -> Server:
        own_end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with server_end, contextlib.ExitStack() as undo:
            undo.callback(own_end.close)
            own_end.setblocking(False)  # noqa: FBT003 - the standard library's
            number = server_end.fileno()
            placeholders = {name: str(scratch / name) for name in environment.keys() & PER_RUN}
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(_START),
                str(number),
                str(scratch),
                procfs.padding(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env={**environment, **placeholders, procfs.PADDING: procfs.padding()},
                pass_fds=(number,),
                process_group=0,  # Ctrl-C in a terminal goes only to the operator, whose runs have time to end
            )
            undo.pop_all()
        return cls(process, own_end, scratch)

    @property
    def pid(self) -> int:
        """Pid of the server."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True until the server is closed or has ended."""
        return not self._closed and self._process.returncode is None

    async def run(self, order: Order, environment: Mapping[str, str], without: Sequence[str]) -> Started:
        """Give a run's order to a supervisor. Raises `OSError` if descriptors run out here, and `ServerError`."""
        forked = await self._take_ahead() or await self._fork()
        self.runs += 1
        if self._ahead is None and not self._closed:
            self._ahead = asyncio.create_task(self._fork())
        writer = await _writer(forked.control)
        events_in, errors_in = await _reader(forked.events), await _reader(forked.errors)
        setup = {"environment": dict(environment), "without": list(without)}
        writer.write(orjson.dumps(setup) + b"\n" + starter.line(order))

        async def wait() -> int | None:
            try:
                return await wait_for_exit(forked.pid)
            finally:
                writer.close()

        return Started(forked.pid, writer, events_in, errors_in, wait)

    async def _fork(self) -> _Forked:
        shortages.check_descriptors(_TAKEN_BY_RUN)
        pipes = [os.pipe() for _ in range(messages.STREAMS)]
        (server_control, control), (events, server_events), (errors, server_errors) = pipes
        try:
            answer = await self._request((server_control, server_events, server_errors), _ANSWER_WITHIN)
        except BaseException:
            _close(control, events, errors)
            raise
        finally:
            _close(server_control, server_events, server_errors)
        if not answer.isdigit():
            _close(control, events, errors)
            raise ForkError(f"the fork server cannot fork: {answer}")
        return _Forked(int(answer), control, events, errors)

    async def _take_ahead(self) -> _Forked | None:
        """Return the supervisor that waits; None if there is none, or it has died."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        try:
            forked = await ahead
        except (OSError, ServerError):  # it is raised again if the next fork fails too
            return None
        return forked if forked.takes_an_order() else None

    async def _end_ahead(self) -> None:
        if forked := await self._take_ahead():
            forked.close()
            os.kill(forked.pid, signal.SIGKILL)  # it has done nothing yet
            await wait_for_exit(forked.pid)

    async def is_current(self) -> bool:
        """Return True if the server is alive and its loaded files are up to date. Checks at most once a second."""
        if self.alive and time.monotonic() - self._checked_at > _CHECK_EVERY:
            self._checked_at = time.monotonic()
            if await asyncio.to_thread(_stamps, list(self._stamps)) != self._stamps:
                self._checked_at = 0.0
                return False
        return self.alive

    async def wait_for_death(self) -> str:
        """Wait until the server ends. Return how it ended; empty if it was closed."""
        code = await self._process.wait()
        if self._closed:
            return ""
        await self._stderr_task
        await self._end_ahead()
        async with self._lock:  # requests in progress notice the end first
            self._connection.close()
        await _remove(self._scratch)
        last_line = self._stderr_tail.decode(errors="replace").strip().rpartition("\n")[2]
        how = self._killed or (f"killed by signal {-code}" if code < 0 else f"exit code {code}")
        return how + (f": {last_line}" if last_line else "")

    async def close(self) -> None:
        """End the server. Its runs continue."""
        self._closed = True
        await self._end_ahead()
        async with self._lock:  # requests in progress get their answers
            self._connection.close()
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                await self._process.wait()
        except TimeoutError:
            self._kill()
            await self._process.wait()
        await self._stderr_task
        await _remove(self._scratch)

    async def _load_or_end(self) -> None:
        """Wait until the server is ready. End it if that fails."""
        try:
            await self._load()
        except BaseException:
            self._kill()  # it has no runs yet, and reads no messages before all is loaded
            await self.close()
            raise

    async def _load(self) -> None:
        await self._request((), _START_WITHIN)
        ready = await asyncio.to_thread(messages.read_ready, self._scratch)
        if ready.problem:
            raise ServerError(ready.problem)
        self.disabled, self.problems = ready.disabled, ready.problems
        self._stamps = await asyncio.to_thread(_stamps, ready.watched)
        self._checked_at = time.monotonic()

    async def _request(self, descriptors: Sequence[int], within: float) -> str:
        """Return the next answer. First send the request for a run if there are descriptors for its streams."""
        async with self._lock:
            if not self.alive:
                raise ServerDiedError("the fork server died")
            try:
                async with asyncio.timeout(within):
                    if descriptors:
                        socket.send_fds(self._connection, [messages.RUN], descriptors)
                    data = await asyncio.get_running_loop().sock_recv(self._connection, messages.LONGEST)
            except TimeoutError as error:
                self._killed = f"the operator killed it, because it did not answer within {within:.0f} s"
                self._kill()
                raise ServerDiedError(f"the fork server did not answer within {within:.0f} s") from error
            except ConnectionError:
                data = b""  # it ended before it read the request
            except OSError as error:
                raise ServerDiedError(f"the fork server died: {error}") from error
        if not data:
            raise ServerDiedError(f"the fork server ended: {await self._read_error()}")
        return data.decode()

    async def _read_error(self) -> str:
        await asyncio.wait([self._stderr_task], timeout=_STDERR_WITHIN)
        return self._stderr_tail.decode(errors="replace").strip().rpartition("\n")[2] or "no error output"

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    async def _read_stderr(self) -> None:
        stream = self._process.stderr
        while stream and (chunk := await stream.read(_STDERR_LIMIT)):
            self._stderr_tail = (self._stderr_tail + chunk)[-_STDERR_LIMIT:]


async def _remove(scratch: Path) -> None:
    try:
        await shortages.outlast(scratch_folders.remove, scratch)
    except OSError as error:
        log.get(__name__).warning(
            "Cannot remove the folder of a fork server; the operator removes it at its next start",
            folder=str(scratch),
            reason=str(error),
        )


def _stamps(paths: Sequence[str]) -> dict[str, Stamp | None]:
    return {path: stamp(path) for path in paths}


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


async def _reader(descriptor: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=READ_AHEAD)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb"))
    return reader


async def _writer(descriptor: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(descriptor, "wb"))
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def wait_for_exit(pid: int) -> int | None:
    """Wait for a child that another process started, and reap it. Return its exit code; None if already reaped."""
    descriptor = None
    while descriptor is None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        except OSError as error:
            if not shortages.passes(error):
                raise
            await asyncio.sleep(_CHECK_EVERY)
    exited = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, exited.set)
    try:
        await exited.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    try:
        _, status = os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it has ended
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status)
