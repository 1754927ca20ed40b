"""How much memory there is and how much is left: the machine's, or the container's where it has a limit.

Owns the meeting of proc_meminfo(5) and the limits of cgroup v1 and v2
(https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files). Promises never to raise: what cannot be
read limits nothing. Imports nothing of this package.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

_UNLIMITED = sys.maxsize


def total(root: Path) -> int:
    """Return the bytes that this process and those around it may use together. `root` is the file system's root."""
    return min([_meminfo(root, "MemTotal"), *(limit for limit, _ in _groups(root))])


def free(root: Path) -> int:
    """Return the bytes that may still be used."""
    return max(0, min([_meminfo(root, "MemAvailable"), *(limit - used for limit, used in _groups(root))]))


def _meminfo(root: Path, name: str) -> int:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith(f"{name}:"):
            return _number(line.split()[1]) * 1024
    return _UNLIMITED


def _groups(root: Path) -> Iterator[tuple[int, int]]:
    """Yield limit and use of this process's own group and of all groups around it."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            mount, limit, used = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            mount, limit, used = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        for folder in _around(mount, group):
            yield _number(_read(folder / limit)), _number(_read(folder / used) or "0")


def _around(mount: Path, group: str) -> Iterator[Path]:
    """Yield the group's folder and its parents up to the mount; in a container the group may lie outside the mount."""
    folder = mount / group.strip("/")
    yield mount
    while folder != mount and mount in folder.parents:
        yield folder
        folder = folder.parent


def _number(text: str) -> int:
    return int(text) if text.strip().isdecimal() else _UNLIMITED


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""  # no such limit on this system
