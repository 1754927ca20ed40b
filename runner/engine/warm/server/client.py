"""One fork server, seen from the operator: started, asked, watched, ended. Which one is asked is `pool`'s business."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from runner import log
from runner.config import shortages
from runner.engine import starter
from runner.engine.starter import READ_AHEAD, TAKEN_BY_START, Started
from runner.engine.warm import messages, procfs
from runner.engine.warm.messages import Answer, Load
from runner.engine.warm.server import scratch as scratch_folders
from runner.engine.warm.stamps import Stamp, stamp
from runner.engine.wire import PER_RUN, Order

_START = Path(__file__).with_name("start.py")
_START_WITHIN = 120.0
_ANSWER_WITHIN = 30.0
_COMPLAINT = 4096
_LAST_WORDS_WITHIN = 2.0
"""Seconds for what a server that has ended said; what it started may hold its standard error open for longer."""
_TAKEN_BY_RUN = 2 * messages.STREAMS + 1
"""Descriptors for its pipes, and one to wait for it."""
_LOOK_EVERY = 1.0
"""Seconds between two looks at whether what was loaded is still what would be loaded."""


class ServerError(Exception):
    """No run can be had from a server."""


class ServerDiedError(ServerError):
    """The server ended before it answered; nothing became of what it was asked for."""


class Server:
    """One fork server that is ready."""

    def __init__(self, process: asyncio.subprocess.Process, connection: socket.socket, scratch: Path) -> None:
        self._process = process
        self._connection = connection
        self._scratch = scratch
        self._turn = asyncio.Lock()
        self._complaint = b""
        self._listening = asyncio.create_task(self._listen())
        self._stamps: dict[str, Stamp | None] = {}
        self._looked_at = 0.0
        self._closed = False
        self.started_at = time.monotonic()
        self.runs = 0
        self.disabled: Mapping[str, str] = {}
        """Why shortcuts failed the self-test, by name."""
        self.problems: tuple[str, ...] = ()
        """What else the self-test found."""

    @classmethod
    async def start(cls, environment: Mapping[str, str], folder: Path, wanted: Load) -> Server:
        """Start one for runs with this environment, but for those of `PER_RUN`; a `ServerError` says why not.

        These get a stand-in each. `folder` takes what it needs on disk.
        """
        try:
            server = await cls._launch(environment, folder)
        except OSError as error:
            raise ServerError(f"no fork server can be started: {error}") from error
        try:
            await server._load(wanted)  # noqa: SLF001 - our own
        except BaseException:
            server._kill()  # noqa: SLF001 - as above; it has no runs yet, and would not look up before all is loaded
            await server.close()
            raise
        return server

    @classmethod
    async def _launch(cls, environment: Mapping[str, str], folder: Path) -> Server:
        # Not in a thread: whoever is canceled meanwhile would leave it behind.
        shortages.check_descriptors(TAKEN_BY_START)
        scratch = scratch_folders.make(folder)
        try:
            return await cls._launch_in(scratch, environment)
        except BaseException:
            await asyncio.shield(_remove(scratch))
            raise

    @classmethod
    async def _launch_in(cls, scratch: Path, environment: Mapping[str, str]) -> Server:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            ours.setblocking(False)  # noqa: FBT003 - the standard library's
            number = theirs.fileno()
            own = {name: str(scratch / name) for name in environment.keys() & PER_RUN}
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(_START),
                str(number),
                str(scratch),
                procfs.padding(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env={**environment, **own, procfs.PADDING: procfs.padding()},
                pass_fds=(number,),
            )
            undo.pop_all()
        return cls(process, ours, scratch)

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it may still answer."""
        return not self._closed and self._process.returncode is None

    async def run(self, order: Order, environment: Mapping[str, str], without: Sequence[str]) -> Started:
        """Start a supervisor. An `OSError` says that none could be forked, a `ServerError` that the server is gone."""
        shortages.check_descriptors(_TAKEN_BY_RUN)
        pipes = [os.pipe() for _ in range(messages.STREAMS)]
        (theirs, control), (events, theirs_too), (complaints, theirs_as_well) = pipes
        try:
            answer = await self._ask(messages.RUN, (theirs, theirs_too, theirs_as_well), _ANSWER_WITHIN)
        except BaseException:
            _close(control, events, complaints)
            raise
        finally:
            _close(theirs, theirs_too, theirs_as_well)
        if answer.problem:
            _close(control, events, complaints)
            raise OSError(answer.problem)
        self.runs += 1
        writer = await _writer(control)
        events_in, complaints_in = await _reader(events), await _reader(complaints)
        first = {"environment": dict(environment), "without": list(without)}
        writer.write(orjson.dumps(first) + b"\n" + starter.line(order))

        async def wait() -> int | None:
            try:
                return await ended(answer.pid)
            finally:
                writer.close()

        return Started(answer.pid, writer, events_in, complaints_in, wait)

    async def is_current(self) -> bool:
        """Whether it lives, and has loaded what a new one would load. Looks at most once a second."""
        if self.alive and time.monotonic() - self._looked_at > _LOOK_EVERY:
            self._looked_at = time.monotonic()
            if await asyncio.to_thread(_stamps, list(self._stamps)) != self._stamps:
                self._looked_at = 0.0
                return False
        return self.alive

    async def died(self) -> str:
        """Wait for its end; returns how it ended, nothing when it was closed."""
        code = await self._process.wait()
        if self._closed:
            return ""
        await self._listening
        async with self._turn:  # whoever asks it now notices first
            self._connection.close()
        await _remove(self._scratch)
        said = self._complaint.decode(errors="replace").strip().rpartition("\n")[2]
        return (f"killed by signal {-code}" if code < 0 else f"exit code {code}") + (f": {said}" if said else "")

    async def close(self) -> None:
        """End it. Runs that it started go on."""
        self._closed = True
        async with self._turn:  # who waits for an answer gets it
            self._connection.close()
        try:
            await asyncio.wait_for(self._process.wait(), _ANSWER_WITHIN)
        except TimeoutError:
            self._kill()
            await self._process.wait()
        await self._listening
        await _remove(self._scratch)

    async def _load(self, wanted: Load) -> None:
        answer = await self._ask(messages.pack(wanted), (), _START_WITHIN)
        if answer.problem:
            raise ServerError(answer.problem)
        self.disabled, self.problems = answer.disabled, answer.problems
        self._stamps = await asyncio.to_thread(_stamps, answer.watched)
        self._looked_at = time.monotonic()

    async def _ask(self, message: bytes, descriptors: Sequence[int], within: float) -> Answer:
        async with self._turn:
            if not self.alive:
                raise ServerDiedError("the fork server died")
            try:
                socket.send_fds(self._connection, [message], descriptors)
                async with asyncio.timeout(within):
                    data = await asyncio.get_running_loop().sock_recv(self._connection, messages.LONGEST)
            except TimeoutError as error:
                self._kill()
                raise ServerDiedError(f"the fork server did not answer within {within:.0f} s") from error
            except ConnectionError:
                data = b""  # what it was asked for it had not read when it ended
            except (OSError, ValueError) as error:
                raise ServerDiedError(f"the fork server died: {error}") from error
        if not data:
            raise ServerDiedError(f"the fork server ended: {await self._last_words()}")
        return messages.unpack_answer(data)

    async def _last_words(self) -> str:
        await asyncio.wait([self._listening], timeout=_LAST_WORDS_WITHIN)
        return self._complaint.decode(errors="replace").strip().rpartition("\n")[2] or "without a word"

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    async def _listen(self) -> None:
        stream = self._process.stderr
        while stream and (part := await stream.read(_COMPLAINT)):
            self._complaint = (self._complaint + part)[-_COMPLAINT:]


async def _remove(scratch: Path) -> None:
    try:
        await shortages.outlast(scratch_folders.remove, scratch)
    except OSError as error:
        log.get(__name__).warning(
            "What a fork server had on disk is left, until the operator is started again",
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


async def ended(pid: int) -> int | None:
    """Wait for a child that we did not start ourselves, and reap it; None if it is reaped already."""
    descriptor = None
    while descriptor is None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        except OSError as error:
            if not shortages.passes(error):
                raise
            await asyncio.sleep(_LOOK_EVERY)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    try:
        _, status = os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it has ended
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status)
