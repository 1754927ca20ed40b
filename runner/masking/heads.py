"""Sorted heads of forms: which of them begin at a position of a text. Pure.

The time of a lookup depends on the logarithm of the number of heads, even if all of them share a prefix. One thread can
look up while another adds: a lookup reads one immutable tuple.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator


class _Sorted:
    """Heads in order."""

    __slots__ = ("_prefixes", "heads")

    def __init__(self, heads: list[bytes]) -> None:
        self.heads = heads
        self._prefixes: list[int] | None = None

    @property
    def prefixes(self) -> list[int]:
        """For each head the position of the longest other head that is a prefix of it, or -1."""
        if self._prefixes is None:
            self._prefixes = _prefixes(self.heads)
        return self._prefixes


class Heads:
    """A set of heads of at most `longest` bytes."""

    __slots__ = ("_longest", "_parts")

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._parts: tuple[_Sorted, ...] = ()
        """Each at least twice as large as the next, so that an addition moves few heads on average."""

    def add(self, head: bytes) -> None:
        """Add a head that is not in the set yet."""
        parts = list(self._parts)
        heads = [head]
        while parts and len(parts[-1].heads) <= len(heads):
            heads = [*parts.pop().heads, *heads]
        heads.sort()
        self._parts = (*parts, _Sorted(heads))

    def at(self, text: bytes, start: int) -> Iterator[bytes]:
        """Yield the heads that begin at a position of a text."""
        beginning = text[start : start + self._longest]
        for part in self._parts:
            heads, prefixes = part.heads, part.prefixes
            # Every head that is a prefix of `beginning` is also a prefix of the last head that is not greater.
            position = bisect_right(heads, beginning) - 1
            while position >= 0 and not beginning.startswith(heads[position]):
                position = prefixes[position]
            while position >= 0:
                yield heads[position]
                position = prefixes[position]


def _prefixes(heads: list[bytes]) -> list[int]:
    found: list[int] = []
    open_: list[int] = []
    for position, head in enumerate(heads):
        while open_ and not head.startswith(heads[open_[-1]]):
            open_.pop()
        found.append(open_[-1] if open_ else -1)
        open_.append(position)
    return found
