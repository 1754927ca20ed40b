"""Limit of a run's memory. Runs in the supervisor and measures the processes below it.

Memory that processes share is divided among them (PSS), so that forks are not counted twice. Reading it is slow, so it
is read only if the run could exceed its limit. Reads proc_pid_smaps(5); without it no run exceeds its limit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from runner.engine import processes

_EVERY = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


class MemoryWatch:
    """Watch that calls `end` once, with the bytes in use, if the processes below this one use more than `limit`."""

    def __init__(self, limit: int, end: Callable[[int], None]) -> None:
        self._limit = limit
        self._end = end

    def start(self) -> None:
        """Start the watch."""
        if self._limit:
            threading.Thread(target=self._watch, name="memory", daemon=True).start()

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(_EVERY):
            used = in_use(processes.below(os.getpid()), self._limit)
            if used > self._limit:
                self._end(used)
                return


def in_use(pids: Iterable[int], worth_asking: int) -> int:
    """Return the bytes that these processes use together; an upper bound if it is at most `worth_asking`."""
    known = {pid: _resident(pid) for pid in pids}
    if sum(known.values()) <= worth_asking:
        return sum(known.values())
    return sum(_proportional(pid, resident) for pid, resident in known.items())


def _resident(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0  # the process has ended


def _proportional(pid: int, resident: int) -> int:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_bytes().splitlines()
    except PermissionError:
        return resident  # a process of another user
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:")), resident)
