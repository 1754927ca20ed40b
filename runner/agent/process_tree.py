"""Processes below this one: search, end and reap.

Reads `/proc` (proc(5)). Without it, only direct children are known. If it cannot be read because file descriptors or
memory ran out, functions raise `OSError`: an empty result would mean that no process is left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Numbers of errors of exhausted resources that usually end by themselves."""
STUCK_ERROR = "Ansible did not continue after the kernel had killed a process of it, and was ended"
PROC = Path("/proc")
INTERVAL = 0.02
"""Seconds between two searches for processes that must end."""
_STUCK = 15.0
"""Seconds without CPU time after which a process that waits for a lock does not continue."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MOMENT = 0.001


class Process(NamedTuple):
    """State of a process in `/proc`. `start` (clock ticks since boot) distinguishes processes with the same pid."""

    pid: int
    parent: int
    session: int
    start: int
    zombie: bool
    used: tuple[bytes, bytes]
    """CPU time of the user and the system."""


def adopt_orphans(*, adopt: bool = True) -> None:
    """Make this process the parent of orphans among its descendants, or stop doing so (Linux only)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))


def signal_on_parent_death(number: signal.Signals) -> None:
    """Make the kernel send this process `number` when the thread that started it ends (Linux only)."""
    _prctl(_PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    import ctypes  # noqa: PLC0415 - a small Python in a pod can lack the module

    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def raise_shortage(error: OSError) -> None:
    """Raise an error unless the process that was read has ended, or is another user's."""
    if error.errno in SHORTAGES:
        raise error


def read(pid: int) -> Process | None:
    """Return the state of one process; None if it has ended."""
    try:
        text = (PROC / str(pid) / "stat").read_bytes()
    except OSError as error:
        raise_shortage(error)
        return None
    # The command can contain spaces and brackets; the fields after its last bracket are fixed (proc_pid_stat(5)).
    fields = text[text.rindex(b")") + 2 :].split()
    is_zombie = fields[0] in {b"Z", b"X"}
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), is_zombie, (fields[11], fields[12]))


def table() -> dict[int, Process]:
    """Return the states of all processes by pid."""
    try:
        names = [entry.name for entry in PROC.iterdir()]
    except OSError as error:
        raise_shortage(error)
        return {}
    processes = (read(int(name)) for name in names if name.isdigit())
    return {process.pid: process for process in processes if process}


def descendants(processes: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """Return the pids below `roots`, without `roots`."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    pids: set[int] = set()
    waiting = list(roots)
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in pids:
                pids.add(pid)
                waiting.append(pid)
    return pids


def below(pid: int) -> set[int]:
    """Return the pids below one process, including zombies; none if the kernel does not list children.

    It is cheaper than `table`. A process that starts or ends meanwhile can be missing.
    """
    pids: set[int] = set()
    waiting = [pid]
    while waiting:
        folder, threads = PROC / str(waiting.pop()) / "task", list[Path]()
        with contextlib.suppress(OSError):  # the process has ended
            threads = list(folder.iterdir())
        for thread in threads:
            with contextlib.suppress(OSError):  # the thread has ended
                fresh = {int(child) for child in (thread / "children").read_text(encoding="ascii").split()} - pids
                pids |= fresh
                waiting.extend(fresh)
    return pids


class StuckWatch:
    """Detects that Ansible will not continue after `kills`, the number of processes that the kernel killed, has grown.

    A worker of Ansible that is killed while it sends a result holds the lock of its queue for ever.
    """

    def __init__(self, kills: Callable[[], int]) -> None:
        self._kills, self._before = kills, kills()
        self._since = 0.0
        self._last: Process | None = None

    def is_stuck(self, pid: int) -> bool:
        """Return True if only one process below `pid` lives, and has waited for a lock for long. Call it repeatedly."""
        try:
            waiter = _lone_waiter(pid) if self._kills() > self._before else None
        except OSError:  # descriptors or memory ran out, so it is unknown
            waiter = None
        if waiter is None or waiter != self._last:
            self._since, self._last = time.monotonic(), waiter
        return waiter is not None and time.monotonic() - self._since >= _STUCK


def _lone_waiter(pid: int) -> Process | None:
    """Return the only living process below another one, if it waits for a lock."""
    alive = living(process for descendant in below(pid) if (process := read(descendant)) is not None)
    try:
        if len(alive) == 1 and b"futex" in (PROC / str(alive[0].pid) / "wchan").read_bytes():
            return alive[0]
    except OSError as error:
        raise_shortage(error)
    return None


def living(processes: Iterable[Process]) -> list[Process]:
    """Return the processes that are not zombies."""
    return [process for process in processes if not process.zombie]


def send(processes: Iterable[Process], number: signal.Signals) -> set[int]:
    """Send a signal to processes whose pid was not reused. Return the pids of those of another user."""
    refused = set()
    for process in processes:
        now = read(process.pid)
        if now and now.start == process.start and not now.zombie:
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                continue
            except PermissionError:
                refused.add(process.pid)
    return refused


def has_children() -> bool:
    """Return True if this process has children, including zombies."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def living_below() -> list[Process]:
    """Return the living processes below this one."""
    if not has_children():
        return []  # reading all processes is slow
    # Twice: a process whose parent ends while the table is read can seem to be below nobody.
    for processes in (table() for _ in range(2)):
        if alive := living(processes[pid] for pid in descendants(processes, [os.getpid()])):
            return alive
    return []


def ending(grace: float, kill_within: float = 5.0) -> Iterator[None]:
    """End the processes below this one: SIGTERM, and SIGKILL after `grace` seconds. Only for a dedicated process.

    Yields until they have ended, so that the caller waits; and for `kill_within` seconds after the first SIGKILL at
    most. Those of other users remain.
    """
    kill_at = time.monotonic() + grace
    killed_at: float | None = None
    notified: set[int] = set()
    foreign: set[int] = set()
    while processes := [process for process in living_below() if process.pid not in foreign]:
        now = time.monotonic()
        if killed_at is not None and now >= killed_at + kill_within:
            return
        if now < kill_at:
            foreign |= send((process for process in processes if process.pid not in notified), signal.SIGTERM)
            notified |= {process.pid for process in processes}
        else:
            killed_at = killed_at or now
            foreign |= send(processes, signal.SIGKILL)
        yield


def end_descendants(grace: float) -> None:
    """Do and wait for what `ending` does."""
    for _ in ending(grace):
        time.sleep(INTERVAL)


def reaped() -> Iterator[tuple[int, int]]:
    """Reap every zombie below this process; yield pids and statuses. Only if no other code waits for a child."""
    with contextlib.suppress(ChildProcessError):  # there is no child
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended


def reap_children() -> None:
    """Reap every zombie below this process. Only if no other code waits for a child."""
    for _ in reaped():
        pass


def await_children(within: float) -> None:
    """Reap children as `reap_children` does until there are none, or for `within` seconds."""
    deadline = time.monotonic() + within
    reap_children()
    while has_children() and time.monotonic() < deadline:
        time.sleep(_MOMENT)
        reap_children()
