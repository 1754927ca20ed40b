"""CPUs and memory that this process may use: those of the machine, or the limits of its container.

Reads CPU affinity, proc_meminfo(5), and the limits and counters of cgroup v1 and v2
(https://docs.kernel.org/admin-guide/cgroup-v2.html). Never raises: an unreadable limit is ignored.
`root` is the root of the file system.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_UNLIMITED = sys.maxsize
_LARGEST_LIMIT = 1 << 60
"""Cgroup v1 has no word for an unlimited value, but a number near 2**63."""


def usable_cpus(root: Path) -> int:
    """Return the number of CPUs, at least 1. A fraction of a CPU counts as one."""
    schedulable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([schedulable, *(math.ceil(quota) for quota in _cpu_quotas(root))]))


def total_memory(root: Path) -> int:
    """Return the size in bytes of the memory that this process shares with its container."""
    return min([_meminfo(root, "MemTotal"), *(limit for limit, _ in _memory_limits(root))])


def memory_limit(root: Path) -> int:
    """Return the memory limit of the container in bytes; 0 is unlimited."""
    limit = min((limit for limit, _ in _memory_limits(root)), default=_UNLIMITED)
    return limit if limit < _LARGEST_LIMIT else 0


def free_memory(root: Path) -> int:
    """Return the number of bytes of that memory that are free."""
    return max(0, min([_meminfo(root, "MemAvailable"), *(limit - used for limit, used in _memory_limits(root))]))


def oom_kills(root: Path) -> int:
    """Return how many processes of this container the kernel has killed because memory ran out."""
    # The own cgroup first: its parents also count processes of other containers. In a container, it is the mount.
    first, *others = [*_groups(root, "memory"), (root, True)]
    for folder, is_v2 in [*others, first]:
        for line in _read(folder / ("memory.events" if is_v2 else "memory.oom_control")).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdecimal():
                return int(count)
    return 0


def _meminfo(root: Path, name: str) -> int:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith(f"{name}:"):
            return _number(line.split()[1]) * 1024
    return _UNLIMITED


def _cpu_quotas(root: Path) -> Iterator[float]:
    for folder, is_v2 in _groups(root, "cpu"):
        names = ("cpu.max",) if is_v2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        values = [word for name in names for word in _read(folder / name).split()]
        quota, period = (int(word) if word.isdecimal() else 0 for word in [*values, "", ""][:2])
        if quota > 0 and period > 0:
            yield quota / period


def _memory_limits(root: Path) -> Iterator[tuple[int, int]]:
    """Yield limit and usage in bytes."""
    for folder, is_v2 in _groups(root, "memory"):
        limit, used = ("memory.max", "memory.current") if is_v2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        yield _number(_read(folder / limit)), _number(_read(folder / used) or "0")


def _groups(root: Path, controller: str) -> Iterator[tuple[Path, bool]]:
    """Yield the folder of this process's cgroup and of each parent, and whether it is cgroup v2.

    In a container, the cgroup of the process can be outside the mount.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / (controller if controllers else "")
        yield mount, not controllers
        folder = mount / group.strip("/")
        while folder != mount and mount in folder.parents:
            yield folder, not controllers
            folder = folder.parent


def _number(text: str) -> int:
    return int(text) if text.strip().isdecimal() else _UNLIMITED


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""  # this system has no such limit
