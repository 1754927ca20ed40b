"""Exponential backoff."""

from __future__ import annotations

import random
from dataclasses import dataclass

MAX_BACKOFF = 1800.0
"""Default maximum delay between two attempts, in seconds."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff: `delay` seconds after the first failure, multiplied by `factor` each time, at most `cap`.

    `jitter` is the part of each delay that is random, so that clients do not retry at the same time.
    """

    delay: float
    factor: float = 2.0
    cap: float = MAX_BACKOFF
    jitter: float = 0.0

    def after(self, failures: int) -> float:
        """Return the delay in seconds after a failure that `failures` consecutive failures preceded."""
        # The bound prevents an overflow; the delay reaches the cap long before.
        delay = min(self.delay * self.factor ** min(failures, 64), self.cap)
        return delay * random.uniform(1.0 - self.jitter, 1.0)  # noqa: S311 - spreads load, guards nothing


class JitteredBackoff:
    """Delays of a loop that retries: each is shortened by up to half, so that clients do not retry at the same time."""

    def __init__(self, first: float, longest: float) -> None:
        """`first` and `longest` are in seconds."""
        self._backoff = Backoff(first, cap=longest, jitter=0.5)
        self._failures = 0

    def next(self) -> float:
        """Count a failure and return the seconds to wait."""
        delay = self._backoff.after(self._failures)
        self._failures += 1
        return delay

    def reset(self) -> None:
        """Restart with the shortest delay."""
        self._failures = 0
