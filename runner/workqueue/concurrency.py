"""Concurrency limit: how many requests run at once, and how many workers are reserved for users' changes.

Background work never takes a reserved worker, so that a change starts at once. With one worker per kind there is no
reserved capacity. There, and wherever all workers are busy, background work takes at most every second start while a
change waits, so that neither starves the other. While runs wait for something else than a CPU, a kind may have more
runs than workers. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_WORKERS_PER_RESERVED = 4
"""One of so many workers is reserved, and at least one if there are two."""
_IDLE, _BUSY = 0.5, 0.75
"""Shares of a period in which a process waited for a CPU: below the first, each kind may have one more run; above the
second, one less."""


@dataclass(slots=True)
class Surplus:
    """How many more runs each kind may have than it has workers, because the CPU is idle."""

    most: int = 0
    now: int = 0

    def adapt(self, stalled: float) -> None:
        """Adapt it to the share of a period, in which requests waited, in which a process waited for a CPU."""
        if stalled < _IDLE:
            self.now = min(self.now + 1, self.most)
        elif stalled > _BUSY:
            self.now = max(self.now - 1, 0)


@dataclass(slots=True)
class ConcurrencyLimit:
    """A number of workers, and how many of them background work may use."""

    workers: int
    background: int
    surplus: Surplus = field(default_factory=Surplus)
    active: int = 0
    active_background: int = 0
    _after_background: bool = False

    @classmethod
    def of(cls, workers: int, surplus: Surplus | None = None) -> ConcurrencyLimit:
        """Divide `workers`, at least one. `surplus` comes on top; None: nothing does."""
        reserved = max(workers // _WORKERS_PER_RESERVED, 1) if workers > 1 else 0
        return cls(workers, workers - reserved, surplus or Surplus())

    @property
    def most(self) -> int:
        """How many requests may run at once now."""
        return self.workers + self.surplus.now

    def admits(self, *, background: bool, change_waits: bool) -> bool:
        """Return whether one more request may start. `change_waits`: a user's change could start as well."""
        if self.active >= self.most:
            return False
        if not background:
            return True
        return self.active_background < self.background + self.surplus.now and not (
            change_waits and self._after_background
        )

    def acquire(self, *, background: bool) -> None:
        """Count a request that starts."""
        self.active += 1
        self.active_background += background
        self._after_background = background

    def release(self, *, background: bool) -> None:
        """Count a request that ends."""
        self.active -= 1
        self.active_background -= background
