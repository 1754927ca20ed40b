"""Several replicas in virtual time, on Leases that behave as the API server's: who works on what, whatever fails."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from runner.errors import ApiUnavailableError, ConflictError, LeaseLostError
from runner.objects import GVK, ObjectKey
from runner.replicas.election import LeaseLayout, LeaseRecord, LeaseTimes
from runner.replicas.lease_guard import LeaseGuard, SoleReplica
from runner.replicas.replica import Replica

pytestmark = pytest.mark.virtual_time


THING = GVK("test.example.com", "v1", "Thing")
KEYS = [ObjectKey("ns", f"thing-{i}") for i in range(8)]
TIMES = LeaseTimes(lease=15, renew=10)


class Leases:
    """What the API server holds: a write names the version that it was made from."""

    def __init__(self) -> None:
        self.records: dict[str, tuple[LeaseRecord, str]] = {}
        self.writes = 0

    def write(self, name: str, record: LeaseRecord, version: str) -> tuple[LeaseRecord, str]:
        if self.records.get(name, (None, ""))[1] != version:
            raise ConflictError("another client wrote first", status=409, reason="Conflict", retry_after=None)
        self.writes += 1
        self.records[name] = (record, str(self.writes))
        return self.records[name]


@dataclass
class Wire:
    """One replica's way to them."""

    leases: Leases
    is_cut: bool = False
    loses_answers: bool = False
    known: dict[str, str] = field(default_factory=dict)

    async def read(self, names: Collection[str]) -> dict[str, tuple[LeaseRecord, str]]:
        await self._travel()
        found = {name: self.leases.records[name] for name in names if name in self.leases.records}
        self.known = {name: version for name, (_, version) in found.items()}
        return found

    async def write(self, name: str, record: LeaseRecord) -> tuple[LeaseRecord, str]:
        await self._travel()
        written = self.leases.write(name, record, self.known.get(name, ""))
        if self.loses_answers:
            await self._travel(lost=True)
        self.known[name] = written[1]
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
    """A replica that runs each object all the time, as long as it owns it."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.world = world
        self.wire = Wire(world.leases)
        self.timer = Timer(self.die)
        self.replica = Replica(self.wire, world.layout, world.times, me=name, clock=world.clock, deadline=self.timer)
        self.replica.listen(self)
        self.gains: Counter[int] = Counter()
        self.is_dead = False
        self.seconds_to_end = 0.0
        self.following = asyncio.create_task(self.replica.follow())
        self.tasks = [self.following, *(asyncio.create_task(self._work(key)) for key in KEYS)]

    def gained(self, shard: int) -> None:
        self.gains[shard] += 1

    def lost(self, shard: int) -> None:
        self.gains[shard] += 0

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
            with self.replica.hold(THING, key) as hold:
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

    def __init__(self, shards: int, times: LeaseTimes = TIMES) -> None:
        self.layout = LeaseLayout("op", shards)
        self.times = times
        self.leases = Leases()
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

    def shards_of(self, *processes: Process) -> list[int]:
        return sorted(len(process.replica.held) for process in processes if not process.is_dead)


def raise_what_failed(*processes: Process) -> None:
    for process in processes:
        for task in process.tasks:
            if task.done() and not task.cancelled():
                task.result()


def stop(*processes: Process) -> None:
    raise_what_failed(*processes)
    for process in processes:
        process.die()


def test_a_single_replica_owns_all_objects() -> None:
    alone = SoleReplica()
    assert alone.owns(THING, KEYS[0])
    with alone.hold(THING, KEYS[0]) as hold:
        hold.check()


async def test_one_of_three_leads_and_a_clean_stop_hands_over_within_a_second_of_its_last_run() -> None:
    world = World(1)
    a, b, c = (Process(world, name) for name in "abc")
    await asyncio.sleep(5)
    assert world.shards_of(a, b, c) == [0, 0, 1]
    leader = next(each for each in (a, b, c) if each.replica.held)
    others = [each for each in (a, b, c) if each is not leader]
    await leader.end()
    await asyncio.sleep(0.6)
    assert world.shards_of(*others) == [0, 1]
    assert world.leases.records["op"][0].transitions == 1
    stop(*others)


async def test_a_leader_that_dies_is_followed_when_its_lease_is_over_and_not_before() -> None:
    world = World(1)
    a = Process(world, "a")
    await asyncio.sleep(5)
    b = Process(world, "b")
    a.die()
    died = asyncio.get_running_loop().time()
    while not b.replica.held:
        await asyncio.sleep(0.1)
    waited = asyncio.get_running_loop().time() - died
    assert 15 - 2 - 0.1 <= waited <= 15 + 0.7
    stop(b)


async def test_a_leader_that_cannot_renew_ends_its_runs_before_another_replica_leads() -> None:
    world = World(1)
    a = Process(world, "a")
    await asyncio.sleep(5)
    b = Process(world, "b")
    a.wire.is_cut = True
    cut = asyncio.get_running_loop().time()
    while a.replica.held:
        await asyncio.sleep(0.05)
    assert asyncio.get_running_loop().time() - cut <= 10
    await asyncio.sleep(0.1)
    assert not world.running
    assert a.timer.due is None
    while not b.replica.held:
        await asyncio.sleep(0.1)
    a.wire.is_cut = False
    await asyncio.sleep(30)
    assert world.shards_of(a, b) == [0, 1]
    assert not a.is_dead
    stop(a, b)


async def test_a_run_that_does_not_end_in_time_ends_with_the_process() -> None:
    world = World(1)
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
    world = World(1)
    a = Process(world, "a")
    await asyncio.sleep(5)
    a.wire.is_cut = True
    await asyncio.sleep(30)
    assert not a.replica.held
    a.wire.is_cut = False
    await asyncio.sleep(2)
    assert a.replica.held == {0}
    assert a.gains[0] == 2
    assert world.leases.records["op"][0].transitions == 0
    stop(a)


@pytest.mark.parametrize("shards", [1, 3])
async def test_objects_refused_during_a_late_renewal_are_requested_again(shards: int) -> None:
    """As for a process that was stopped, or had no CPU: its clock has gone on, its timers have not been looked at."""

    world = World(shards)
    a = Process(world, "a")
    await asyncio.sleep(5)
    for task in a.tasks[1:]:
        task.cancel()
    before = Counter(a.gains)
    world.lateness = TIMES.renew + 1
    assert not a.replica.held
    await asyncio.sleep(5)
    assert world.shards_of(a) == [shards]
    assert a.gains == {shard: count + 1 for shard, count in before.items()}
    stop(a)


@pytest.mark.lengthy
async def test_shards_level_out_as_replicas_come_and_go_and_then_stay() -> None:
    world = World(8)
    a = Process(world, "a")
    await asyncio.sleep(5)
    assert (world.shards_of(a), a.replica.has_all()) == ([8], True)
    b, c = Process(world, "b"), Process(world, "c")
    await asyncio.sleep(30)
    assert world.shards_of(a, b, c) == [2, 3, 3]
    assert not any(each.replica.has_all() for each in (a, b, c))
    moves = sum((each.gains for each in (a, b, c)), Counter()).total()
    assert moves <= 8 + 6
    await asyncio.sleep(200)
    assert sum((each.gains for each in (a, b, c)), Counter()).total() == moves
    b.die()
    await asyncio.sleep(20)
    assert world.shards_of(a, c) == [4, 4]
    await a.end()
    await asyncio.sleep(2)
    assert (world.shards_of(c), c.replica.has_all()) == ([8], True)
    stop(c)


@pytest.mark.lengthy
async def test_more_replicas_than_shards_leave_some_without() -> None:
    world = World(2)
    processes = [Process(world, name) for name in "abc"]
    # Who is first may take both, and gives one away when its runs, of two lease times at most, have ended.
    await asyncio.sleep(TIMES.lease * 4)
    assert world.shards_of(*processes) == [0, 1, 1]
    next(each for each in processes if each.replica.held).die()
    await asyncio.sleep(TIMES.lease * 4)
    assert world.shards_of(*processes) == [1, 1]
    stop(*processes)


@pytest.mark.lengthy
async def test_replicas_of_another_number_of_shards_wait_for_the_end_of_these() -> None:
    world = World(4)
    old = [Process(world, name) for name in "ab"]
    await asyncio.sleep(5)
    world.layout = LeaseLayout("op", 3)
    new = Process(world, "c")
    await asyncio.sleep(60)
    assert world.shards_of(new) == [0]
    for each in old:
        await each.end()
    await asyncio.sleep(2)
    assert world.shards_of(new) == [3]
    stop(new)


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
@pytest.mark.parametrize("shards", [1, 6])
@pytest.mark.parametrize(
    "seed",
    [
        0,
        *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2)),
        *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(3, 12)),
    ],
)
async def test_no_object_is_run_by_two_whatever_fails_and_all_are_run_in_the_end(shards: int, seed: int) -> None:
    choice = random.Random(seed)
    world = World(shards, LeaseTimes(lease=4, renew=2.5))
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
