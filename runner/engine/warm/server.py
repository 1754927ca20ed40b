"""The fork server: a process with Ansible loaded, from which runs are forked. `start` starts it.

Speaks over one socket that keeps messages apart. From the operator: `RUN` with three descriptors (control, events,
complaints). To it: one line of JSON for `ready`, then one for each run: its pid, or why there is none. Promises: single
threaded whenever it forks; a run is no child of the server, so it goes on when the server ends, and the operator, which
adopts orphans, reaps it; the server ends when its socket does, however the operator ended.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

from runner.engine import processes
from runner.engine.warm import procfs
from runner.engine.warm.messages import MESSAGE, RUN

_STREAMS = 3


def main() -> None:
    """Load, then serve until the operator is gone."""
    shown = procfs.take_over()
    os.environ.pop(procfs.PADDING, None)
    server = socket.socket(fileno=int(sys.argv[1]))
    scratch = Path(sys.argv[2])
    before = _given()
    added = {name: value for name, value in os.environ.items() if name not in before}
    procfs.show(shown, ["ansible-operator: fork server"], os.environ)
    from runner.engine.warm import model  # noqa: PLC0415 - now that the environment is settled

    loaded = model.load(scratch)
    from runner.engine.warm import run  # noqa: PLC0415 - imports what was loaded

    if threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate())
        raise RuntimeError(f"threads were started by what was loaded, so that nothing can be forked: {names}")
    start = run.prepare(loaded, shown, added)
    gc.collect()
    gc.freeze()
    _answer(server, ready=True)
    _serve(server, start)


def _given() -> set[str]:
    """Return the names of the variables that this process was started with."""
    data = Path("/proc/self/environ").read_bytes()
    return {os.fsdecode(entry.partition(b"=")[0]) for entry in data.split(b"\0") if entry}


def _serve(server: socket.socket, start: Any) -> None:
    while True:
        message, descriptors, _, _ = socket.recv_fds(server, MESSAGE, _STREAMS)
        if message != RUN or len(descriptors) != _STREAMS:
            return  # the operator is gone
        try:
            pid = _fork(server, descriptors, start)
        except OSError as error:
            _answer(server, error=str(error))
        else:
            _answer(server, pid=pid)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _fork(server: socket.socket, descriptors: list[int], start: Any) -> int:
    """Fork twice, so that the run's supervisor is an orphan, and return its pid."""
    reader, writer = os.pipe()
    try:
        between = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if between == 0:
        _between(server, (reader, writer), descriptors, start)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read()
    os.waitpid(between, 0)
    if not said.isdigit():
        raise OSError(said.decode(errors="replace") or "the process between died")
    return int(said)


def _between(server: socket.socket, pipe: tuple[int, int], descriptors: list[int], start: Any) -> NoReturn:
    reader, writer = pipe
    said = b""
    try:
        os.close(reader)
        pid = os.fork()
        if pid == 0:
            os.close(writer)
            server.close()
            start(*descriptors)
            os._exit(1)  # not reached
        said = str(pid).encode()
    except OSError as error:
        said = str(error).encode()
    finally:
        with contextlib.suppress(OSError):
            os.write(writer, said)
        os._exit(0)


def _answer(server: socket.socket, **answer: Any) -> None:
    try:
        server.send(json.dumps(answer).encode())
    except BrokenPipeError:
        processes.reap_children()
        os._exit(0)
