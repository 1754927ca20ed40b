"""Work queue of one kind: which object is reconciled next, and why.

Owns waiting, delayed and running keys, and each key's count of failures.

Guarantees: a key is handed out to one worker at a time. A key added while it runs is handed out once more afterwards.
Several reasons for one key merge into the most urgent one. Nothing starves: the rank of a request is the time it was
added plus a handicap for its reason. Waiting requests so overtake later ones. Users' changes and background work
wait in two lines, because workers are reserved for the former. Each line is served round-robin by namespace. Time is
the event loop's. No I/O.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from runner.core.queue import reasons
from runner.core.queue.line import ConcurrencyLimit, Line, Precedence, Turns, Waiting
from runner.core.queue.reasons import HANDICAP_AT_START, Cause, QueueEntry, ReconcileRequest, RunReason
from runner.values.backoff import Backoff
from runner.values.objects import LastResult, ObjectKey


@dataclass(slots=True)
class _Running:
    """A key that a worker reconciles."""

    entry: Waiting
    since: float
    again: Cause | None = None
    """Why it is due once more afterwards."""


@dataclass(slots=True)
class _Failures:
    """Failures of a key in a row."""

    attempts: int = 0
    runs: int = 0


@dataclass(slots=True)
class _Delayed:
    """A key that is not due yet."""

    timer: asyncio.TimerHandle
    reason: RunReason
    due: float

    def shown(self, key: ObjectKey, now: float) -> QueueEntry:
        """Return the entry for pages and schedules."""
        return QueueEntry(key, "delayed", self.reason, (), max(self.due - now, 0.0))


class WorkQueue:
    """See the module. Every method but `get` returns at once. Use them in one event loop."""

    def __init__(self, limit: ConcurrencyLimit, dispatcher: Dispatcher) -> None:
        """`limit` is the kind's own; `dispatcher` serves all kinds."""
        self.adds = 0
        """Requests that were ever added."""
        self.retries = 0
        """Requests that ever failed and were retried."""
        self.limit = limit
        self._dispatcher = dispatcher
        self._waiting: dict[ObjectKey, Waiting] = {}
        self._urgent = Line(dispatcher.turns)
        self._background = Line(dispatcher.background_turns)
        self._delayed: dict[ObjectKey, _Delayed] = {}
        self._running: dict[ObjectKey, _Running] = {}
        self._failures: dict[ObjectKey, _Failures] = {}
        self._getters: deque[asyncio.Future[ReconcileRequest | None]] = deque()
        self._closed = False
        self._holds_reruns = False
        dispatcher.join(self)

    def add(
        self, key: ObjectKey, reason: RunReason, details: tuple[str, ...] = (), handicap: float | None = None
    ) -> None:
        """Make `key` due now, unless it backs off after a failure and no user changed it."""
        self._add(key, Cause.of(reason, details, handicap))
        self._dispatcher.dispatch()

    def add_at_start(self, key: ObjectKey, result: LastResult) -> None:
        """Make `key` due now, because it is present at start. The result of its last run determines its rank."""
        self._add(key, Cause.at_start(result))
        self._dispatcher.dispatch()

    def hold_reruns(self) -> None:
        """Hand out no rerun of an object that is present at start until `release_reruns`."""
        self._holds_reruns = True

    def release_reruns(self) -> None:
        """Hand out all requests, because the first list is complete."""
        self._holds_reruns = False
        self._dispatcher.dispatch()

    def _add(self, key: ObjectKey, cause: Cause) -> None:
        reason = cause.reason
        if reason.starts_over:
            self._failures.pop(key, None)
        elif key in self._failures and key in self._delayed:
            # It backs off: only a change of the object itself ends the backoff early.
            return
        self._cancel_delay(key)
        running = self._running.get(key)
        if running is not None:
            running.again = cause if running.again is None else running.again.merged(cause)
            return
        self._line_up(key, cause)

    def _line_up(self, key: ObjectKey, cause: Cause) -> None:
        now = asyncio.get_running_loop().time()
        rank, since = now + cause.handicap, now
        waiting = self._waiting.get(key)
        if waiting is None:
            self.adds += 1
        else:
            cause, rank, since = waiting.cause.merged(cause), min(rank, waiting.rank), waiting.since
            if rank == waiting.rank and cause.reason.is_background == waiting.is_background:
                waiting.cause = cause
                return
            waiting.is_dead = True
        self._push(key, Waiting(cause, rank, since))

    def _push(self, key: ObjectKey, entry: Waiting) -> None:
        self._waiting[key] = entry
        self._line(background=entry.is_background).push(key, entry)

    def _line(self, *, background: bool) -> Line:
        return self._background if background else self._urgent

    def add_after(self, key: ObjectKey, reason: RunReason, delay: float) -> None:
        """Make `key` due in `delay` seconds, unless it is due already or sooner."""
        if delay <= 0:
            self.add(key, reason)
            return
        running = self._running.get(key)
        if key in self._waiting or (running is not None and running.again is not None):
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

        A change of the object during the attempt starts over, with no delay. Any other request that was added meanwhile
        waits for the retry.
        """
        running = self._running.get(key)
        if running is not None:
            if running.again is not None and running.again.reason.starts_over:
                return 0.0
            running.again = None
        failures = self._failures.setdefault(key, _Failures())
        delay = backoff.after(failures.attempts)
        failures.attempts += 1
        failures.runs += ran
        self.retries += 1
        self.add_after(key, reasons.RETRY, delay)
        return delay

    def succeeded(self, key: ObjectKey) -> None:
        """Reset the failures of `key`."""
        self._failures.pop(key, None)

    def forget(self, key: ObjectKey) -> None:
        """Drop all requests and failures of `key`; a run in progress continues."""
        self._failures.pop(key, None)
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            waiting.is_dead = True
        self._cancel_delay(key)
        running = self._running.get(key)
        if running is not None:
            running.again = None

    async def get(self) -> ReconcileRequest | None:
        """Wait for the most urgent key and take it; None once the queue is closed. Call `done` after it."""
        if self._closed:
            return None
        getter: asyncio.Future[ReconcileRequest | None] = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        self._dispatcher.dispatch()
        try:
            return await getter
        except asyncio.CancelledError:
            request = getter.result() if getter.done() and not getter.cancelled() else None
            if request is not None:
                # The worker is gone: the key returns to its place.
                running = self._release(request.key)
                self._push(request.key, running.entry)
                if running.again is not None:
                    self._line_up(request.key, running.again)
                self._dispatcher.dispatch()
            raise

    def begun(self, request: ReconcileRequest) -> ReconcileRequest:
        """Return the request merged with those that were added since it was handed out.

        Call it when the object is read, which shows all these changes. Otherwise they would start a second run.
        """
        running = self._running[request.key]
        if running.again is None:
            return request
        cause = Cause.of(request.reason, request.details).merged(running.again)
        running.again = None
        failures = self._failures.get(request.key, _Failures())
        return replace(
            request,
            reason=cause.reason,
            details=cause.details,
            failures=failures.attempts,
            failed_runs=failures.runs,
        )

    def done(self, key: ObjectKey) -> None:
        """Release `key`; it is due again at once if it was added meanwhile."""
        again = self._release(key).again
        if again is not None:
            self._add(key, again)
        # Later: the worker that releases the key calls `get` next, and this kind's request may be the most urgent.
        asyncio.get_running_loop().call_soon(self._dispatcher.dispatch)

    def offers(self) -> Iterator[Offer]:
        """Yield the most urgent request of each line, if the kind's limit admits it."""
        while self._getters and self._getters[0].done():
            self._getters.popleft()
        if not self._getters:
            return
        now = asyncio.get_running_loop().time()
        urgent, background = self._urgent.first(now), self._background.first(now)
        if self._holds_reruns and background is not None and background.rank > now + HANDICAP_AT_START[LastResult.NONE]:
            background = None
        if urgent is not None and self.limit.admits(background=False, change_waits=False):
            yield Offer(self, urgent, background=False, is_first=not self._running)
        if background is not None and self.limit.admits(background=True, change_waits=urgent is not None):
            yield Offer(self, background, background=True, is_first=not self._running)

    def hand_out(self, offer: Offer) -> None:
        """Hand the first request of a line to a worker."""
        now = asyncio.get_running_loop().time()
        key, entry = self._line(background=offer.background).pop(now)
        del self._waiting[key]
        self._running[key] = _Running(entry, now)
        self.limit.acquire(background=offer.background)
        failures = self._failures.get(key, _Failures())
        cause = entry.cause
        request = ReconcileRequest(
            key, cause.reason, cause.details, failures.attempts, failures.runs, now - entry.since
        )
        self._getters.popleft().set_result(request)

    def _release(self, key: ObjectKey) -> _Running:
        running = self._running.pop(key)
        self.limit.release(background=running.entry.is_background)
        self._dispatcher.release(background=running.entry.is_background)
        return running

    def close(self) -> None:
        """Hand out no more requests."""
        self._closed = True
        for delayed in self._delayed.values():
            delayed.timer.cancel()
        self._delayed.clear()
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)
        self._getters.clear()

    def __len__(self) -> int:
        """Return how many keys wait for a worker."""
        return len(self._waiting)

    @property
    def active(self) -> int:
        """Return how many keys workers reconcile."""
        return len(self._running)

    def in_progress(self) -> list[float]:
        """Return for how many seconds workers have processed each of the active keys."""
        now = asyncio.get_running_loop().time()
        return [now - running.since for running in self._running.values()]

    def is_running(self, key: ObjectKey) -> bool:
        """Return whether a worker reconciles `key`."""
        return key in self._running

    def entries(self) -> Iterator[QueueEntry]:
        """Yield every key: running, waiting (the most urgent first), delayed (the next first)."""
        now = asyncio.get_running_loop().time()
        for key, running in self._running.items():
            cause = running.entry.cause
            yield QueueEntry(key, "running", cause.reason, cause.details, now - running.since)
        for key, entry in sorted(self._waiting.items(), key=lambda item: item[1].rank):
            yield _shown_waiting(key, entry, now)
        for key, delayed in sorted(self._delayed.items(), key=lambda item: item[1].due):
            yield delayed.shown(key, now)

    def next_run(self, key: ObjectKey) -> QueueEntry | None:
        """Return the waiting or delayed request of `key`."""
        now = asyncio.get_running_loop().time()
        if (entry := self._waiting.get(key)) is not None:
            return _shown_waiting(key, entry, now)
        delayed = self._delayed.get(key)
        return delayed.shown(key, now) if delayed is not None else None

    def _due(self, key: ObjectKey, reason: RunReason) -> None:
        del self._delayed[key]
        self.add(key, reason)

    def _cancel_delay(self, key: ObjectKey) -> None:
        delayed = self._delayed.pop(key, None)
        if delayed is not None:
            delayed.timer.cancel()


@dataclass(frozen=True, slots=True)
class Offer:
    """A request that may start as far as its own kind is concerned."""

    queue: WorkQueue
    precedence: Precedence
    background: bool
    is_first: bool
    """True if its kind has no run in progress."""


@dataclass(slots=True)
class Dispatcher:
    """Hands out the requests of all kinds, the most urgent one first, within the limit that all kinds share.

    Namespaces take turns, across kinds. Due background work goes before changes, but the limits admit it for at most
    every second start while a change waits. So neither delays the other by more than one run. A kind without a run in
    progress may always start one: runs of one kind may wait for objects of another.
    """

    limit: ConcurrencyLimit
    turns: Turns = field(default_factory=Turns)
    """Turns of namespaces for users' changes."""
    background_turns: Turns = field(default_factory=Turns)
    _queues: list[WorkQueue] = field(default_factory=list)

    def join(self, queue: WorkQueue) -> None:
        """Serve one more kind."""
        self._queues.append(queue)

    def dispatch(self) -> None:
        """Hand out all requests that may start now."""
        while (offer := self._next()) is not None:
            self.limit.acquire(background=offer.background)
            offer.queue.hand_out(offer)

    def release(self, *, background: bool) -> None:
        """Count the end of a request; call `dispatch` next."""
        self.limit.release(background=background)

    def _next(self) -> Offer | None:
        return choose([offer for queue in self._queues for offer in queue.offers()], self.limit)


def choose(offers: Sequence[Offer], limit: ConcurrencyLimit) -> Offer | None:
    """Return the offer of all kinds that starts next, within the limit that they share; None if none may start."""
    change_waits = any(not offer.background for offer in offers)
    startable = (
        offer
        for offer in offers
        if offer.is_first or limit.admits(background=offer.background, change_waits=change_waits)
    )
    return min(startable, key=_order, default=None)


def _order(offer: Offer) -> tuple[bool, bool, Precedence]:
    """Due background work is first, then due changes, then the rest by rank."""
    is_early = offer.precedence.is_early
    return (is_early, not is_early and not offer.background, offer.precedence)


def _shown_waiting(key: ObjectKey, entry: Waiting, now: float) -> QueueEntry:
    return QueueEntry(key, "waiting", entry.cause.reason, entry.cause.details, now - entry.since)
