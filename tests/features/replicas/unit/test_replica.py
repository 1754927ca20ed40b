"""Several replicas in virtual time, on a Lease that behaves as the API server's: who works on what, whatever fails."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest

from runner.features.replicas.election import LeaseRecord, LeaseTimes
from runner.features.replicas.replica import Replica
from runner.values.errors import ApiUnavailableError, ConflictError, LeaseLostError
from runner.values.lease_guard import LeaseGuard
from runner.values.objects import ObjectKey

pytestmark = pytest.mark.virtual_time


KEYS = [ObjectKey("ns", f"thing-{i}") for i in range(8)]
TIMES = LeaseTimes(lease=15, renew=10)


class Lease:
    """What the API server holds: a write names the version that it was made from."""

    def __init__(self) -> None:
        self.stored: tuple[LeaseRecord, str] | None = None
        self.writes = 0

    @property
    def version(self) -> str:
        return self.stored[1] if self.stored else ""

    @property
    def transitions(self) -> int:
        assert self.stored
        return self.stored[0].transitions

    def write(self, record: LeaseRecord, version: str) -> tuple[LeaseRecord, str]:
        if self.version != version:
            raise ConflictError("another client wrote first", status=409, reason="Conflict", retry_after=None)
        self.writes += 1
        self.stored = (record, str(self.writes))
        return self.stored


@dataclass
class Wire:
    """One replica's way to it."""

    lease: Lease
    is_cut: bool = False
    loses_answers: bool = False
    known: str = ""

    async def read(self) -> tuple[LeaseRecord, str] | None:
        await self._travel()
        self.known = self.lease.version
        return self.lease.stored

    async def write(self, record: LeaseRecord) -> tuple[LeaseRecord, str]:
        await self._travel()
        written = self.lease.write(record, self.known)
        if self.loses_answers:
            await self._travel(lost=True)
        self.known = written[1]
        return written

    async def _travel(self, *, lost: bool = False) -> None:
        await asyncio.sleep(0.01)
        if self.is_cut or lost:
            await asyncio.sleep(1)
            raise ApiUnavailableError("no answer")


class Timer:
    """What the kernel would do."""

    def __init__(self, die: Callable[[], None]) -> None:
        self._die = die
        self._handle: asyncio.TimerHandle | None = None
        self.due: float | None = None

    def arm(self, due: float | None) -> None:
        self.due = due
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None if due is None else asyncio.get_running_loop().call_at(due, self._die)


class Process:
    """A replica that runs each object all the time, as long as it leads."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.world = world
        self.wire = Wire(world.lease)
        self.timer = Timer(self.die)
        self.replica = Replica(self.wire, "op", world.times, me=name, clock=world.clock, deadline=self.timer)
        self.replica.listen(self._changed)
        self.terms = 0
        self.is_dead = False
        self.seconds_to_end = 0.0
        self.following = asyncio.create_task(self.replica.follow())
        self.tasks = [self.following, *(asyncio.create_task(self._work(key)) for key in KEYS)]

    def _changed(self) -> None:
        self.terms += self.leads()

    def leads(self) -> bool:
        return not self.is_dead and self.replica.leads()

    def die(self) -> None:
        self.is_dead = True
        for task in self.tasks:
            task.cancel()

    async def end(self) -> None:
        for task in self.tasks[1:]:
            task.cancel()
        self.replica.drain()
        await asyncio.wait([self.following])
        self.is_dead = True

    async def _work(self, key: ObjectKey) -> None:
        choice = random.Random(f"{self.name} {key}")
        while True:
            with self.replica.hold() as hold:
                if hold is not None:
                    with suppress(LeaseLostError):
                        await self._run(hold, key, choice.uniform(0.5, self.world.times.lease * 2))
            await asyncio.sleep(0.1)

    async def _run(self, hold: LeaseGuard, key: ObjectKey, seconds: float) -> None:
        async with hold.guard():
            self.world.begin(key, self)
            try:
                await asyncio.sleep(seconds)
                if hold.is_valid():
                    self.world.finish(key)
            except asyncio.CancelledError:
                await self._linger()
                raise
            finally:
                self.world.leave(key, self)

    async def _linger(self) -> None:
        """End slowly, however often the end is requested."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.seconds_to_end
        while loop.time() < end and not self.is_dead:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)


class World:
    """What is observed."""

    def __init__(self, times: LeaseTimes = TIMES) -> None:
        self.times = times
        self.lease = Lease()
        self.lateness = 0.0
        """How far timers are behind the clock."""
        self.running: dict[ObjectKey, Process] = {}
        self.finished: Counter[ObjectKey] = Counter()

    def clock(self) -> float:
        return asyncio.get_running_loop().time() + self.lateness

    def begin(self, key: ObjectKey, process: Process) -> None:
        other = self.running.get(key)
        assert other is None, f"{key} is run by two at once"
        self.running[key] = process

    def finish(self, key: ObjectKey) -> None:
        self.finished[key] += 1

    def leave(self, key: ObjectKey, process: Process) -> None:
        if self.running.get(key) is process:
            del self.running[key]


def raise_what_failed(*processes: Process) -> None:
    for process in processes:
        for task in process.tasks:
            if task.done() and not task.cancelled():
                task.result()


def stop(*processes: Process) -> None:
    raise_what_failed(*processes)
    for process in processes:
        process.die()


async def test_one_of_three_leads_and_a_clean_stop_hands_over_within_a_second_of_its_last_run() -> None:
    world = World()
    a, b, c = (Process(world, name) for name in "abc")
    await asyncio.sleep(5)
    assert sorted(each.leads() for each in (a, b, c)) == [False, False, True]
    leader = next(each for each in (a, b, c) if each.leads())
    others = [each for each in (a, b, c) if each is not leader]
    await leader.end()
    await asyncio.sleep(0.6)
    assert sorted(each.leads() for each in others) == [False, True]
    assert world.lease.transitions == 1
    stop(*others)


async def test_work_at_the_end_of_a_replica_may_begin_after_its_last_run_and_keeps_the_lease() -> None:
    world = World()
    leader = Process(world, "a")
    await asyncio.sleep(5)
    other = Process(world, "b")
    for task in leader.tasks[1:]:
        task.cancel()
    with leader.replica.hold():
        leader.replica.drain()
        await asyncio.sleep(1)
    with leader.replica.hold() as begins, leader.replica.hold(ends=True) as ends:
        assert begins is None
        assert ends is not None
        await asyncio.sleep(60)
        assert ends.is_valid()
        assert not other.leads()
    await asyncio.wait([leader.following])
    await asyncio.sleep(0.6)
    assert other.leads()
    with leader.replica.hold(ends=True) as ends:
        assert ends is None
    stop(other)


async def test_a_leader_that_dies_is_followed_when_its_lease_is_over_and_not_before() -> None:
    world = World()
    a = Process(world, "a")
    await asyncio.sleep(5)
    b = Process(world, "b")
    a.die()
    died = asyncio.get_running_loop().time()
    while not b.leads():
        await asyncio.sleep(0.1)
    waited = asyncio.get_running_loop().time() - died
    assert 15 - 2 - 0.1 <= waited <= 15 + 0.7
    stop(b)


async def test_a_leader_that_cannot_renew_ends_its_runs_before_another_replica_leads() -> None:
    world = World()
    a = Process(world, "a")
    await asyncio.sleep(5)
    b = Process(world, "b")
    a.wire.is_cut = True
    cut = asyncio.get_running_loop().time()
    while a.leads():
        await asyncio.sleep(0.05)
    assert asyncio.get_running_loop().time() - cut <= 10
    await asyncio.sleep(0.1)
    assert not world.running
    assert a.timer.due is None
    while not b.leads():
        await asyncio.sleep(0.1)
    a.wire.is_cut = False
    await asyncio.sleep(30)
    assert (a.leads(), b.leads()) == (False, True)
    assert not a.is_dead
    stop(a, b)


async def test_a_run_that_does_not_end_in_time_ends_with_the_process() -> None:
    world = World()
    a = Process(world, "a")
    a.seconds_to_end = 60
    while not world.running:
        await asyncio.sleep(0.1)
    a.wire.is_cut = True
    cut = asyncio.get_running_loop().time()
    while not a.is_dead:
        await asyncio.sleep(0.1)
    assert asyncio.get_running_loop().time() - cut <= TIMES.hard
    stop(a)


async def test_after_an_outage_without_another_leader_the_replica_leads_again() -> None:
    world = World()
    a = Process(world, "a")
    await asyncio.sleep(5)
    a.wire.is_cut = True
    await asyncio.sleep(30)
    assert not a.leads()
    a.wire.is_cut = False
    await asyncio.sleep(2)
    assert a.leads()
    assert a.terms == 2
    assert world.lease.transitions == 0
    stop(a)


async def test_objects_refused_during_a_late_renewal_are_requested_again() -> None:
    """As for a process that was stopped, or had no CPU: its clock has gone on, its timers have not been looked at."""

    world = World()
    a = Process(world, "a")
    await asyncio.sleep(5)
    for task in a.tasks[1:]:
        task.cancel()
    world.lateness = TIMES.renew + 1
    assert not a.leads()
    await asyncio.sleep(5)
    assert a.leads()
    assert a.terms == 2
    stop(a)


async def harm(process: Process, choice: random.Random) -> None:
    match choice.choice(["die", "end", "cut", "answers", "slow", "calm"]):
        case "die":
            process.die()
        case "end":
            await process.end()
        case "cut":
            process.wire.is_cut = True
        case "answers":
            process.wire.loses_answers = True
        case "slow":
            process.seconds_to_end = choice.uniform(0.1, 5)
        case _:
            process.wire.is_cut = process.wire.loses_answers = False


@pytest.mark.lengthy
@pytest.mark.parametrize(
    "seed",
    [
        0,
        *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 12)),
    ],
)
async def test_no_object_is_run_by_two_whatever_fails_and_all_are_run_in_the_end(seed: int) -> None:
    choice = random.Random(seed)
    world = World(LeaseTimes(lease=4, renew=2.5))
    processes = [Process(world, f"{seed}-{i}") for i in range(3)]
    for fault in range(40):
        await asyncio.sleep(choice.uniform(0.2, 4))
        await harm(choice.choice(processes), choice)
        for i, each in enumerate(processes):
            raise_what_failed(each)
            if each.is_dead:
                # What a process leaves when it is killed ends with it.
                world.running = {key: by for key, by in world.running.items() if by is not each}
                processes[i] = Process(world, f"{seed}-{fault}-{i}")
    for process in processes:
        process.wire.is_cut = process.wire.loses_answers = False
    await asyncio.sleep(15)
    world.finished.clear()
    await asyncio.sleep(120)
    assert set(world.finished) == set(KEYS)
    stop(*processes)
