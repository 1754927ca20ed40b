"""Which events are written, and when: the same is counted, trouble with many has a budget. Pure, but for its state.

What happens again within ten minutes becomes one event with a count. The first repetition is told at once, later ones
at most every half minute, with all that was counted. Every object has a budget for new events, and all together have
one, of which a part is kept for warnings. A repetition that finds no budget waits, and is not lost; a
new event is dropped.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from runner.events.bodies import ApiEvent

_AGAIN = 600.0
"""Seconds after which the same is told anew."""
_EVERY = 30.0
"""Seconds between two writes of what repeats itself."""
_MOST = 4096
"""Series, and objects, that are remembered."""


@dataclass(slots=True)
class EventSeries:
    """What happened once, or again and again. Times are of the clock that is passed in."""

    what: ApiEvent
    first: float
    last: float
    count: int = 1
    object_name: str = ""
    """Of the event in the API; empty while it was not written."""
    due: float | None = None
    """When the next write is to be; None: all is written."""


class TokenBucket:
    """So many at once, and so many a second."""

    def __init__(self, most: float, refill: float, now: float) -> None:
        self._most, self._refill = most, refill
        self._left, self._at = most, now

    def take(self, now: float, reserve: float = 0.0) -> bool:
        """Take one, if one is left beside the reserve."""
        self._left = min(self._left + (now - self._at) * self._refill, self._most)
        self._at = now
        if self._left < reserve + 1:
            return False
        self._left -= 1
        return True


class EventAggregator:
    """What has been told, and what is to be written."""

    def __init__(self, now: float) -> None:
        self._series: OrderedDict[tuple[str, ...], EventSeries] = OrderedDict()
        self._objects: OrderedDict[str, TokenBucket] = OrderedDict()
        self._all = TokenBucket(100, 2, now)
        self._due: list[tuple[float, int, EventSeries]] = []
        self._number = itertools.count()

    def take(self, what: ApiEvent, now: float) -> bool:
        """Note what happened; False when it is dropped."""
        series = self._series.get(what.name)
        if series is not None and now - series.last < _AGAIN:
            series.count += 1
            series.last = now
            if series.due is None:
                self._plan(series, now if series.count == 2 else now + _EVERY)  # noqa: PLR2004 - the first repetition
            return True
        if not self._of(what.regarding.uid, now).take(now) or not self._affords(what, now):
            return False
        series = self._series[what.name] = EventSeries(what, now, now)
        self._series.move_to_end(what.name)
        if len(self._series) > _MOST:
            self._series.popitem(last=False)
        self._plan(series, now)
        return True

    def forget(self, series: EventSeries) -> None:
        """An event is gone from the API, or could not be written: the next one begins anew."""
        if self._series.get(series.what.name) is series:
            del self._series[series.what.name]

    def next(self) -> float | None:
        """When something is to be written; None: nothing is."""
        return self._due[0][0] if self._due else None

    def due(self, now: float) -> Iterator[EventSeries]:
        """Yield what is to be written by now, in the order in which it happened first."""
        while self._due and self._due[0][0] <= now:
            series = heapq.heappop(self._due)[-1]
            if series.object_name and not self._affords(series.what, now):
                self._plan(series, now + _EVERY)
                continue
            series.due = None
            yield series

    def _plan(self, series: EventSeries, when: float) -> None:
        series.due = when
        heapq.heappush(self._due, (when, next(self._number), series))

    def _affords(self, what: ApiEvent, now: float) -> bool:
        return self._all.take(now, reserve=0 if what.type == "Warning" else 25)

    def _of(self, uid: str, now: float) -> TokenBucket:
        budget = self._objects.pop(uid, None) or TokenBucket(30, 1 / 20, now)
        self._objects[uid] = budget
        if len(self._objects) > _MOST:
            self._objects.popitem(last=False)
        return budget
