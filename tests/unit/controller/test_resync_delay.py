"""Periodic runs of many objects are spread over the period, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from uuid import UUID

import pytest

from runner.core.queue import reasons
from runner.core.queue.concurrency import ConcurrencyLimit
from runner.core.queue.queue import Dispatcher, WorkQueue
from runner.core.reconcile import decisions
from runner.values.objects import ObjectKey

pytestmark = pytest.mark.virtual_time


PERIOD = 3600.0
EPOCH = 1_750_000_000.0


def uids(seed: int, number: int) -> list[str]:
    rng = random.Random(seed)
    return [str(UUID(int=rng.getrandbits(128))) for _ in range(number)]


async def periodic_runs(names: list[str], epoch: float, seconds: float) -> list[tuple[str, float]]:
    """Run all at once, as they are when the operator starts, then periodically; return when each resync began."""
    queue = WorkQueue(ConcurrencyLimit.of(4), Dispatcher(ConcurrencyLimit.of(4)))
    loop = asyncio.get_running_loop()
    began: list[tuple[str, float]] = []

    async def work() -> None:
        while (request := await queue.get()) is not None:
            now = epoch + loop.time()
            if request.reason is reasons.RESYNC:
                began.append((request.key.name, now))
            settled = request.reason is not reasons.PRESENT
            queue.succeeded(request.key)
            queue.add_after(
                request.key, reasons.RESYNC, decisions.resync_delay(PERIOD, request.key.name, now, settled=settled)
            )
            queue.done(request.key)

    for name in names:
        queue.add(ObjectKey("ns", name), reasons.PRESENT)
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(work())
        await asyncio.sleep(seconds)
        queue.close()
    return began


def fullest(began: list[tuple[str, float]], parts: int = 60) -> int:
    """How many runs begin in the fullest of so many parts of a period."""
    return max(Counter(int(at % PERIOD / PERIOD * parts) for _, at in began).values())


@pytest.mark.lengthy
async def test_objects_present_at_start_resync_spread_over_the_whole_period_and_each_once_in_it() -> None:
    names = uids(1, 3000)
    first = await periodic_runs(names, EPOCH, PERIOD)
    assert Counter(name for name, _ in first) == Counter(names)
    # 50 to a minute, were they spread evenly; by chance, some more.
    assert fullest(first) < 90


async def test_a_restart_moves_no_resync() -> None:
    names = uids(2, 50)
    before = await periodic_runs(names, EPOCH, 2 * PERIOD)
    after = await periodic_runs(names, EPOCH + 1.7 * PERIOD, PERIOD)
    phase = {name: at % PERIOD for name, at in before}
    for name, at in after:
        assert at % PERIOD == pytest.approx(phase[name], abs=0.01)


def test_after_a_change_the_resync_comes_within_the_period_and_not_before_half_of_it() -> None:
    for number, uid in enumerate(uids(3, 2000)):
        seconds = decisions.resync_delay(PERIOD, uid, EPOCH + number, settled=True)
        assert PERIOD / 2 <= seconds <= PERIOD


def test_each_object_settles_on_a_resync_time_of_its_own() -> None:
    uid = uids(4, 1)[0]
    times = []
    for start in range(0, int(PERIOD), 97):
        now = EPOCH + start
        for _ in range(4):
            now += decisions.resync_delay(PERIOD, uid, now, settled=True)
        times.append(now % PERIOD)
        assert decisions.resync_delay(PERIOD, uid, now, settled=True) == pytest.approx(PERIOD, abs=0.01)
    assert max(times) - min(times) < 0.01


def test_objects_that_changed_at_once_do_not_resync_at_once() -> None:
    waits = [("", decisions.resync_delay(PERIOD, uid, EPOCH, settled=True)) for uid in uids(5, 3000)]
    # All in the second half of the period, most in its first half: 3 of 4 in a quarter.
    assert fullest(waits) < 200
