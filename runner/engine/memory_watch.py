"""Ends a run that uses too much memory. For the supervisor: it looks at what is below its own process.

What processes share is shared out between them (PSS), so that forks are not counted twice. That is slow to ask for, so
it is asked only of runs that could be over their limit at all. Reads proc_pid_smaps(5); where there is none, no run is
over its limit.
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
    """Calls `end` once, with the bytes in use, when everything below this process uses more than `limit`."""

    def __init__(self, limit: int, end: Callable[[int], None]) -> None:
        self._limit = limit
        self._end = end

    def start(self) -> None:
        """Watch from now on."""
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
    """Return the bytes that these processes use together; no less than that, where it is not worth asking exactly."""
    known = {pid: _resident(pid) for pid in pids}
    if sum(known.values()) <= worth_asking:
        return sum(known.values())
    return sum(_proportional(pid, resident) for pid, resident in known.items())


def _resident(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0  # it has ended


def _proportional(pid: int, resident: int) -> int:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_bytes().splitlines()
    except PermissionError:
        return resident  # of another user
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:")), resident)
