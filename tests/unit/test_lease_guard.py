"""What a hold on an object does to what goes on under it."""

from __future__ import annotations

import asyncio

import pytest

from runner.values.errors import LeaseLostError
from runner.values.lease_guard import LeaseGuard

pytestmark = pytest.mark.virtual_time


def test_an_expired_lease_is_refused_before_its_loss_is_reported() -> None:
    valid = True
    hold = LeaseGuard(lambda: valid)
    hold.check()
    valid = False
    with pytest.raises(LeaseLostError):
        hold.check()


async def test_guarded_work_is_canceled_when_the_lease_is_lost_and_can_clean_up() -> None:
    loop = asyncio.get_running_loop()
    hold = LeaseGuard(lambda: True)
    loop.call_later(3, hold.lose)
    ended = []

    async def work() -> None:
        async with hold.guard():
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(2)
                ended.append(loop.time())

    with pytest.raises(LeaseLostError):
        await work()
    assert ended == [pytest.approx(5)]


async def test_a_timeout_within_the_guard_stays_a_timeout() -> None:
    hold = LeaseGuard(lambda: True)
    with pytest.raises(TimeoutError):
        async with hold.guard(), asyncio.timeout(1):
            await asyncio.sleep(60)


async def test_no_work_starts_after_the_lease_is_lost() -> None:
    hold = LeaseGuard(lambda: True)
    hold.lose()
    calls = []
    hold.when_lost(lambda: calls.append(True))
    assert calls == [True]
    with pytest.raises(LeaseLostError):
        async with hold.guard():
            pytest.fail("this must not run")


async def test_a_lease_lost_after_the_work_raises_nothing() -> None:
    hold = LeaseGuard(lambda: True)
    async with hold.guard():
        await asyncio.sleep(1)
    hold.lose()
    await asyncio.sleep(1)
