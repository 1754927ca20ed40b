"""The fork server: a process with Ansible loaded, which forks runs. `start` starts it; its protocol is `messages`.

The server has a single thread when it forks. A run is not a child of the server, so it continues if the server ends,
and the operator, which adopts orphans, reaps it. The server ends when its socket is closed, so also if the operator is
killed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import os
import select
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from runner.engines.warm import messages, procfs
from runner.engines.warm.messages import Load, Ready

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runner.engines.warm.patches.shortcuts import PreparedShortcuts
    from runner.engines.warm.server.refresh import Refresh
    from runner.engines.warm.server.run import Base
    from runner.engines.warm.server.self_test import SelfTestResult


_RUNS_BEFORE_SHARING = 5
"""Forks for runs after which the server prepares its memory. That costs as much CPU time as these runs lose without it,
and many servers are replaced sooner."""


def main() -> None:
    """Load Ansible, then serve until the operator has ended."""
    shown = procfs.take_over()
    os.environ.pop(procfs.PADDING, None)
    before = _initial_variables()
    procfs.show(shown, ["ansible-operator: fork server"], os.environ)
    server, scratch = socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2])
    gc.disable()  # loading frees almost nothing, and the collector would traverse all of it again and again
    added = {name: value for name, value in os.environ.items() if name not in before}
    umask = os.umask(0o077)  # files of the self-test and of Ansible are private
    serve: Callable[[], None] | None = None
    try:
        request = messages.read_load(scratch)
        base, result = _load(shown, added, scratch, request)
        os.umask(umask)
        ready = _prepare_forks(result)
        shares = "sharing" not in request.off
        serve = functools.partial(_serve, server, base, _compile_ahead(base, request), shares=shares)
    except Exception as error:  # noqa: BLE001 - the operator reports it, also exceptions of Ansible's imports
        ready = Ready(f"{type(error).__name__}: {error}")
    except SystemExit as end:  # Ansible ends so if it cannot work here
        ready = Ready(f"Ansible cannot start: {end}")
    messages.write(scratch / messages.READY, ready)
    _answer(server, messages.READY)
    if serve is not None:
        with contextlib.suppress(ConnectionResetError):
            serve()


def _initial_variables() -> set[str]:
    """Return the names of the variables that this process was started with."""
    data = Path("/proc/self/environ").read_bytes()
    return {os.fsdecode(entry.partition(b"=")[0]) for entry in data.split(b"\0") if entry}


def _load(shown: procfs.Shown, added: dict[str, str], scratch: Path, request: Load) -> tuple[Base, SelfTestResult]:
    refresh, made = prepare(shown, scratch, request)
    from runner.engines.warm.server import run, self_test  # noqa: PLC0415 - they import Ansible

    result = self_test.run(refresh, made, scratch, request.off)
    return run.Base(refresh, made, frozenset(result.disabled), shown, added), result


def prepare(shown: procfs.Shown, scratch: Path, request: Load) -> tuple[Refresh, PreparedShortcuts]:
    """Load Ansible and what the shortcuts of all runs share. The environment of this process must be final."""
    from runner.engines.warm.server import model  # noqa: PLC0415 - the environment must be final

    loaded = model.load(scratch)
    from runner.engines.warm.patches import shortcuts  # noqa: PLC0415 - it imports Ansible
    from runner.engines.warm.server import self_test  # noqa: PLC0415 - as above
    from runner.engines.warm.server.refresh import Refresh  # noqa: PLC0415 - as above

    # On another processor, while this one loads plugins and code.
    resolved = shortcuts.resolve(request.modules | self_test.MODULES, scratch)
    model.preload(loaded, request.plugins)
    shortcuts.load(request.off)
    made = shortcuts.prepare(request, loaded.interpreter(shown), resolved)
    return Refresh.of(loaded), made


def _prepare_forks(result: SelfTestResult) -> Ready:
    from runner.engines.warm.server import fingerprint  # noqa: PLC0415 - it imports Ansible

    if threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
        raise RuntimeError(f"a preloaded module started threads, which a fork cannot copy: {names}")
    watched = fingerprint.watched()
    gc.freeze()
    gc.enable()
    return Ready("", watched, result.disabled, result.problems)


def _serve(server: socket.socket, base: Base, preparation: Iterator[None], *, shares: bool) -> None:
    """Fork runs. `preparation` continues while no run waits."""
    runs = 0
    while True:
        for _ in preparation:
            if _has_request(server):
                break
        if shares and runs >= _RUNS_BEFORE_SHARING and not _has_request(server):
            _share_memory()
            shares = False
        request, descriptors, _, _ = socket.recv_fds(server, len(messages.RUN), messages.STREAMS)
        if not request:
            return  # the operator has ended
        runs += 1
        try:
            answer = str(_fork(server, descriptors, base))
        except OSError as error:
            answer = str(error)
        for descriptor in descriptors:
            os.close(descriptor)
        _answer(server, answer)


def _compile_ahead(base: Base, load: Load) -> Iterator[None]:
    from runner.engines.warm.server import ahead  # noqa: PLC0415 - it imports Ansible

    if base.made.templates is None or "templates" in load.off:
        return iter(())
    return ahead.compile_files(load.files, load.template_files, base.made.templates)


def _has_request(server: socket.socket) -> bool:
    poll = select.poll()
    poll.register(server, select.POLLIN)
    return bool(poll.poll(0))


def _share_memory() -> None:
    """Prepare the memory for forks: free what loading left, and make later runs share the rest."""
    from runner.engines.warm.server import sharing  # noqa: PLC0415 - not at each start

    gc.unfreeze()
    gc.collect()
    sharing.make_immortal()
    gc.freeze()


def _fork(server: socket.socket, descriptors: list[int], base: Base) -> int:
    """Fork twice, so that the run's supervisor is an orphan, and return its pid."""
    if len(descriptors) != messages.STREAMS:  # the kernel has closed those for which this process has no number
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    reader, writer = os.pipe()
    try:
        intermediate = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if intermediate == 0:
        server.close()
        os.close(reader)
        _fork_supervisor(writer, descriptors, base)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        output = stream.read()
    os.waitpid(intermediate, 0)
    if not output.isdigit():
        raise OSError(output.decode(errors="replace") or "the process between fork server and run was killed")
    return int(output)


def _fork_supervisor(writer: int, descriptors: list[int], base: Base) -> NoReturn:
    from runner.engines.warm.server import run  # noqa: PLC0415 - it imports Ansible

    try:
        os.setsid()  # otherwise, if the server dies now, the run stays in the operator's session
        pid = os.fork()
    except OSError as error:
        os.write(writer, str(error).encode())
        os._exit(1)
    if pid == 0:
        os.close(writer)
        run.supervise(base, *descriptors)
    os.write(writer, str(pid).encode())
    os._exit(0)


def _answer(server: socket.socket, answer: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the operator has ended; the next receive detects it
        server.send(answer.encode(errors="replace")[: messages.LONGEST])
