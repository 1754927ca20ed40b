"""How many CPUs this process may use.

Owns: the meeting of what the scheduler allows (affinity) and what the container is limited to (CPU quota of cgroup v1
or v2, https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files). Promises at least 1, and never raises:
what cannot be read limits nothing. Imports nothing of this package.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path


def usable(root: Path) -> int:
    """Return the number of CPUs, a part of one counted as one. `root` is the file system's root."""
    limit = min(_quotas(root), default=math.inf)
    return max(1, min(_schedulable(), math.ceil(limit))) if math.isfinite(limit) else _schedulable()


def _schedulable() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quotas(root: Path) -> Iterator[float]:
    """Yield each limit that holds for this process: its own group's and those of all groups around it."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            for folder in _around(root / "sys/fs/cgroup", group):
                yield from _ratio(*_read(folder / "cpu.max").split()[:2])
        elif "cpu" in controllers.split(","):
            for folder in _around(root / "sys/fs/cgroup/cpu", group):
                yield from _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _around(mount: Path, group: str) -> Iterator[Path]:
    """Yield the group's folder and its parents up to the mount; in a container the group may lie outside the mount."""
    folder = mount / group.strip("/")
    yield mount
    while folder != mount and mount in folder.parents:
        yield folder
        folder = folder.parent


def _ratio(quota: str = "", period: str = "") -> Iterator[float]:
    """Yield the quota in CPUs; nothing for `max`, -1 or what is no number."""
    quota, period = quota.strip(), period.strip()
    if quota.isdecimal() and period.isdecimal() and int(period) > 0 and int(quota) > 0:
        yield int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""  # no such limit on this system
