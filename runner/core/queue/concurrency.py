"""Concurrency limit: how many requests run at once, and how many workers are reserved for users' changes.

Background work never takes a reserved worker, so that a change starts at once. With one worker per kind there is no
reserved capacity. There, and wherever all workers are busy, background work takes at most every second start while a
change waits, so that neither starves the other. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

_WORKERS_PER_RESERVED = 4
"""One of so many workers is reserved, and at least one if there are two."""


@dataclass(slots=True)
class ConcurrencyLimit:
    """A number of workers, and how many of them background work may use."""

    workers: int
    background: int
    active: int = 0
    active_background: int = 0
    _after_background: bool = False

    @classmethod
    def of(cls, workers: int) -> ConcurrencyLimit:
        """Divide `workers`, at least one."""
        reserved = max(workers // _WORKERS_PER_RESERVED, 1) if workers > 1 else 0
        return cls(workers, workers - reserved)

    def admits(self, *, background: bool, change_waits: bool) -> bool:
        """Return whether one more request may start. `change_waits`: a user's change could start as well."""
        if self.active >= self.workers:
            return False
        if not background:
            return True
        return self.active_background < self.background and not (change_waits and self._after_background)

    def acquire(self, *, background: bool) -> None:
        """Count a request that starts."""
        self.active += 1
        self.active_background += background
        self._after_background = background

    def release(self, *, background: bool) -> None:
        """Count a request that ends."""
        self.active -= 1
        self.active_background -= background
