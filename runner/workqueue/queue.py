"""The queue of one kind: which object is reconciled next, and why.

Owns waiting, delayed and running keys, and each key's count of failures.

Guarantees: a key is handed out to one worker at a time; a key added while it runs is handed out once more after it;
several reasons for one key merge into the most urgent; nothing starves, since a request's rank is the time it was added
plus a handicap for its reason, so that what waits overtakes what came later. What people do and background work wait
in two lines, since `slots` keeps workers for the former. Time is the event loop's, so that tests run it virtually.
Imports nothing that does I/O.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from runner.objects import ObjectKey
from runner.watches.policy import Backoff
from runner.workqueue.concurrency import Offer, Share, Slots


class Reason(Enum):
    """Why a run was asked for, in order of urgency; the value is shown to people."""

    CHANGED = "changed"
    CREATED = "created"
    ASKED = "asked for"
    DELETED = "deleted"
    DEPENDENT = "dependent changed"
    REFERENCE = "reference changed"
    EDITED = "role edited"
    REQUEUED = "asked for by the last run"
    RETRY = "retry"
    PRESENT = "present at start"
    GONE = "gone"
    RESYNC = "periodic resync"

    @property
    def starts_over(self) -> bool:
        """Whether somebody touched the object, what it names or what it runs: earlier failures count no more."""
        return self in {Reason.REFERENCE, Reason.EDITED} or not self.is_background

    @property
    def is_background(self) -> bool:
        """Whether nobody waits for it who has just done something to the object itself."""
        return self not in {Reason.CHANGED, Reason.CREATED, Reason.ASKED, Reason.DELETED}


HANDICAP: dict[Reason, float] = {
    Reason.CHANGED: 0.0,
    Reason.CREATED: 0.0,
    Reason.ASKED: 0.0,
    Reason.DELETED: 1.0,
    Reason.DEPENDENT: 5.0,
    Reason.REFERENCE: 10.0,
    Reason.EDITED: 10.0,
    Reason.REQUEUED: 15.0,
    Reason.RETRY: 15.0,
    Reason.PRESENT: 60.0,
    Reason.GONE: 60.0,
    Reason.RESYNC: 600.0,
}
"""Seconds that a request of each reason lets later, more urgent ones go first."""

Stage: TypeAlias = Literal["running", "waiting", "delayed"]

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


class Standing(NamedTuple):
    """A key of the queue, for whoever looks on."""

    key: ObjectKey
    stage: Stage
    reason: Reason
    details: tuple[str, ...]
    seconds: float
    """Since it got in line; of what is delayed, until it is due."""


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

    @property
    def is_background(self) -> bool:
        return self.cause.reason.is_background


@dataclass(slots=True)
class _Held:
    """A key that a worker has."""

    entry: _Waiting
    again: _Cause | None = None
    """Why it is due once more after this."""


@dataclass(slots=True)
class _Failures:
    """How often a key failed in a row."""

    attempts: int = 0
    runs: int = 0


@dataclass(slots=True)
class _Delayed:
    """A key whose time has not come."""

    timer: asyncio.TimerHandle
    reason: Reason
    due: float


_Heap: TypeAlias = list[tuple[float, int, ObjectKey, _Waiting]]


class WorkQueue:
    """See the module. Every method but `get` returns at once; all belong to one event loop."""

    def __init__(self, share: Share, slots: Slots) -> None:
        """`share` is the kind's own, `slots` is what all kinds have together."""
        self.adds = 0
        """Requests that ever got in line."""
        self.retries = 0
        """Requests that ever failed and were queued again."""
        self._share = share
        self._slots = slots
        self._waiting: dict[ObjectKey, _Waiting] = {}
        self._urgent: _Heap = []
        self._background: _Heap = []
        self._delayed: dict[ObjectKey, _Delayed] = {}
        self._running: dict[ObjectKey, _Held] = {}
        self._failures: dict[ObjectKey, _Failures] = {}
        self._getters: deque[asyncio.Future[Request | None]] = deque()
        self._serial = itertools.count()
        self._closed = False
        slots.join(self)

    def add(self, key: ObjectKey, reason: Reason, details: tuple[str, ...] = ()) -> None:
        """Make `key` due now, unless it backs off after a failure and nobody changed it."""
        self._add(key, _Cause(reason, details))
        self._slots.dispatch()

    def _add(self, key: ObjectKey, cause: _Cause) -> None:
        reason = cause.reason
        if reason.starts_over:
            self._failures.pop(key, None)
        elif key in self._failures and key in self._delayed:
            # It backs off: only a change of the object itself ends that early.
            return
        self._cancel_delay(key)
        held = self._running.get(key)
        if held is not None:
            held.again = cause if held.again is None else held.again.merged(cause)
            return
        self._line_up(key, cause)

    def _line_up(self, key: ObjectKey, cause: _Cause) -> None:
        now = asyncio.get_running_loop().time()
        rank, since = now + HANDICAP[cause.reason], now
        waiting = self._waiting.get(key)
        if waiting is None:
            self.adds += 1
        else:
            cause, rank, since = waiting.cause.merged(cause), min(rank, waiting.rank), waiting.since
            if rank == waiting.rank and cause.reason.is_background == waiting.is_background:
                waiting.cause = cause
                return
        self._push(key, _Waiting(cause, rank, since))

    def _push(self, key: ObjectKey, entry: _Waiting) -> None:
        self._waiting[key] = entry
        heapq.heappush(self._line(background=entry.is_background), (entry.rank, next(self._serial), key, entry))

    def _line(self, *, background: bool) -> _Heap:
        return self._background if background else self._urgent

    def add_after(self, key: ObjectKey, reason: Reason, delay: float) -> None:
        """Make `key` due in `delay` seconds, unless it is due already or sooner."""
        if delay <= 0:
            self.add(key, reason)
            return
        held = self._running.get(key)
        if key in self._waiting or (held is not None and held.again is not None):
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + delay
        delayed = self._delayed.get(key)
        if delayed is not None:
            if delayed.due <= due:
                return
            delayed.timer.cancel()
        self._delayed[key] = _Delayed(loop.call_at(due, self._due, key, reason), reason, due)

    def retry(self, key: ObjectKey, backoff: Backoff, *, ran: bool) -> float:
        """Count a failure, of a run or of something around it, and make `key` due after its backoff; return the delay.

        A change of the object that came while it ran starts over, with no delay; anything else that came meanwhile
        waits for the retry.
        """
        held = self._running.get(key)
        if held is not None:
            if held.again is not None and held.again.reason.starts_over:
                return 0.0
            held.again = None
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
        held = self._running.get(key)
        if held is not None:
            held.again = None

    async def get(self) -> Request | None:
        """Wait for the most urgent key and take it; None once the queue is closed. Call `done` after it."""
        if self._closed:
            return None
        getter: asyncio.Future[Request | None] = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        self._slots.dispatch()
        try:
            return await getter
        except asyncio.CancelledError:
            request = getter.result() if getter.done() and not getter.cancelled() else None
            if request is not None:
                # Given to a worker that has gone: it stands where it stood.
                held = self._give_back(request.key)
                self._push(request.key, held.entry)
                if held.again is not None:
                    self._line_up(request.key, held.again)
                self._slots.dispatch()
            raise

    def begun(self, request: Request) -> Request:
        """Return the request with what came since it was handed out. Call it as the object is read: that shows it all.

        Otherwise the same change would be served twice, now and after this.
        """
        held = self._running[request.key]
        if held.again is None:
            return request
        cause = _Cause(request.reason, request.details).merged(held.again)
        held.again = None
        failures = self._failures.get(request.key, _Failures())
        return replace(
            request,
            reason=cause.reason,
            details=cause.details,
            failures=failures.attempts,
            failed_runs=failures.runs,
        )

    def done(self, key: ObjectKey) -> None:
        """Give `key` back; it is due again at once if something asked for it meanwhile."""
        again = self._give_back(key).again
        if again is not None:
            self._add(key, again)
        # Not at once: the worker that gives this back comes for the next, which may be more urgent than other kinds'.
        asyncio.get_running_loop().call_soon(self._slots.dispatch)

    def offers(self) -> Iterator[Offer]:
        """What could start now, the most urgent of either line."""
        while self._getters and self._getters[0].done():
            self._getters.popleft()
        if not self._getters:
            return
        urgent, background = self._head(self._urgent), self._head(self._background)
        if urgent is not None and self._share.admits(background=False, somebody_waits=False):
            yield Offer(self, urgent, background=False)
        if background is not None and self._share.admits(background=True, somebody_waits=urgent is not None):
            yield Offer(self, background, background=True)

    def hand_out(self, offer: Offer) -> None:
        """Give the first of a line to a worker."""
        _, _, key, entry = heapq.heappop(self._line(background=offer.background))
        del self._waiting[key]
        self._running[key] = _Held(entry)
        self._share.took(background=offer.background)
        waited = asyncio.get_running_loop().time() - entry.since
        failures = self._failures.get(key, _Failures())
        cause = entry.cause
        request = Request(key, cause.reason, cause.details, failures.attempts, failures.runs, waited)
        self._getters.popleft().set_result(request)

    def _head(self, line: _Heap) -> float | None:
        """The rank of the first that is still in line."""
        while line and self._waiting.get(line[0][2]) is not line[0][3]:
            heapq.heappop(line)
        return line[0][0] if line else None

    def _give_back(self, key: ObjectKey) -> _Held:
        held = self._running.pop(key)
        self._share.gave_back(background=held.entry.is_background)
        self._slots.gave_back(background=held.entry.is_background)
        return held

    def close(self) -> None:
        """Hand out nothing any more."""
        self._closed = True
        for delayed in self._delayed.values():
            delayed.timer.cancel()
        self._delayed.clear()
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)
        self._getters.clear()

    def __len__(self) -> int:
        """Count the keys that are due and wait for a worker."""
        return len(self._waiting)

    @property
    def active(self) -> int:
        """Count the keys that workers hold."""
        return len(self._running)

    def holds(self, key: ObjectKey) -> bool:
        """Whether a worker has `key`."""
        return key in self._running

    def standing(self) -> Iterator[Standing]:
        """Every key: what runs, what waits (the most urgent first), what is delayed (the next first)."""
        now = asyncio.get_running_loop().time()
        for key, held in self._running.items():
            yield Standing(key, "running", held.entry.cause.reason, held.entry.cause.details, now - held.entry.since)
        for key, entry in sorted(self._waiting.items(), key=lambda item: item[1].rank):
            yield Standing(key, "waiting", entry.cause.reason, entry.cause.details, now - entry.since)
        for key, delayed in sorted(self._delayed.items(), key=lambda item: item[1].due):
            yield Standing(key, "delayed", delayed.reason, (), max(delayed.due - now, 0.0))

    def _due(self, key: ObjectKey, reason: Reason) -> None:
        del self._delayed[key]
        self.add(key, reason)

    def _cancel_delay(self, key: ObjectKey) -> None:
        delayed = self._delayed.pop(key, None)
        if delayed is not None:
            delayed.timer.cancel()
