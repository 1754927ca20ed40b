"""Detection of changed files without reading them.

Imports nothing heavy, because both sides of a fork server need it.
"""

from __future__ import annotations

import os
import time
from typing import TypeGuard

_SETTLED = 2_000_000_000
"""Nanoseconds: the resolution of some file systems is that coarse."""

Stamp = tuple[str, int, int, int]
"""Path, modification time in nanoseconds, size and inode."""


def stamp(path: str) -> Stamp | None:
    """Return the stamp of a path; None if it does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116 - there are hundreds of them for each task
    except OSError:
        return None
    return path, status.st_mtime_ns, status.st_size, status.st_ino


def is_settled(now: Stamp | None) -> TypeGuard[Stamp]:
    """Return True if a path exists, and any further change of it would change its stamp."""
    return now is not None and time.time_ns() - now[1] > _SETTLED
