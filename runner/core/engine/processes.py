"""Search, end and reap of every process of a run, including processes that hide.

Three properties identify a run's processes, because a process can escape each of them. They are the marker in the
inherited environment, descent from the supervisor, and descent from a marked process. Reads `/proc` (proc(5)). Without
`/proc`, only directly started processes are found. If it cannot be read because file descriptors ran out, functions
raise `OSError`: an empty result would mean that no process is left. Must not depend on the program that a run executes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from runner.agent.process_tree import (
    INTERVAL,
    PROC,
    Process,
    descendants,
    living,
    raise_shortage,
    read,
    send,
    signal_on_parent_death,
    table,
)

MARKER = "ANSIBLE_OPERATOR_RUN_ID"
"""Environment variable that every process of a run inherits: `<root>:<operator pid>:<its start time>:<ident>`."""

_CHUNK = 1 << 16
_REAP_WITHIN, _REAP_INTERVAL = 10.0, 0.1
"""Seconds."""


def run_id(root: Path, ident: str) -> str:
    """Return the marker of a run of this operator process."""
    pid = os.getpid()
    return f"{_digest(root)}:{pid}:{start_of(pid)}:{ident}"


@functools.lru_cache(maxsize=1)
def start_of(pid: int) -> int:
    """Return the start time of this process, `pid`; 0 without `/proc`."""
    own = read(pid)
    return own.start if own else 0


def _digest(root: Path) -> str:
    return hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]


def marker(pid: int) -> str | None:
    """Return the marker in a process's environment; None if it has none or is not readable."""
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError as error:
        raise_shortage(error)
        return None
    prefix = f"{MARKER}=".encode()
    for entry in environment.split(b"\0"):
        if entry.startswith(prefix):
            return entry.removeprefix(prefix).decode(errors="replace")
    return None


def of_run(identity: str, supervisor: Process | None) -> list[Process]:
    """Return all processes of a run: its supervisor and all marked processes, with their descendants.

    After the supervisor has ended, another process can get its pid: that process is not of the run.
    """
    processes = table()
    roots = {pid for pid in processes if marker(pid) == identity}
    process = processes.get(supervisor.pid) if supervisor else None
    if process and supervisor and process.start == supervisor.start:
        roots.add(process.pid)
    pids = (roots | descendants(processes, roots)) - {os.getpid()}
    return [processes[pid] for pid in pids if pid in processes]


def has_dead_children() -> bool:
    """Return True if a child of this process is a zombie. It is cheap."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def kill(identity: str, supervisor: Process | None, within: float) -> bool:
    """Kill the processes of a run, repeatedly while it forks. Return True if none lives after `within` seconds."""
    deadline = time.monotonic() + within
    while left := living(of_run(identity, supervisor)):
        send(left, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(INTERVAL)
    return True


def result_of_fork(act: Callable[[], Any], within: float) -> Any:
    """Return the JSON value that `act` returns in a forked process; None if it raised, died, or took too long.

    The process has its own session, and ends with this one. It is killed after `within` seconds: if this process has
    other threads, one of them can hold a lock that `act` needs. Processes that it leaves behind are not waited for.
    """
    return begin_fork(act, within)()


def begin_fork(act: Callable[[], Any], within: float) -> Callable[[], Any]:
    """Do the first half of `result_of_fork`; return a function, to be called once, that waits for the result."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            os.setsid()
            signal_on_parent_death(signal.SIGKILL)
            value = act()
            with os.fdopen(writer, "w", encoding="utf-8") as stream:
                json.dump(value, stream)
        finally:
            os._exit(0)
    os.close(writer)
    return functools.partial(_await_fork, pid, reader, time.monotonic() + within)


def _await_fork(pid: int, reader: int, deadline: float) -> Any:
    data = bytearray()
    os.set_blocking(reader, False)
    process = os.pidfd_open(pid)
    try:
        sources = [reader, process]
        while process in sources:
            ready, _, _ = select.select(sources, [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                with contextlib.suppress(ProcessLookupError):  # it does not lead a group yet
                    os.killpg(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
            if not ready or process in ready:
                sources.remove(process)
            with contextlib.suppress(BlockingIOError):  # another process can still hold the pipe open
                while part := os.read(reader, _CHUNK):
                    data += part
                sources = [source for source in sources if source != reader]
    finally:
        os.close(reader)
        os.close(process)
        os.waitpid(pid, 0)
    with contextlib.suppress(ValueError):
        return json.loads(data)
    return None


def orphaned_zombies(known: Collection[int]) -> set[int]:
    """Return the zombies that became children of this process when a supervisor died.

    The session distinguishes such a zombie from children of other parts of this process: runs have their own sessions.
    `known` are the pids of supervisors, which other code reaps.
    """
    own, session = os.getpid(), os.getsid(0)
    return {
        process.pid
        for process in table().values()
        if process.zombie and process.parent == own and process.session != session and process.pid not in known
    }


def reap_orphans(known: Collection[int]) -> None:
    """Reap the children that a dead supervisor left: zombies that two consecutive checks find.

    Code that starts a child in this process waits for it, and reaps it earlier.
    """
    deadline = time.monotonic() + _REAP_WITHIN
    before = orphaned_zombies(known)
    while before and time.monotonic() < deadline:
        time.sleep(_REAP_INTERVAL)
        now = orphaned_zombies(known)
        for pid in before & now:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        before = now - before


def leftovers(root: Path) -> list[Process]:
    """Return the living processes of runs below `root` whose operator is dead."""
    processes = table()
    prefix = f"{_digest(root)}:"
    orphaned = set()
    for pid in processes:
        identity = marker(pid)
        if identity and identity.startswith(prefix) and not operator_lives(identity, processes):
            orphaned.add(pid)
    pids = (orphaned | descendants(processes, orphaned)) - {os.getpid()}
    return living(processes[pid] for pid in pids)


def operator_lives(identity: str, processes: Mapping[int, Process]) -> bool:
    """Return True if the operator with this marker of a run is still alive."""
    _, _, rest = identity.partition(":")
    pid, _, rest = rest.partition(":")
    start, _, _ = rest.partition(":")
    operator = processes.get(int(pid)) if pid.isdigit() else None
    return operator is not None and not operator.zombie and str(operator.start) == start
