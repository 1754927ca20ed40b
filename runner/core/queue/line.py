"""Requests of one urgency that wait, with turns of namespaces, and the limit of those that run. Pure.

The clock is passed in.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import NamedTuple

from runner.core.queue.reasons import Cause
from runner.values.objects import ObjectKey

_WORKERS_PER_RESERVED = 4
"""One of so many workers is reserved, and at least one if there are two."""


@dataclass(slots=True)
class ConcurrencyLimit:
    """A number of workers, and how many of them background work may use; the rest is reserved for changes of users.

    Background work never takes a reserved worker, so that a change starts at once. With one worker per kind there is no
    reserved capacity. There, and wherever all workers are busy, background work takes at most every second start while
    a change waits, so that neither starves the other.
    """

    workers: int
    background: int
    active: int = 0
    active_background: int = 0
    _after_background: bool = False

    @classmethod
    def of(cls, workers: int) -> ConcurrencyLimit:
        """Divide `workers`, at least one."""
        reserved = max(workers // _WORKERS_PER_RESERVED, 1) if workers > 1 else 0
        return cls(workers, workers - reserved)

    def admits(self, *, background: bool, change_waits: bool) -> bool:
        """Return whether one more request may start. `change_waits`: a user's change could start as well."""
        if self.active >= self.workers:
            return False
        if not background:
            return True
        return self.active_background < self.background and not (change_waits and self._after_background)

    def acquire(self, *, background: bool) -> None:
        """Count a request that starts."""
        self.active += 1
        self.active_background += background
        self._after_background = background

    def release(self, *, background: bool) -> None:
        """Count a request that ends."""
        self.active -= 1
        self.active_background -= background


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


class _Ranked(NamedTuple):
    """A request in a heap."""

    rank: float
    serial: int
    """Decides between equal ranks: keys and entries are not compared."""
    key: ObjectKey
    entry: Waiting


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
    """Waiting requests of one urgency, served round-robin by namespace.

    A request is due once its rank has passed. Of all namespaces with a due request, the least recently served one goes
    first. So many requests of one namespace do not delay another namespace. Without a due request the lowest rank goes
    first. Within a namespace the lowest rank always goes first. Each operation costs O(log n), on average.
    """

    def __init__(self, turns: Turns) -> None:
        """`turns` is shared with the lines of the same urgency of other kinds."""
        self._turns = turns
        self._early: list[_Ranked] = []
        """Heap of the requests that were not due at the last look."""
        self._due: dict[str, list[_Ranked]] = {}
        """Heap of the due requests of each namespace; each has one item in `_order`."""
        self._order: list[tuple[int, float, str]] = []
        """Heap of the namespaces in `_due`: last turn, and rank of the first request, when they were added."""
        self._serial = itertools.count()

    def push(self, key: ObjectKey, entry: Waiting) -> None:
        """Add a request."""
        heapq.heappush(self._early, _Ranked(entry.rank, next(self._serial), key, entry))

    def first(self, now: float) -> Precedence | None:
        """Return the precedence of the next request; None if there is none."""
        namespace = self._next(now)
        if namespace is not None:
            return Precedence(is_early=False, turn=self._turns.last(namespace), rank=self._due[namespace][0].rank)
        return Precedence(is_early=True, turn=0, rank=self._early[0].rank) if self._early else None

    def pop(self, now: float) -> tuple[ObjectKey, Waiting]:
        """Remove the next request; raise IndexError if there is none."""
        namespace = self._next(now)
        request = heapq.heappop(self._early if namespace is None else self._due[namespace])
        self._turns.take(request.key.namespace)
        return request.key, request.entry

    def _next(self, now: float) -> str | None:
        """Return the namespace with a due request that was served least recently; None if no request is due."""
        while self._early and (self._early[0].rank <= now or self._early[0].entry.is_dead):
            self._note_due(heapq.heappop(self._early))
        while self._order:
            turn, rank, namespace = self._order[0]
            requests, last = self._due[namespace], self._turns.last(namespace)
            while requests and requests[0].entry.is_dead:
                heapq.heappop(requests)
            if requests and turn == last:
                return namespace
            if requests:  # served meanwhile, by this line or by that of another kind
                heapq.heapreplace(self._order, (last, rank, namespace))
            else:
                heapq.heappop(self._order)
                del self._due[namespace]
        return None

    def _note_due(self, request: _Ranked) -> None:
        namespace = request.key.namespace
        if request.entry.is_dead:
            return
        if namespace not in self._due:
            self._due[namespace] = []
            heapq.heappush(self._order, (self._turns.last(namespace), request.rank, namespace))
        heapq.heappush(self._due[namespace], request)
