"""Aggregation and rate limits of Events.

Repetitions within ten minutes become one Event with a count. The first repetition is written at once, later ones at
most every 30 seconds. Each object has a token bucket for new Events, and all objects share one, of which a part is
reserved for warnings. Without a token a repetition waits, and a new Event is dropped.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from runner.base.events.bodies import ApiEvent

_AGAIN = 600.0
"""Seconds after which a repetition becomes a new Event."""
_EVERY = 30.0
"""Seconds between two writes of a repeated Event."""
_MOST = 4096
"""Limit of series, and of objects, in memory."""
_OF_ALL, _OF_OBJECT = (100, 2), (30, 1 / 20)
"""New Events at once and then in a second: of all objects, and of each one."""


@dataclass(slots=True)
class EventSeries:
    """An Event and its repetitions. Times are of the clock that is passed in."""

    what: ApiEvent
    first: float
    last: float
    count: int = 1
    object_name: str = ""
    """Name of the Event in the API; empty until it is written."""
    due: float | None = None
    """Time of the next write; None: all is written."""


class TokenBucket:
    """Token bucket: a burst of `most`, refilled by `refill` tokens a second."""

    def __init__(self, most: float, refill: float, now: float) -> None:
        self._most, self._refill = most, refill
        self._left, self._at = most, now

    def take(self, now: float, reserve: float = 0.0) -> bool:
        """Take a token, unless only `reserve` tokens are left."""
        self._left = min(self._left + (now - self._at) * self._refill, self._most)
        self._at = now
        if self._left < reserve + 1:
            return False
        self._left -= 1
        return True


class EventAggregator:
    """Counts repetitions, and returns the Events to write."""

    def __init__(self, now: float) -> None:
        self._series: OrderedDict[tuple[str, ...], EventSeries] = OrderedDict()
        self._objects: OrderedDict[str, TokenBucket] = OrderedDict()
        self._all = TokenBucket(*_OF_ALL, now)
        self._due: list[tuple[float, int, EventSeries]] = []
        self._number = itertools.count()

    def take(self, what: ApiEvent, now: float) -> bool:
        """Count an Event; return False if it is dropped."""
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
        """Drop a series whose Event is gone from the API, or could not be written."""
        if self._series.get(series.what.name) is series:
            del self._series[series.what.name]

    def next(self) -> float | None:
        """Return the time of the next write; None if there is none."""
        return self._due[0][0] if self._due else None

    def due(self, now: float) -> Iterator[EventSeries]:
        """Yield the series to write by now, in the order of their first Event."""
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
        budget = self._objects.pop(uid, None) or TokenBucket(*_OF_OBJECT, now)
        self._objects[uid] = budget
        if len(self._objects) > _MOST:
            self._objects.popitem(last=False)
        return budget
