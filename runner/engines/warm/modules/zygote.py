"""Zygote of a run: the process from which modules are forked.

It is forked before the run loads code of the project. So changes of plugins to their process do not reach a module, as
with new interpreters. Owns the socket for requests to run modules, and the wait for them.

One process is kept for modules that are known to leave nothing behind. It is forked while the run loads its playbook.
They run in it one after the other; each other module has a process of its own. If the kept process is busy, such a
module has its own too.

Promises: it has a single thread. It ends when no process that could send requests is left. A module that it forked has
then ended or continues as an orphan, as after a run with new interpreters. If file descriptors run out, it refuses new
modules, and still waits for those that run. If a kept process dies, its module ends as one in a process of its own.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import os
import pickle
import selectors
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NoReturn, Self

from runner.agent import interpreter
from runner.base.config import shortages
from runner.engines.warm.modules.module_process import Following, ModuleRequest
from runner.engines.warm.modules.shell import Output

_RUN_MODULE, _RUN_KEPT = b"module", b"keeper"
_DESCRIPTORS = 6
_STATUS_AT = 3
"""Position of the descriptor for the status among them."""
_STATUS = struct.Struct("=q")
_CHUNK = 1 << 16
_IDLE_WITHIN = 10.0
"""Seconds after which an idle kept process is replaced, much less than until a server closes an idle connection."""
_POLL = 0.02
"""Seconds between checks of modules for which the kernel gave no pidfd."""
_SURVIVED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Signals to a group of processes that the zygote ignores: they are for its modules."""

Run = Callable[[list[int], Following | None], NoReturn]
"""What a module's process does, with its descriptors. The process that is kept has none, and asks for each module."""


class Unavailable(Exception):  # noqa: N818 - not an error: the module is then run the cold way
    """Error: no module can be forked."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.reason = "resources" if shortages.passes(cause) else "fork_failed"


@dataclass
class Zygote:
    """Client of the zygote, in the playbook's process and its workers."""

    pid: int
    _socket: socket.socket
    _running: set[int]

    @classmethod
    def start(cls, enter: Callable[[], None], run: Run) -> Zygote:
        """Fork the zygote. It calls `enter`, and calls `run` in each module's process with its descriptors."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            with contextlib.suppress(BaseException):
                enter()
                gc.freeze()
                _Server(theirs, run).serve()
            os._exit(0)
        theirs.close()
        return cls(pid, ours, set())

    def close(self) -> None:
        """Let the zygote end, unless another process still uses it."""
        self._socket.close()

    @property
    def running(self) -> frozenset[int]:
        """Pids of the modules that this process waits for."""
        return frozenset(self._running)

    def run(self, request: ModuleRequest, folder: str, begun: Callable[[], None], *, kept: bool = False) -> Output:
        """Run a module in a folder to its end. Also wait for processes that hold its output open.

        `begun` is called when it runs. `kept`: in the process that is kept, if that is idle.

        Raises:
            Unavailable: nothing has run.
        """
        with _Pipes() as pipes:
            try:
                pipes.send(self._socket, request, folder, _RUN_KEPT if kept else _RUN_MODULE)
                pid = pipes.started()
            except OSError as error:
                raise Unavailable(error) from error
            self._running.add(pid)
            begun()
            try:
                return pipes.finish()
            finally:
                self._running.discard(pid)


class _Pipes:
    """Pipes and descriptors that a module's process and its caller share."""

    def __init__(self) -> None:
        self._ours: dict[str, int] = {}
        self._theirs: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (*self._ours.values(), *self._theirs):
            os.close(descriptor)

    def send(self, to: socket.socket, request: ModuleRequest, folder: str, message: bytes) -> None:
        stdin, writer = os.pipe()
        os.close(writer)  # an empty pipe: a module that reads it gets the end of file at once
        self._theirs.append(stdin)
        for name in ("stdout", "stderr", "status"):
            self._ours[name], other = os.pipe()
            self._theirs.append(other)
        self._theirs.append(os.open(folder, os.O_PATH | os.O_DIRECTORY))
        body = os.memfd_create("module", os.MFD_CLOEXEC)
        self._theirs.append(body)
        with open(body, "wb", closefd=False) as file:
            pickle.dump(request, file)
        socket.send_fds(to, [message], self._theirs)
        while self._theirs:
            os.close(self._theirs.pop())

    def started(self) -> int:
        """Return the pid of the module's process."""
        data = os.read(self._ours["status"], _STATUS.size)
        if not data:
            raise BrokenPipeError("the process that modules are forked from has ended")
        (pid,) = _STATUS.unpack(data)
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return int(pid)

    def finish(self) -> Output:
        parts: dict[str, list[bytes]] = {name: [] for name in self._ours}
        with selectors.PollSelector() as selector:  # as in subprocess: a task's timeout reports this place
            for name, descriptor in self._ours.items():
                selector.register(descriptor, selectors.EVENT_READ, name)
            while selector.get_map():
                for key, _ in selector.select():
                    data = os.read(key.fd, _CHUNK)
                    if data:
                        parts[key.data].append(data)
                    else:
                        selector.unregister(key.fd)
        status = b"".join(parts["status"])
        # A killed zygote writes no status. The module continued, and only its output is available.
        ended = _STATUS.unpack(status)[0] if status else -signal.SIGKILL
        return Output(int(ended), b"".join(parts["stdout"]), b"".join(parts["stderr"]))


@dataclass(slots=True)
class _Process:
    """Process of a module, or the one that is kept."""

    pid: int
    kept: socket.socket | None = None
    status: int = -1
    """Descriptor for the status of its module; -1 while it has none."""
    since: float = field(default_factory=time.monotonic)
    """When it started or its last module ended."""

    def begin(self, descriptors: list[int]) -> None:
        """Report that it runs the module with these descriptors."""
        self.status = descriptors[_STATUS_AT]
        _close(descriptor for descriptor in descriptors if descriptor != self.status)
        _send_status(self.status, self.pid)

    def end(self, code: int) -> None:
        """Report how its module ended, if it has one."""
        if self.status >= 0:
            _send_status(self.status, code)
            os.close(self.status)
        self.status, self.since = -1, time.monotonic()


class _Server:
    """The zygote's own process."""

    def __init__(self, requests: socket.socket, run: Run) -> None:
        self._requests = requests
        self._run = run
        self._handlers = {number: signal.signal(number, signal.SIG_IGN) for number in _SURVIVED}
        self._selector = selectors.DefaultSelector()
        self._polled: list[_Process] = []
        """Processes for which the kernel gave no pidfd."""
        self._kept: _Process | None = None

    def serve(self) -> None:
        """Serve until no client is left."""
        self._selector.register(self._requests, selectors.EVENT_READ, self._answer)
        self._keep()
        while self._requests.fileno() >= 0:
            for key, _ in self._selector.select(_POLL if self._polled else None):
                key.data()
            for process in list(self._polled):
                if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    self._polled.remove(process)
                    self._reap(process)

    def _answer(self) -> None:
        """Run a requested module."""
        message, descriptors, _, _ = socket.recv_fds(self._requests, len(_RUN_MODULE), _DESCRIPTORS)
        if not message:
            self._requests.close()
        elif len(descriptors) < _DESCRIPTORS:  # the kernel has closed the others
            _refuse(descriptors, errno.EMFILE)
        elif message == _RUN_MODULE or not self._pass_on(descriptors):
            self._run_alone(descriptors)

    def _pass_on(self, descriptors: list[int]) -> bool:
        """Return True if the kept process runs the module."""
        process = self._kept
        if process and process.status < 0 and time.monotonic() - process.since > _IDLE_WITHIN:
            self._forget(process)
        if self._kept is None:
            self._keep()
        process = self._kept
        if process is None or process.kept is None or process.status >= 0:
            return False
        with contextlib.suppress(OSError):  # it has just ended
            socket.send_fds(process.kept, [_RUN_KEPT], descriptors)
            process.begin(descriptors)
            return True
        self._forget(process)
        return False

    def _run_alone(self, descriptors: list[int]) -> None:
        try:
            process = self._fork(descriptors)
        except OSError as error:
            _refuse(descriptors, error.errno or 1)
        else:
            process.begin(descriptors)

    def _keep(self) -> None:
        with contextlib.suppress(OSError):  # a module that needs it is refused, if it has no process of its own either
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                process = self._kept = self._fork([], theirs)
            process.kept = ours
            self._selector.register(ours, selectors.EVENT_READ, lambda: self._hear(process))

    def _fork(self, descriptors: list[int], kept: socket.socket | None = None) -> _Process:
        pid = os.fork()
        if pid == 0:
            self._be_module(descriptors, kept)
        process = _Process(pid)
        try:
            descriptor = os.pidfd_open(pid)
            self._selector.register(descriptor, selectors.EVENT_READ, lambda: self._end(descriptor, process))
        except OSError:
            self._polled.append(process)
        return process

    def _be_module(self, descriptors: list[int], kept: socket.socket | None) -> NoReturn:
        try:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self._requests.close()
            self._selector.close()
            others = [kept.fileno()] if kept else []
            interpreter.close_descriptors((*descriptors, *others))
            self._run(descriptors, functools.partial(_follow, kept) if kept else None)
        finally:
            os._exit(1)

    def _hear(self, process: _Process) -> None:
        """Read how the module of the kept process ended. Nothing to read means that the process has ended."""
        code = b""
        with contextlib.suppress(OSError):
            code = process.kept.recv(_STATUS.size, socket.MSG_DONTWAIT) if process.kept else b""
        if code:
            process.end(*_STATUS.unpack(code))
        else:
            self._forget(process)

    def _forget(self, process: _Process) -> None:
        """Send no more modules to the kept process. It then ends."""
        if process.kept:
            self._selector.unregister(process.kept)
            process.kept.close()
            process.kept = self._kept = None

    def _end(self, descriptor: int, process: _Process) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)
        self._reap(process)

    def _reap(self, process: _Process) -> None:
        self._hear(process)
        self._forget(process)
        _, ended = os.waitpid(process.pid, 0)
        process.end(os.waitstatus_to_exitcode(ended))


def _follow(kept: socket.socket, code: int | None) -> list[int]:
    """In the kept process: report the exit code of its last module, and return the descriptors of the next one."""
    if code is not None:
        kept.send(_STATUS.pack(code))
    message, descriptors, _, _ = socket.recv_fds(kept, len(_RUN_KEPT), _DESCRIPTORS)
    if len(descriptors) < _DESCRIPTORS:
        os._exit(1 if message else 0)  # without a message, none follows
    return descriptors


def _refuse(descriptors: list[int], number: int) -> None:
    """Refuse a request, with the number of an error."""
    for status in descriptors[_STATUS_AT : _STATUS_AT + 1]:
        _send_status(status, -number)
    _close(descriptors)


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _send_status(status: int, value: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the client has ended, as after a timeout of its task
        os.write(status, _STATUS.pack(value))
