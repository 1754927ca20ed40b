"""The queue of one kind: which object is reconciled next, and why.

Owns waiting, delayed and running keys, and each key's count of failures.

Guarantees: a key is handed out to one worker at a time; a key added while it runs is handed out once more after it;
several reasons for one key merge into the most urgent; nothing starves, since a request's rank is the time it was added
plus a handicap for its reason, so that what waits overtakes what came later. Time is the event loop's, so that tests
run it virtually. Imports nothing that does I/O.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from runner.objects import ObjectKey
from runner.policy import Backoff


class Reason(Enum):
    """Why a run was asked for, in order of urgency; the value is shown to people."""

    CHANGED = "changed"
    CREATED = "created"
    DELETED = "deleted"
    DEPENDENT = "dependent changed"
    REQUEUED = "asked for by the last run"
    RETRY = "retry"
    PRESENT = "present at start"
    GONE = "gone"
    RESYNC = "periodic resync"

    @property
    def starts_over(self) -> bool:
        """Whether somebody changed the object, so that earlier failures no longer slow it down."""
        return self in {Reason.CHANGED, Reason.CREATED, Reason.DELETED}


HANDICAP: dict[Reason, float] = {
    Reason.CHANGED: 0.0,
    Reason.CREATED: 0.0,
    Reason.DELETED: 1.0,
    Reason.DEPENDENT: 5.0,
    Reason.REQUEUED: 15.0,
    Reason.RETRY: 15.0,
    Reason.PRESENT: 60.0,
    Reason.GONE: 60.0,
    Reason.RESYNC: 600.0,
}
"""Seconds that a request of each reason lets later, more urgent ones go first."""

_MOST_DETAILS = 20


@dataclass(frozen=True, slots=True)
class Request:
    """A key that is due, and why."""

    key: ObjectKey
    reason: Reason
    details: tuple[str, ...]
    """What exactly: the fields that changed, or which dependent did what."""
    failures: int
    """Attempts in a row that came to nothing, writes that another writer was quicker than among them."""
    failed_runs: int
    """Runs among these."""
    waited: float
    """Seconds in line."""


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a key is due, and what exactly happened."""

    reason: Reason
    details: tuple[str, ...]

    def merged(self, other: _Cause) -> _Cause:
        """Take the more urgent one; of the same reason, both."""
        if self.reason is other.reason:
            return _Cause(self.reason, tuple(dict.fromkeys((*self.details, *other.details)))[:_MOST_DETAILS])
        return self if HANDICAP[self.reason] <= HANDICAP[other.reason] else other


@dataclass(slots=True)
class _Waiting:
    """A key in line. `rank` decides; the entry is dead once the key's waiting entry is another one."""

    cause: _Cause
    rank: float
    since: float


@dataclass(slots=True)
class _Failures:
    """How often a key failed in a row."""

    attempts: int = 0
    runs: int = 0


@dataclass(slots=True)
class _Delayed:
    """A key whose time has not come."""

    timer: asyncio.TimerHandle
    due: float


@dataclass(slots=True)
class WorkQueue:
    """See the module. Every method but `get` returns at once; all belong to one event loop."""

    adds: int = 0
    """Requests that ever got in line."""
    retries: int = 0
    """Requests that ever failed and were queued again."""
    _waiting: dict[ObjectKey, _Waiting] = field(default_factory=dict)
    _heap: list[tuple[float, int, ObjectKey, _Waiting]] = field(default_factory=list)
    _delayed: dict[ObjectKey, _Delayed] = field(default_factory=dict)
    _running: dict[ObjectKey, _Cause | None] = field(default_factory=dict)
    _failures: dict[ObjectKey, _Failures] = field(default_factory=dict)
    _getters: deque[asyncio.Future[None]] = field(default_factory=deque)
    _serial: itertools.count[int] = field(default_factory=itertools.count)
    _closed: bool = False

    def add(self, key: ObjectKey, reason: Reason, details: tuple[str, ...] = ()) -> None:
        """Make `key` due now, unless it backs off after a failure and nobody changed it."""
        self._add(key, _Cause(reason, details))

    def _add(self, key: ObjectKey, cause: _Cause) -> None:
        reason = cause.reason
        if reason.starts_over:
            self._failures.pop(key, None)
        elif key in self._failures and key in self._delayed:
            # It backs off: only a change of the object itself ends that early.
            return
        self._cancel_delay(key)
        if key in self._running:
            before = self._running[key]
            self._running[key] = cause if before is None else before.merged(cause)
            return
        now = asyncio.get_running_loop().time()
        rank = now + HANDICAP[reason]
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.rank <= rank:
            waiting.cause = waiting.cause.merged(cause)
            return
        self.adds += waiting is None
        merged = waiting.cause.merged(cause) if waiting else cause
        entry = _Waiting(merged, rank, since=waiting.since if waiting else now)
        self._waiting[key] = entry
        heapq.heappush(self._heap, (rank, next(self._serial), key, entry))
        self._wake_one()

    def add_after(self, key: ObjectKey, reason: Reason, delay: float) -> None:
        """Make `key` due in `delay` seconds, unless it is due already or sooner."""
        if delay <= 0:
            self.add(key, reason)
            return
        if key in self._waiting or self._running.get(key) is not None:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + delay
        delayed = self._delayed.get(key)
        if delayed is not None:
            if delayed.due <= due:
                return
            delayed.timer.cancel()
        self._delayed[key] = _Delayed(loop.call_at(due, self._due, key, reason), due)

    def retry(self, key: ObjectKey, backoff: Backoff, *, ran: bool) -> float:
        """Count a failure, of a run or of something around it, and make `key` due after its backoff; return the delay.

        A change of the object that came while it ran starts over, with no delay; anything else that came meanwhile
        waits for the retry.
        """
        changed_meanwhile = self._running.get(key)
        if changed_meanwhile is not None and changed_meanwhile.reason.starts_over:
            return 0.0
        if key in self._running:
            self._running[key] = None
        failures = self._failures.setdefault(key, _Failures())
        delay = backoff.after(failures.attempts)
        failures.attempts += 1
        failures.runs += ran
        self.retries += 1
        self.add_after(key, Reason.RETRY, delay)
        return delay

    def succeeded(self, key: ObjectKey) -> None:
        """Forget earlier failures of `key`."""
        self._failures.pop(key, None)

    def forget(self, key: ObjectKey) -> None:
        """Drop all that is known of `key`; a run that is going on ends on its own."""
        self._failures.pop(key, None)
        self._waiting.pop(key, None)
        self._cancel_delay(key)
        if key in self._running:
            self._running[key] = None

    async def get(self) -> Request | None:
        """Wait for the most urgent key and take it; None once the queue is closed. Call `done` after it."""
        while not self._closed:
            while self._heap:
                _, _, key, entry = heapq.heappop(self._heap)
                if self._waiting.get(key) is not entry:
                    continue
                del self._waiting[key]
                self._running[key] = None
                waited = asyncio.get_running_loop().time() - entry.since
                failures = self._failures.get(key, _Failures())
                cause = entry.cause
                return Request(key, cause.reason, cause.details, failures.attempts, failures.runs, waited)
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter in self._getters:
                    self._getters.remove(getter)
                elif not getter.cancelled():
                    # Woken and canceled at once: the key is somebody else's to take.
                    self._wake_one()
                raise
        return None

    def done(self, key: ObjectKey) -> None:
        """Give `key` back; it is due again at once if something asked for it meanwhile."""
        again = self._running.pop(key, None)
        if again is not None:
            self._add(key, again)

    def close(self) -> None:
        """Hand out nothing any more."""
        self._closed = True
        for delayed in self._delayed.values():
            delayed.timer.cancel()
        self._delayed.clear()
        while self._getters:
            self._wake_one()

    def is_busy(self, key: ObjectKey) -> bool:
        """Whether `key` waits in line or runs."""
        return key in self._waiting or key in self._running

    def __len__(self) -> int:
        """Count the keys that are due and wait for a worker."""
        return len(self._waiting)

    @property
    def active(self) -> int:
        """Count the keys that workers hold."""
        return len(self._running)

    def _due(self, key: ObjectKey, reason: Reason) -> None:
        del self._delayed[key]
        self.add(key, reason)

    def _cancel_delay(self, key: ObjectKey) -> None:
        delayed = self._delayed.pop(key, None)
        if delayed is not None:
            delayed.timer.cancel()

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return
