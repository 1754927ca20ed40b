"""A process that may open no more files: this one, for a moment."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def no_descriptor_left(spare: int = 0) -> Iterator[None]:
    """Lower the limit of open files so that only `spare` more can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(each.name) for each in list(Path("/proc/self/fd").iterdir()) if each.is_symlink()}
    free = (number for number in range(soft) if number not in used)  # the listing itself took one, and gave it back
    limit = [next(free) for _ in range(spare + 1)][-1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
