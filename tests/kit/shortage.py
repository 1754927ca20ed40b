"""A process that may open no more files for a moment: this one, or a child."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def no_descriptor_left(spare: int = 0, pid: int = 0) -> Iterator[None]:
    """Lower the limit of open files of a process (0: this one) so that only `spare` more can be opened."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = {int(each.name) for each in list(Path(f"/proc/{pid or 'self'}/fd").iterdir()) if each.is_symlink()}
    free = (number for number in range(soft) if number not in used)  # the listing itself took one, and gave it back
    limit = [next(free) for _ in range(spare + 1)][-1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
