"""Whether a file is still what it was, without reading it.

Imports nothing heavy: both ends of a fork server need it.
"""

from __future__ import annotations

import os

Stamp = tuple[str, int, int, int]
"""A path, and its time of writing in nanoseconds, size and inode."""


def stamp(path: str) -> Stamp | None:
    """Return it; None if nothing is there."""
    try:
        status = os.stat(path)  # noqa: PTH116 - there are hundreds of them for each task
    except OSError:
        return None
    return path, status.st_mtime_ns, status.st_size, status.st_ino
