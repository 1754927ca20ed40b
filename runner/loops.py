"""Slows down a dependent and an owner that wake each other in a circle. Pure; the clock is passed in.

A role that writes a value which somebody else puts back (a webhook's default, an autoscaler's count, a formatted date)
would run for ever, as fast as it can. Nobody can tell such a circle from a person at work by one change, so the first
few go through at once; then each waits longer, up to minutes, until it has been quiet for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from runner.drift import News
from runner.objects import GVK

_AT_ONCE = 10
"""So many wakes of an owner by one of its dependents go through unhindered."""
_FIRST_DELAY = 2.0
_LONGEST_DELAY = 300.0
_QUIET = 300.0
"""Seconds without a wake after which counting begins anew."""
_MOST = 4096


@dataclass(slots=True)
class _Pair:
    wakes: int
    last: float


class Loops:
    """How often each dependent has woken each owner of late."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[tuple[object, ...], _Pair] = OrderedDict()

    def delay(self, kind: GVK, news: News, now: float) -> float:
        """Count a wake; return the seconds that it has to wait. A deletion counts like a change."""
        name = (news.target, kind, news.key)
        pair = self._pairs.pop(name, None)
        if pair is None or now - pair.last > _QUIET:
            pair = _Pair(0, now)
        pair.wakes, pair.last = pair.wakes + 1, now
        self._pairs[name] = pair
        if len(self._pairs) > _MOST:
            self._pairs.popitem(last=False)
        excess = pair.wakes - _AT_ONCE
        return min(_FIRST_DELAY * 2.0 ** min(excess - 1, 20), _LONGEST_DELAY) if excess > 0 else 0.0
