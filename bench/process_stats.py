"""What `/proc` (proc(5)) says of one process, its children left out."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

_MIB = 1024.0
"""Kibibytes, which `/proc` counts in."""


def resident(pid: int) -> float:
    """Return the memory that is mapped and present, in MiB: each shared page counts whole."""
    return _kibibytes(Path(f"/proc/{pid}/smaps_rollup"), "Rss") / _MIB


def proportional(pid: int) -> float:
    """Return the same, with a page that several processes share counted in parts."""
    return _kibibytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss") / _MIB


def forget_peak(pid: int) -> None:
    """Let `peak` begin anew, from what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def peak(pid: int) -> float:
    """Return the most memory that was resident at any time since `forget_peak`, in MiB; the kernel itself notes it."""
    return _kibibytes(Path(f"/proc/{pid}/status"), "VmHWM") / _MIB


def cpu_seconds(pid: int) -> float:
    """Return how long the threads that live now have run so far; the kernel counts nanoseconds here."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_bytes().split()[0]) for thread in threads) / 1e9


async def cpu_percent(pid: int, seconds: float) -> float:
    """Return the share of a core that the threads of a process use from now on, in percent."""
    began, before = time.perf_counter(), cpu_seconds(pid)
    await asyncio.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.perf_counter() - began) * 100


def cpu_seconds_of_tree(pid: int) -> float:
    """Return how long a process and all below it ran so far, those that ended and were waited for included."""
    pids = [pid, *_below(pid)]
    ticks = 0
    for each in pids:
        # The command may hold spaces and brackets; what follows its last bracket is fixed (proc_pid_stat(5)).
        text = Path(f"/proc/{each}/stat").read_bytes()
        ticks += sum(int(field) for field in text[text.rindex(b")") + 2 :].split()[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def proportional_of_tree(pid: int) -> float:
    """Return the proportional memory of a process and all below it, in MiB."""
    return sum(map(proportional, [pid, *_below(pid)]))


def open_files(pid: int) -> int:
    """Return how many descriptors a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def below(pid: int) -> int:
    """Return how many processes there are below one."""
    return len(_below(pid))


def tree(pid: int) -> list[int]:
    """Return a process and all below it, without those that end meanwhile."""
    return [pid, *_below(pid)]


def _below(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children = [int(child) for child in (thread / "children").read_text(encoding="ascii").split()]
            found += [each for child in children for each in (child, *_below(child))]
    except (FileNotFoundError, ProcessLookupError):
        return found  # it has ended
    return found


def _kibibytes(file: Path, name: str) -> int:
    for line in file.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise ValueError(f"{file} has no {name}: figures of memory need Linux 4.14 or later")
