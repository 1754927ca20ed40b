"""Search, end and reap of every process of a run, including processes that hide.

Three properties identify a run's processes, because a process can escape each of them. They are the marker in the
inherited environment, descent from the supervisor, and descent from a marked process. Reads `/proc` (proc(5)). Without
`/proc`, only directly started processes are found. If it cannot be read because file descriptors ran out, functions
raise `OSError`: an empty result would mean that no process is left. Must not depend on the program that a run executes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.config import shortages

MARKER = "ANSIBLE_OPERATOR_RUN_ID"
"""Environment variable that every process of a run inherits: `<root>:<operator pid>:<its start time>:<ident>`."""

_PROC = Path("/proc")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SCAN_INTERVAL = 0.02
_MOMENT = 0.001
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Process:
    """State of a process in `/proc`. `start` (clock ticks since boot) distinguishes processes with the same pid."""

    pid: int
    parent: int
    session: int
    start: int
    zombie: bool


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


def adopt_orphans(*, adopt: bool = True) -> None:
    """Make this process the parent of orphans among its descendants, or stop doing so (Linux only)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))


def signal_on_parent_death(number: signal.Signals) -> None:
    """Make the kernel send this process `number` when the thread that started it ends (Linux only)."""
    _prctl(_PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def read(pid: int) -> Process | None:
    """Return the state of one process; None if it has ended."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError as error:
        _raise_if_short(error)
        return None
    # The command can contain spaces and brackets; the fields after its last bracket are fixed (proc_pid_stat(5)).
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        start=int(fields[19]),
        zombie=fields[0] in {b"Z", b"X"},
    )


def table() -> dict[int, Process]:
    """Return the states of all processes by pid."""
    try:
        names = [entry.name for entry in _PROC.iterdir()]
    except OSError as error:
        _raise_if_short(error)
        return {}
    found = (read(int(name)) for name in names if name.isdigit())
    return {process.pid: process for process in found if process}


def marker(pid: int) -> str | None:
    """Return the marker in a process's environment; None if it has none or is not readable."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError as error:
        _raise_if_short(error)
        return None
    prefix = f"{MARKER}=".encode()
    for entry in environment.split(b"\0"):
        if entry.startswith(prefix):
            return entry.removeprefix(prefix).decode(errors="replace")
    return None


def _raise_if_short(error: OSError) -> None:
    if shortages.passes(error):
        raise error


def descendants(processes: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """Return the pids below `roots`, without `roots`."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return found


def below(pid: int) -> set[int]:
    """Return the pids below one process, including zombies; none if the kernel does not list children.

    It is cheaper than `table`. A process that starts or ends meanwhile can be missing.
    """
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for path in (_PROC / str(waiting.pop()) / "task").glob("*/children"):
            with contextlib.suppress(OSError):  # the process has ended
                fresh = {int(each) for each in path.read_text(encoding="ascii").split()} - found
                found |= fresh
                waiting.extend(fresh)
    return found


def lone_waiter() -> tuple[int, bytes, bytes] | None:
    """Return the only living process below this one if it waits for a lock: its pid and CPU times. None otherwise."""
    alive = [pid for pid in below(os.getpid()) if (found := read(pid)) is not None and not found.zombie]
    if len(alive) != 1:
        return None
    folder = _PROC / str(alive[0])
    try:
        if b"futex" in (folder / "wchan").read_bytes():
            user, system = (folder / "stat").read_bytes().rpartition(b")")[2].split()[11:13]
            return alive[0], user, system
    except OSError as error:
        _raise_if_short(error)
    return None


def of_run(identity: str, supervisor: Process | None) -> list[Process]:
    """Return all processes of a run: its supervisor and all marked processes, with their descendants.

    After the supervisor has ended, another process can get its pid: that process is not of the run.
    """
    processes = table()
    roots = {pid for pid in processes if marker(pid) == identity}
    found = processes.get(supervisor.pid) if supervisor else None
    if found and supervisor and found.start == supervisor.start:
        roots.add(found.pid)
    pids = (roots | descendants(processes, roots)) - {os.getpid()}
    return [processes[pid] for pid in pids if pid in processes]


def send(processes: Iterable[Process], number: signal.Signals) -> None:
    """Send a signal to processes whose pid was not reused. Skip those without permission (of another user)."""
    for process in processes:
        now = read(process.pid)
        if now and now.start == process.start and not now.zombie:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)


def living(processes: Iterable[Process]) -> list[Process]:
    """Return the processes that are not zombies."""
    return [process for process in processes if not process.zombie]


def has_children() -> bool:
    """Return True if this process has children, including zombies."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def has_dead_children() -> bool:
    """Return True if a child of this process is a zombie. It is cheap."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def end_descendants(grace: float, kill_within: float = 5.0) -> None:
    """Send SIGTERM to all processes below this one, and SIGKILL after `grace` seconds. Only for a dedicated process."""
    own = os.getpid()

    def below() -> list[Process]:
        if not has_children():
            return []  # reading all processes is slow
        processes = table()
        return living(processes[pid] for pid in descendants(processes, [own]))

    send(below(), signal.SIGTERM)
    deadline = time.monotonic() + grace
    while below() and time.monotonic() < deadline:
        time.sleep(_SCAN_INTERVAL)
    deadline = time.monotonic() + kill_within
    while (left := below()) and time.monotonic() < deadline:
        send(left, signal.SIGKILL)
        time.sleep(_SCAN_INTERVAL)


def kill(identity: str, supervisor: Process | None, within: float) -> bool:
    """Kill the processes of a run, repeatedly while it forks. Return True if none lives after `within` seconds."""
    deadline = time.monotonic() + within
    while left := living(of_run(identity, supervisor)):
        send(left, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(_SCAN_INTERVAL)
    return True


def result_of_fork(act: Callable[[], Any], within: float) -> Any:
    """Return the JSON value that `act` returns in a forked process; None if it raised, died, or took too long.

    The process has its own session, and ends with this one. It is killed after `within` seconds: if this process has
    other threads, one of them can hold a lock that `act` needs. Processes that it leaves behind are not waited for.
    """
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
    data = bytearray()
    os.set_blocking(reader, False)
    process = os.pidfd_open(pid)
    deadline = time.monotonic() + within
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
                sources = [each for each in sources if each != reader]
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


def reap(pids: Iterable[int]) -> None:
    """Reap zombies that no other code waits for."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def reap_children() -> None:
    """Reap every zombie below this process. Only for a process that waits for no child elsewhere."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def await_children(within: float) -> None:
    """Reap children as `reap_children` does until there are none, or for `within` seconds."""
    deadline = time.monotonic() + within
    reap_children()
    while has_children() and time.monotonic() < deadline:
        time.sleep(_MOMENT)
        reap_children()


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
