"""Zygote of a run: the process from which modules are forked.

It is forked before the run loads code of the project. So changes of plugins to their process do not reach a module, as
with new interpreters. Owns the socket for requests to run modules, and the wait for them.

Promises: it has a single thread. It ends when no process that could send requests is left. A module that it forked has
then ended or continues as an orphan, as after a run with new interpreters. If file descriptors run out, it refuses new
modules, and still waits for those that run.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import pickle
import selectors
import signal
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Self

from runner.config import shortages
from runner.engine.executions import Reason
from runner.engine.warm.modules.module_process import Request
from runner.engine.warm.modules.shell import Output

_RUN_MODULE = b"module"
_DESCRIPTORS = 6
_STATUS_AT = 3
"""Position of the descriptor for the status among them."""
_STATUS = struct.Struct("=q")
_CHUNK = 1 << 16
_POLL = 0.02
"""Seconds between checks of modules for which the kernel gave no pidfd."""
_SURVIVED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Signals to a group of processes that the zygote ignores: they are for its modules."""

Run = Callable[[list[int]], NoReturn]


class Unavailable(Exception):  # noqa: N818 - not an error: the module is then run the cold way
    """Error: no module can be forked."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.reason = Reason.RESOURCES if shortages.passes(cause) else Reason.FORK_FAILED


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
                _serve(theirs, run)
            os._exit(0)
        theirs.close()
        return cls(pid, ours, set())

    @property
    def running(self) -> frozenset[int]:
        """Pids of the modules that this process waits for."""
        return frozenset(self._running)

    def run(self, request: Request, folder: str, begun: Callable[[], None]) -> Output:
        """Run a module in a folder to its end. Also wait for processes that hold its output open.

        `begun` is called when it runs.

        Raises:
            Unavailable: nothing has run.
        """
        with _Pipes() as pipes:
            try:
                pipes.send(self._socket, request, folder)
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

    def send(self, to: socket.socket, request: Request, folder: str) -> None:
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
        socket.send_fds(to, [_RUN_MODULE], self._theirs)
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


def _serve(requests: socket.socket, run: Run) -> None:
    gc.freeze()
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in _SURVIVED}

    def begin(descriptors: list[int]) -> NoReturn:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        run(descriptors)

    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ, None)
        polled: dict[int, int] = {}
        while True:
            for key, _ in selector.select(_POLL if polled else None):
                if key.data is not None:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _reap(*key.data)
                elif not _answer(requests, selector, polled, begin):
                    return
            for pid in [pid for pid in polled if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)]:
                _reap(pid, polled.pop(pid))


def _answer(requests: socket.socket, selector: selectors.BaseSelector, polled: dict[int, int], run: Run) -> bool:
    """Fork a requested module. Return True if more requests can follow.

    `polled` receives the pid and the descriptor of its status if the selector cannot wait for it.
    """
    message, descriptors, _, _ = socket.recv_fds(requests, len(_RUN_MODULE), _DESCRIPTORS)
    if message != _RUN_MODULE:
        return False
    if len(descriptors) < _DESCRIPTORS:  # the kernel has closed the others
        _refuse(descriptors)
        return True
    status = descriptors[_STATUS_AT]
    try:
        pid = os.fork()
    except OSError as error:
        _send_status(status, -(error.errno or 1))
        pid = -1
    if pid == 0:
        _be_module(descriptors, run)
    for descriptor in descriptors:
        if descriptor != status or pid < 0:
            os.close(descriptor)
    if pid > 0:
        _send_status(status, pid)
        try:
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))
        except OSError:
            polled[pid] = status
    return True


def _refuse(descriptors: list[int]) -> None:
    """Refuse a request of which not all descriptors arrived."""
    for descriptor in descriptors[_STATUS_AT : _STATUS_AT + 1]:
        _send_status(descriptor, -errno.EMFILE)
    for descriptor in descriptors:
        os.close(descriptor)


def _be_module(descriptors: list[int], run: Run) -> NoReturn:
    try:
        run(descriptors)
    finally:
        os._exit(1)


def _reap(pid: int, status: int) -> None:
    _, ended = os.waitpid(pid, 0)
    _send_status(status, os.waitstatus_to_exitcode(ended))
    os.close(status)


def _send_status(status: int, value: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the client has ended, as after a timeout of its task
        os.write(status, _STATUS.pack(value))
