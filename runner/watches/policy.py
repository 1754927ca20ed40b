"""Limits of a watch's runs (timeout, cancellation, retries, finalizer), and exponential backoff.

Imports nothing of this package.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

MAX_BACKOFF = 1800.0
"""Seconds; the longest wait between two attempts, where nothing else was said."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff: `delay` seconds after the first failure, then each time `factor` as long, at most `cap`."""

    delay: float
    factor: float = 2.0
    cap: float = MAX_BACKOFF

    def after(self, failures: int) -> float:
        """Return the seconds to wait when `failures` attempts in a row had failed before this one."""
        # A bound on the exponent keeps the power from overflowing; any sensible cap is reached long before.
        return min(self.delay * self.factor ** min(failures, 64), self.cap)


class JitteredBackoff:
    """Delays of a loop that retries: each is shortened by up to half, so that clients do not retry at the same time."""

    def __init__(self, first: float, longest: float) -> None:
        """`first` and `longest` are in seconds."""
        self._backoff = Backoff(first, cap=longest)
        self._failures = 0

    def next(self) -> float:
        """Count a failure and return the seconds to wait."""
        delay = self._backoff.after(self._failures)
        self._failures += 1
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing

    def reset(self) -> None:
        """Restart with the shortest delay."""
        self._failures = 0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How failed runs are repeated."""

    backoff: Backoff
    attempts: int
    """Failed runs in a row after which the object is left alone until it changes; 0: no limit."""


@dataclass(frozen=True, slots=True)
class FinalizerLimit:
    """How long a finalizer is tried, and what comes then."""

    attempts: int
    """Failed runs in a row; 0: no limit."""
    time: float | None
    """Seconds since the deletion was asked for; None: no limit."""
    release: bool
    """Whether the object is let go then; else it is kept, and tried again when it changes."""


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """All of it, for the runs of one watch."""

    timeout: float | None
    """Seconds; None: the flag's value; 0: no limit."""
    change_cancels: bool
    """Whether a newer spec ends a run that works on an older one."""
    deletion_cancels: bool
    """Whether a deletion ends a run that goes on, so that the finalizer need not wait for it."""
    retry: RetryPolicy


DEFAULT = RunPolicy(
    timeout=None,
    change_cancels=False,
    deletion_cancels=False,
    retry=RetryPolicy(Backoff(1.0), attempts=0),
)
"""What holds for a watch that says nothing."""
