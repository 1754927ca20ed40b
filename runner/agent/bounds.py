"""Bounds of JSON from outside, checked before it is parsed. Pure.

Rule: input from outside is bounded before it costs. A value of two bytes needs up to two hundred bytes of memory.
"""

from __future__ import annotations

MOST_VALUES = 250_000
"""Values and keys of one event. An agent sends an event with more, or a longer one, without its result."""
LONGEST_EVENT = 16 * 1024 * 1024
"""Bytes of one event."""
_QUOTES = 4
"""Quotes for each value with a key: a text that has more is no JSON."""


def exceeds(text: bytes, most: int) -> bool:
    """Return True if JSON has more than `most` values. It needs a fraction of the time and memory of parsing."""
    if _marks(text) < most:
        return False
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > _QUOTES * most:
        return True
    return sum(map(_marks, bare.split(b'"')[::2])) >= most


def _marks(text: bytes) -> int:
    """Count what precedes each value but the first, and each map or list."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")
