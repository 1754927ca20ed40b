"""Drift checks of many objects are spread over the period and yield to real runs, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from runner.core.queue import reasons
from runner.core.queue.line import ConcurrencyLimit
from runner.core.queue.queue import Dispatcher, WorkQueue
from runner.core.queue.reasons import RunReason
from runner.features.plan.drift import DriftSchedule
from runner.features.plan.feature import DRIFT
from runner.values.backoff import Backoff
from runner.values.objects import ObjectKey

pytestmark = pytest.mark.virtual_time


PERIOD = 3600.0
EPOCH = 1_750_000_000.0
KEY = ObjectKey("ns", "a")


class Bed:
    """A queue with one worker that records what it received, and a schedule."""

    def __init__(self) -> None:
        self.queue = WorkQueue(ConcurrencyLimit.of(1), Dispatcher(ConcurrencyLimit.of(1)))
        self.owned = True
        self.schedule = DriftSchedule(self.queue, PERIOD, self.check, lambda: EPOCH)
        self.received: list[tuple[str, RunReason, float]] = []

    def check(self, key: ObjectKey) -> None:
        if self.owned:
            self.queue.add(key, DRIFT)

    async def work(self) -> None:
        while (request := await self.queue.get()) is not None:
            self.received.append((request.key.name, request.reason, asyncio.get_running_loop().time()))
            self.queue.done(request.key)

    async def during(self, seconds: float) -> None:
        """Work for some time."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.work())
            sweeping = group.create_task(self.schedule.sweep())
            await asyncio.sleep(seconds)
            sweeping.cancel()
            self.queue.close()


async def test_each_object_is_checked_once_in_a_period_and_the_checks_are_spread() -> None:
    bed = Bed()
    names = [f"object-{number}" for number in range(120)]
    for name in names:
        bed.schedule.start(ObjectKey("ns", name), f"uid of {name}")
        bed.schedule.start(ObjectKey("ns", name), f"uid of {name}")
    await bed.during(PERIOD)
    assert sorted(name for name, _, _ in bed.received) == sorted(names)
    assert {reason for _, reason, _ in bed.received} == {DRIFT}
    quarters = [int(moment // (PERIOD / 4)) for _, _, moment in bed.received]
    assert min(map(quarters.count, range(4))) > len(names) / 8


async def test_an_object_is_checked_again_after_each_period_until_it_is_forgotten() -> None:
    bed = Bed()
    bed.schedule.start(KEY, "uid")
    asyncio.get_running_loop().call_later(3 * PERIOD, bed.schedule.forget, KEY)
    await bed.during(6 * PERIOD)
    first, second, third = (moment for _, _, moment in bed.received)
    assert (second - first, third - second) == (PERIOD, PERIOD)


async def test_a_check_replaces_no_run_that_its_role_requested_and_no_retry() -> None:
    for delayed in (lambda q: q.add_after(KEY, reasons.REQUEUED, 2 * PERIOD), _fail):
        bed = Bed()
        delayed(bed.queue)
        bed.schedule.start(KEY, "uid")
        await bed.during(PERIOD)
        assert bed.received == []


def _fail(queue: WorkQueue) -> None:
    queue.retry(KEY, Backoff(2 * PERIOD, cap=2 * PERIOD), ran=True)


async def test_a_check_is_omitted_while_the_object_waits_or_is_not_owned() -> None:
    bed = Bed()
    bed.owned = False
    bed.schedule.start(KEY, "uid")
    await bed.during(PERIOD)
    assert bed.received == []
    waits = Bed()
    waits.queue.add(KEY, reasons.CHANGED)
    waits.schedule.start(KEY, "uid")
    await asyncio.sleep(PERIOD)
    await waits.during(PERIOD / 100)
    assert [reason for _, reason, _ in waits.received] == [reasons.CHANGED]


async def test_a_check_leaves_the_periodic_run_to_win() -> None:
    bed = Bed()
    bed.queue.add(KEY, DRIFT)
    bed.queue.add(KEY, reasons.RESYNC)
    await bed.during(1)
    assert [reason for _, reason, _ in bed.received] == [reasons.RESYNC]
