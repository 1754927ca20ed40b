"""Locks between processes: an exclusive flock on a file, released when its process exits."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL = 0.05


class FileLock:
    """A lock file, which is never deleted and contains the process id of the lock's holder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, patience: float = 0.0) -> bool:
        """Acquire the lock within `patience` seconds; return whether it was acquired."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        deadline = time.monotonic() + patience
        while not _try(descriptor):
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return False
            time.sleep(_POLL)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def holder(self) -> int | None:
        """Return the process id of the holder, None if the lock is free, 0 if the id is not written yet.

        For a moment after the lock was acquired, the id can be that of an earlier holder which was killed.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            if _try(descriptor, fcntl.LOCK_SH):  # shared: two callers of this method are no holders to each other
                return None
            content = os.read(descriptor, 20).strip()
        finally:
            os.close(descriptor)
        return int(content) if content else 0


def _try(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(path: Path, waiting: Callable[[], None], remind: float = 30.0) -> Iterator[None]:
    """Hold the lock; while another process holds it, `waiting` is called at first and every `remind` seconds."""
    lock, patience = FileLock(path), 0.0
    while not lock.acquire(patience):
        waiting()
        patience = remind
    try:
        yield
    finally:
        lock.release()
