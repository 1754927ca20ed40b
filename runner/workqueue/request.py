"""Requests of a work queue: waiting requests, and what a worker receives."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from runner.objects import LastResult, ObjectKey
from runner.workqueue import reasons
from runner.workqueue.reasons import RunReason

DEPENDENT_STATUS_HANDICAP = 60.0
"""Handicap of a dependent of which only the status changed: the run repairs nothing."""
HANDICAP_AT_START = {LastResult.NONE: 15.0, LastResult.OUTDATED: 60.0, LastResult.FAILED: 120.0}
"""The same for objects present at start whose last run has no result for the current spec, or failed."""

Stage: TypeAlias = Literal["running", "waiting", "delayed"]

_MOST_DETAILS = 20


@dataclass(frozen=True, slots=True)
class ReconcileRequest:
    """A key that a worker reconciles, and why."""

    key: ObjectKey
    reason: RunReason
    details: tuple[str, ...]
    """The fields that changed, or the dependents, and how these changed."""
    failures: int
    """Attempts in a row that failed, including write conflicts."""
    failed_runs: int
    """Runs among these failures."""
    waited: float
    """Seconds in the queue."""

    @property
    def cause(self) -> dict[str, object]:
        """Reason of the run as its role reads it."""
        return {"reason": self.reason.value, "details": list(self.details), "failures": self.failed_runs}


class QueueEntry(NamedTuple):
    """A key of the queue, for the status page."""

    key: ObjectKey
    stage: Stage
    reason: RunReason
    details: tuple[str, ...]
    seconds: float
    """Since it was added; until it is due, if it is delayed."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Reason of a request, with details."""

    reason: RunReason
    details: tuple[str, ...]
    handicap: float

    @classmethod
    def of(cls, reason: RunReason, details: tuple[str, ...], handicap: float | None = None) -> Cause:
        """Return a cause, by default with the handicap of its reason."""
        return cls(reason, details, reason.handicap if handicap is None else handicap)

    @classmethod
    def at_start(cls, result: LastResult) -> Cause:
        """Return the cause of an object that is present at start."""
        details = (result.value,) if result.value else ()
        return cls(reasons.PRESENT, details, HANDICAP_AT_START.get(result, reasons.PRESENT.handicap))

    def merged(self, other: Cause) -> Cause:
        """Return the more urgent cause; merge the details of causes with the same reason."""
        if self.reason is other.reason:
            details = tuple(dict.fromkeys((*self.details, *other.details)))[:_MOST_DETAILS]
            return Cause(self.reason, details, min(self.handicap, other.handicap))
        return self if self.handicap <= other.handicap else other


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
    """Waiting requests of one urgency, served round-robin by namespace.

    A request is due once its rank has passed. Of all namespaces with a due request, the least recently served one goes
    first. So many requests of one namespace do not delay another namespace. Without a due request the lowest rank goes
    first. Within a namespace the lowest rank always goes first. Each operation costs O(log n).
    """

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
