"""Thousands of objects of several kinds, seeded, in virtual time, with real queues and made-up runs.

Checked by a model that knows only what happened to the objects and which runs began and ended:
- no key is held twice at once;
- none is lost: every object is run after the last thing that happened to it, by the end of a stated time;
- workers, the limit of all kinds and what is kept from background work are never exceeded;
- a change never waits while a worker may serve it; while it waits, no two background runs of its kind start in a row,
  nor does any change that came more than a second later, of whatever kind;
- background work is not passed by other background work that came later than its handicap; once it has waited that out,
  it is not passed by two changes in a row that came after, unless all that background work may take is taken.

Then the rules are broken one by one: each time some history has to fail, or these checks would prove nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from runner.core.queue import reasons
from runner.core.queue.line import ConcurrencyLimit
from runner.core.queue.queue import Dispatcher, Offer, WorkQueue
from runner.core.queue.reasons import ReconcileRequest, RunReason
from runner.values.backoff import Backoff
from runner.values.objects import ObjectKey
from tests.kit.reasons import REASONS
from tests.kit.virtual_time import virtually

pytestmark = pytest.mark.lengthy


LONGEST = 20.0
"""Seconds that a run takes at most."""
LONGEST_RETRY = 30.0
PERSON = (reasons.CHANGED, reasons.CREATED, reasons.REQUESTED, reasons.DELETED)
BACKGROUND = tuple(reason for reason in REASONS if reason not in PERSON)
LAST_HANDICAP = max(reason.handicap for reason in REASONS)
FIRST_HANDICAP = min(reason.handicap for reason in BACKGROUND)


class WrongError(AssertionError):
    """A guarantee that did not hold."""


def kept(workers: int) -> int:
    """Workers that background work may not take."""
    return max(workers // 4, 1) if workers > 1 else 0


class WatchedQueue(WorkQueue):
    """A queue that says what it hands out at that very moment."""

    def __init__(self, limit: ConcurrencyLimit, dispatcher: Dispatcher) -> None:
        super().__init__(limit, dispatcher)
        self.began: Callable[[ReconcileRequest], None] = lambda _: None

    def hand_out(self, offer: Offer) -> None:
        getter = self._getters[0]
        super().hand_out(offer)
        request = getter.result()
        assert request is not None
        self.began(request)


@dataclass
class Kind:
    """A kind: its queue, and the model of its objects."""

    workers: int
    queue: WatchedQueue
    changes: dict[ObjectKey, float] = field(default_factory=dict)
    """Time of the change of each object that has changed and for which no run has begun."""
    others: dict[ObjectKey, float] = field(default_factory=dict)
    """Objects that are due for any other reason, since when; a retry's time may be still to come."""
    meanwhile: dict[ObjectKey, bool] = field(default_factory=dict)
    """Objects to which something happened during their run; whether it was a change."""
    backing_off: set[ObjectKey] = field(default_factory=set)
    held: dict[ObjectKey, bool] = field(default_factory=dict)
    """Objects that run; whether as background work."""
    happened: Counter[ObjectKey] = field(default_factory=Counter)
    served: Counter[ObjectKey] = field(default_factory=Counter)
    last: bool | None = None
    """Whether the last start was background work."""
    passed: Counter[ObjectKey] = field(default_factory=Counter)
    """Background starts in a row since a change waits."""

    @property
    def background(self) -> int:
        return sum(self.held.values())

    def may_take_background(self) -> bool:
        return len(self.held) < self.workers and self.background < self.workers - kept(self.workers)


class Simulation:
    """One seeded history."""

    def __init__(self, seed: int, objects: int = 250, steps: int = 1200) -> None:
        self.rng = random.Random(seed)
        self.limit = self.rng.choice((1, 3, 6, 12))
        self.dispatcher = Dispatcher(ConcurrencyLimit.of(self.limit))
        self.kinds: list[Kind] = []
        for _ in range(self.rng.choice((1, 3, 5))):
            workers = self.rng.choice((1, 2, 3, 8))
            kind = Kind(workers, WatchedQueue(ConcurrencyLimit.of(workers), self.dispatcher))
            kind.queue.began = partial(self.began, kind)
            self.kinds.append(kind)
        self.objects, self.steps = objects, steps
        self.last: bool | None = None
        self.starts: Counter[bool] = Counter()
        self.over = False

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    @property
    def held(self) -> int:
        return sum(len(kind.held) for kind in self.kinds)

    def happens(self, kind: Kind, key: ObjectKey, reason: RunReason) -> None:
        """Something happens that a run has to follow."""
        kind.happened[key] += 1
        person = reason in PERSON
        if key in kind.held:
            kind.meanwhile[key] = kind.meanwhile.get(key, False) or person
        elif person:
            kind.backing_off.discard(key)
            kind.changes.setdefault(key, self.now())
        elif key not in kind.backing_off:
            kind.others.setdefault(key, self.now())
        kind.queue.add(key, reason)

    def began(self, kind: Kind, request: ReconcileRequest) -> None:
        """A worker has been given a key."""
        key, background = request.key, request.reason.is_background
        if key in kind.held:
            raise WrongError(f"{key} is held twice at once")
        since = kind.changes.pop(key, None)
        due = kind.others.pop(key, None)
        if (since is None) != background:
            raise WrongError(f"{key} is run as {request.reason.value}; changed since {since}")
        came = min(time for time in (since, due) if time is not None) if since is not None or due is not None else 0.0
        self.check_order(kind, came, background=background)
        kind.held[key] = background
        kind.backing_off.discard(key)
        del kind.passed[key]
        kind.last = self.last = background
        self.starts[background] += 1
        self.check_limits(kind, background=background)

    def check_limits(self, kind: Kind, *, background: bool) -> None:
        if len(kind.held) > kind.workers:
            raise WrongError("more runs of a kind than workers")
        if self.held > self.limit and len(kind.held) > 1:
            raise WrongError("more runs than all kinds together may have")
        if background and kind.background > max(kind.workers - kept(kind.workers), 1):
            raise WrongError("background work has taken what a kind keeps")
        of_all = sum(each.background for each in self.kinds)
        if background and len(kind.held) > 1 and of_all > self.limit - kept(self.limit):
            raise WrongError("background work has taken what all kinds keep")

    def check_order(self, kind: Kind, came: float, *, background: bool) -> None:
        """Look at what waits while something that came at `came` starts."""
        if background:
            self.check_background_start(kind, came)
        else:
            kind.passed.clear()
            self.check_change_start(kind, came)

    def check_background_start(self, kind: Kind, came: float) -> None:
        for key in kind.changes:
            kind.passed[key] += 1
            if kind.passed[key] > 1:
                raise WrongError(f"{key}: two background runs start while a change waits")
        for key, since in kind.others.items():
            if key not in kind.changes and came + FIRST_HANDICAP > since + LAST_HANDICAP:
                raise WrongError(f"{key}: background work is passed by what came much later")

    def check_change_start(self, kind: Kind, came: float) -> None:
        # A kind that has no run going on does not take from others.
        rivals = [each for each in self.kinds if each is kind or (kind.held and len(each.held) < each.workers)]
        for key, since in ((key, since) for rival in rivals for key, since in rival.changes.items()):
            if came > since + reasons.DELETED.handicap:
                raise WrongError(f"{key}: a later change goes first")
        room = kind.may_take_background() and (not kind.held or self.has_room())
        if not room or kind.last is not False or self.last is not False:
            return
        for key, since in kind.others.items():
            if key not in kind.changes and came > since + LAST_HANDICAP:
                raise WrongError(f"{key}: background work starves")

    def has_room(self) -> bool:
        of_all = sum(each.background for each in self.kinds)
        return self.held < self.limit and of_all < self.limit - kept(self.limit)

    def check_idle(self) -> None:
        """Nothing that may start waits."""
        for kind in self.kinds:
            if kind.changes and len(kind.held) < kind.workers and (self.held < self.limit or not kind.held):
                raise WrongError("a change waits, though a worker may serve it")
            due = any(since < self.now() for since in kind.others.values())
            if due and kind.may_take_background() and (self.has_room() or not kind.held):
                raise WrongError("background work waits, though a worker may serve it")

    async def worker(self, kind: Kind) -> None:
        while (request := await kind.queue.get()) is not None:
            key = request.key
            seen = kind.happened[key]
            await asyncio.sleep(self.rng.uniform(1, LONGEST) if self.rng.random() < 0.3 else 0.05)
            del kind.held[key]
            changed = kind.meanwhile.pop(key, None)
            if self.rng.random() < 0.15 and not self.over:
                delay = kind.queue.retry(key, Backoff(1.0, cap=LONGEST_RETRY), ran=True)
                if not changed:
                    kind.others[key] = self.now() + delay
                    kind.backing_off.add(key)
            else:
                kind.served[key] = max(kind.served[key], seen)
                kind.queue.succeeded(key)
                if changed is False:
                    kind.others[key] = self.now()
            if changed:
                kind.changes[key] = self.now()
            kind.queue.done(key)

    async def people(self) -> None:
        """Objects are there at start; then changes, and storms of background work."""
        for kind in self.kinds:
            for number in range(self.objects):
                self.happens(kind, ObjectKey("ns", str(number)), reasons.PRESENT)
        for _ in range(self.steps):
            await asyncio.sleep(self.rng.choice((0.0, 0.01, 0.5, 5.0)))
            kind = self.rng.choice(self.kinds)
            key = ObjectKey("ns", str(self.rng.randrange(self.objects)))
            act = self.rng.random()
            if act < 0.5:
                self.happens(kind, key, self.rng.choice(PERSON))
            elif act < 0.95:
                self.happens(kind, key, self.rng.choice(BACKGROUND))
            else:
                for number in range(self.rng.randrange(40)):
                    self.happens(kind, ObjectKey("ns", str(number)), reasons.RESYNC)

    async def watch(self) -> None:
        """Look now and then, at moments when nothing else happens."""
        while not self.over:
            await asyncio.sleep(0.7 + 1e-7 * self.rng.random())
            self.check_idle()

    async def settle(self) -> None:
        """Wait until all has been served, for as long as that may take one worker of each kind."""
        self.over = True
        longest = max(len(kind.changes) + len(kind.others) + 2 * len(kind.held) for kind in self.kinds)
        end = self.now() + LONGEST_RETRY + len(self.kinds) * longest * LONGEST
        while any(kind.happened != kind.served for kind in self.kinds):
            await asyncio.sleep(1)
            if self.now() > end:
                lost = sum(len(kind.happened - kind.served) for kind in self.kinds)
                raise WrongError(f"{lost} objects were not run after the last that happened to them")
        for kind in self.kinds:
            kind.queue.close()

    async def run(self) -> Counter[bool]:
        async with asyncio.TaskGroup() as group:
            for kind in self.kinds:
                for _ in range(kind.workers):
                    group.create_task(self.worker(kind))
            watching = group.create_task(self.watch())
            await self.people()
            await self.settle()
            watching.cancel()
        if self.dispatcher.limit.active or any(kind.queue.active for kind in self.kinds):
            raise WrongError("the limit counts requests though nothing runs")
        return self.starts


async def histories(seeds: range) -> Counter[bool]:
    starts: Counter[bool] = Counter()
    for seed in seeds:
        try:
            starts += await Simulation(seed).run()
        except* WrongError as wrong:
            errors = wrong.subgroup(lambda error: isinstance(error, WrongError))
            raise WrongError(f"seed {seed}: {errors!r}") from None
    return starts


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 40), marks=pytest.mark.nightly)])
def test_no_key_twice_at_once_none_lost_and_every_wait_bounded(seeds: range) -> None:
    starts = virtually(histories(seeds))
    assert min(starts.values()) > 250 * len(seeds), starts


_PUSH, _RETRY, _ADMITS = WorkQueue._push, WorkQueue.retry, ConcurrencyLimit.admits
