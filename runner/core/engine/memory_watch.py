"""Limits of a run's memory. Runs in the supervisor and watches the processes below it.

The operator's limit ends the run. The kernel's limit can leave it stuck, see `StuckWatch`.

Memory that processes share is divided among them (PSS), so that forks are not counted twice. Reading it is slow, so it
is read only if the run could exceed its limit. Reads proc_pid_smaps(5); without it no run exceeds its limit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from runner.agent import machine, process_tree
from runner.agent.process_tree import StuckWatch

_EVERY = 0.5
_ROOT = Path("/")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


class MemoryWatch:
    """Watch that calls `end` once, with the bytes in use, if the processes below this one use more than `limit`.

    It calls `end` with 0 if they are stuck after `kills`, the number of processes that the kernel killed, has grown.
    """

    def __init__(
        self, limit: int, end: Callable[[int], None], kills: Callable[[], int] = lambda: machine.oom_kills(_ROOT)
    ) -> None:
        self._limit = limit
        self._end = end
        self._kills = kills

    def start(self) -> None:
        """Start the watch."""
        threading.Thread(target=self._watch, name="memory", daemon=True).start()

    def _watch(self) -> None:
        pause, stuck = threading.Event(), StuckWatch(self._kills)
        while not pause.wait(_EVERY):
            used = in_use(process_tree.below(os.getpid()), self._limit) if self._limit else 0
            if used > self._limit or stuck.is_stuck(os.getpid()):
                self._end(used if used > self._limit else 0)
                return


def in_use(pids: Iterable[int], limit: int) -> int:
    """Return the bytes that these processes use together; an upper bound if it is at most `limit`."""
    known = {pid: _resident(pid) for pid in pids}
    if sum(known.values()) <= limit:
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
