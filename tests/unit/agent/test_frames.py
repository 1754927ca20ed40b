"""What all parts of the agent use."""

from __future__ import annotations

import asyncio

import pytest

from runner.agent import frames
from tests.kit.wait import patience


async def test_a_cancellation_at_the_moment_of_the_result_is_not_ignored() -> None:
    for steps in range(4):  # of the event loop, between the result and the cancellation
        result = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(_wait_twice(result))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        result.set_result(1)
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, patience())


async def _wait_twice(result: asyncio.Future[int]) -> None:
    await frames.within(10, result)
    await asyncio.Event().wait()


async def test_a_time_limit_ends_what_it_limits() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(asyncio.TimeoutError):
        await frames.within(0.01, work())
    assert ended.is_set()
