"""The fork server: a process with Ansible loaded, from which runs are forked. `start` starts it; it speaks `messages`.

Promises: single threaded whenever it forks; a run is no child of the server, so it goes on when the server ends, and
the operator, which adopts orphans, reaps it; the server ends when its socket does, however the operator ended.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from runner.engine.warm import messages, procfs
from runner.engine.warm.messages import Answer, Load

if TYPE_CHECKING:
    from runner.engine.warm.server.run import Base
    from runner.engine.warm.server.self_test import Verdict


def main() -> None:
    """Load, then serve until the operator is gone."""
    shown = procfs.take_over()
    os.environ.pop(procfs.PADDING, None)
    before = _given()
    procfs.show(shown, ["ansible-operator: fork server"], os.environ)
    server = socket.socket(fileno=int(sys.argv[1]))
    data = server.recv(messages.LONGEST)
    if not data:
        return
    added = {name: value for name, value in os.environ.items() if name not in before}
    umask = os.umask(0o077)  # what is written meanwhile is nobody else's business
    try:
        wanted = messages.unpack_load(data)
        base, verdict = _load(shown, added, Path(sys.argv[2]), wanted)
        os.umask(umask)
        _ready(server, wanted, verdict)
    except Exception as error:  # noqa: BLE001 - whatever Ansible raises when it is imported, the operator must be told
        _answer(server, Answer(problem=f"{type(error).__name__}: {error}"))
    except SystemExit as end:  # Ansible's way to say that it cannot work here
        _answer(server, Answer(problem=f"Ansible cannot start: {end}"))
    else:
        with contextlib.suppress(ConnectionResetError):
            _serve(server, base)


def _given() -> set[str]:
    """Return the names of the variables that this process was started with."""
    data = Path("/proc/self/environ").read_bytes()
    return {os.fsdecode(entry.partition(b"=")[0]) for entry in data.split(b"\0") if entry}


def _load(shown: procfs.Shown, added: dict[str, str], scratch: Path, wanted: Load) -> tuple[Base, Verdict]:
    from runner.engine.warm.server import model  # noqa: PLC0415 - now that the environment is settled

    loaded = model.load(scratch, wanted.plugins)
    from runner.engine.warm.server import playbook, run, self_test  # noqa: PLC0415 - they import what was loaded
    from runner.engine.warm.server.refresh import Refresh  # noqa: PLC0415 - as above

    made = playbook.prepare(loaded, wanted, shown)
    refresh = Refresh.of(loaded)
    verdict = self_test.run(refresh, made, scratch, wanted.off)
    return run.Base(refresh, made, frozenset(verdict.disabled), shown, added), verdict


def _ready(server: socket.socket, wanted: Load, verdict: Verdict) -> None:
    """Say that all is loaded, in a state that is good to fork from."""
    from runner.engine.warm.server import fingerprint, sharing  # noqa: PLC0415 - they import what was loaded

    if threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
        raise RuntimeError(f"what was loaded started threads, which no fork survives: {names}")
    watched = fingerprint.watched()
    gc.collect()
    if "sharing" not in wanted.off:
        sharing.settle()
    gc.freeze()
    _answer(server, Answer(watched=watched, disabled=verdict.disabled, problems=verdict.problems))


def _serve(server: socket.socket, base: Base) -> None:
    while True:
        _, descriptors, _, _ = socket.recv_fds(server, messages.LONGEST, messages.STREAMS)
        if len(descriptors) != messages.STREAMS:
            return  # the operator is gone
        try:
            answer = Answer(pid=_fork(server, descriptors, base))
        except OSError as error:
            answer = Answer(problem=str(error))
        for descriptor in descriptors:
            os.close(descriptor)
        _answer(server, answer)


def _fork(server: socket.socket, descriptors: list[int], base: Base) -> int:
    """Fork twice, so that the run's supervisor is an orphan, and return its pid."""
    reader, writer = os.pipe()
    try:
        between = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if between == 0:
        server.close()
        os.close(reader)
        _between(writer, descriptors, base)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read()
    os.waitpid(between, 0)
    if not said.isdigit():
        raise OSError(said.decode(errors="replace") or "the process between server and run was killed")
    return int(said)


def _between(writer: int, descriptors: list[int], base: Base) -> NoReturn:
    from runner.engine.warm.server import run  # noqa: PLC0415 - it imports what was loaded

    try:
        os.setsid()  # should the server die now, we are no child of anybody who started one in the operator's session
        pid = os.fork()
    except OSError as error:
        os.write(writer, str(error).encode())
        os._exit(1)
    if pid == 0:
        os.close(writer)
        run.supervise(base, *descriptors)
    os.write(writer, str(pid).encode())
    os._exit(0)


def _answer(server: socket.socket, answer: Answer) -> None:
    with contextlib.suppress(BrokenPipeError):  # the operator is gone, as the next message will say
        server.send(messages.pack(answer))
