"""Waiting requests of one urgency, served round-robin by namespace. Pure; the clock is passed in.

A request is due once its rank has passed. Of all namespaces with a due request, the least recently served one goes
first. So many requests of one namespace do not delay another namespace. Without a due request the lowest rank goes
first. Within a namespace the lowest rank always goes first. Each operation costs O(log n).
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import NamedTuple

from runner.objects import ObjectKey
from runner.workqueue.request import Cause

_MOST_NAMESPACES = 4096
"""Namespaces whose last turn is remembered; the least recent ones count as never served."""


@dataclass(slots=True)
class Waiting:
    """A waiting key. `rank` is the time it was added plus the handicap of its reason."""

    cause: Cause
    rank: float
    since: float
    is_dead: bool = False
    """True once the key has another entry or was forgotten."""

    @property
    def is_background(self) -> bool:
        """True unless a user changed the object."""
        return self.cause.reason.is_background


class Precedence(NamedTuple):
    """Order of requests of one urgency; lower goes first."""

    is_early: bool
    """True until its rank has passed."""
    turn: int
    """Last turn of its namespace, or 0 if the request is early."""
    rank: float


class Turns:
    """Last turn of each namespace, for all kinds."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._serial = itertools.count(1)

    def take(self, namespace: str) -> None:
        """Note that a request of this namespace starts."""
        self._last.pop(namespace, None)
        self._last[namespace] = next(self._serial)
        if len(self._last) > _MOST_NAMESPACES:
            del self._last[next(iter(self._last))]

    def last(self, namespace: str) -> int:
        """Return the last turn of a namespace; 0 if there was none."""
        return self._last.get(namespace, 0)


class Line:
    """See the module."""

    def __init__(self, turns: Turns) -> None:
        """`turns` is shared with the lines of the same urgency of other kinds."""
        self._turns = turns
        self._requests: dict[str, list[tuple[float, int, ObjectKey, Waiting]]] = {}
        """Heap of the requests of each namespace."""
        self._early: list[tuple[Precedence, str]] = []
        self._due: list[tuple[Precedence, str]] = []
        self._places: dict[str, Precedence] = {}
        """Current place of each namespace; items of the two heaps with another one are outdated."""
        self._serial = itertools.count()

    def push(self, key: ObjectKey, entry: Waiting) -> None:
        """Add a request."""
        requests = self._requests.setdefault(key.namespace, [])
        heapq.heappush(requests, (entry.rank, next(self._serial), key, entry))
        place = self._places.get(key.namespace)
        if place is None or (place.is_early and entry.rank < place.rank):
            self._place(key.namespace, Precedence(is_early=True, turn=0, rank=entry.rank))

    def first(self, now: float) -> Precedence | None:
        """Return the precedence of the next request; None if there is none."""
        found = self._next(now)
        return None if found is None else found[0]

    def pop(self, now: float) -> tuple[ObjectKey, Waiting]:
        """Remove the next request; raise IndexError if there is none."""
        found = self._next(now)
        if found is None:
            raise IndexError("no request waits")
        _, namespace = found
        _, _, key, entry = heapq.heappop(self._requests[namespace])
        self._turns.take(namespace)
        return key, entry

    def _next(self, now: float) -> tuple[Precedence, str] | None:
        while self._early and self._early[0][0].rank <= now:
            self._refresh(heapq.heappop(self._early), now)
        for heap in (self._due, self._early):
            while heap:
                item = heapq.heappop(heap)
                if self._refresh(item, now):
                    heapq.heappush(heap, item)
                    return item
        return None

    def _refresh(self, item: tuple[Precedence, str], now: float) -> bool:
        """Return True if an item of a heap is current; otherwise add the current one."""
        place, namespace = item
        if self._places.get(namespace) != place:
            return False
        rank = self._lowest(namespace)
        if rank is None:
            del self._places[namespace], self._requests[namespace]
            return False
        is_early = rank > now
        current = Precedence(is_early, 0 if is_early else self._turns.last(namespace), rank)
        if current == place:
            return True
        self._place(namespace, current)
        return False

    def _place(self, namespace: str, place: Precedence) -> None:
        self._places[namespace] = place
        heapq.heappush(self._early if place.is_early else self._due, (place, namespace))

    def _lowest(self, namespace: str) -> float | None:
        """Return the lowest rank of a namespace's requests."""
        requests = self._requests[namespace]
        while requests and requests[0][3].is_dead:
            heapq.heappop(requests)
        return requests[0][0] if requests else None
