"""Exponential backoff with jitter."""

from __future__ import annotations

import random


class Backoff:
    """Delays that double from `first` to `longest` seconds, each shortened by up to half so that clients spread."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def next(self) -> float:
        """The delay to wait now."""
        delay, self._next = self._next, min(self._next * 2, self._longest)
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing

    def reset(self) -> None:
        """Begin with the shortest again."""
        self._next = self._first
