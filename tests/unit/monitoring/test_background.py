"""Background work: an error ends neither it nor the operator."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from runner.base.monitoring.background import Background
from runner.values.errors import ApiUnavailableError

pytestmark = pytest.mark.virtual_time


@pytest.mark.lengthy
async def test_work_that_fails_begins_again_with_backoff_and_other_work_continues(
    capsys: pytest.CaptureFixture[str],
) -> None:
    counted, began, steps = list[str](), list[float](), list[int]()
    background, clock = Background(counted.append), asyncio.get_running_loop().time

    async def fails() -> None:
        began.append(clock())
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1000))
            if len(began) < 5:
                raise KeyError("x")

    async def works() -> None:
        while True:
            await asyncio.sleep(1)
            steps.append(1)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(background.keep(name, work)) for name, work in (("a", fails), ("b", works))]
        await asyncio.sleep(200)
        assert counted == ["a"] * 4
        assert background.notes() == {"background/a": "KeyError: 'x'"}
        assert [0.5 <= later - earlier <= 8 for earlier, later in pairwise(began)] == [True] * 4
        assert len(steps) >= 199
        await asyncio.sleep(400)
        assert background.notes() == {}
        for task in tasks:
            task.cancel()
    assert capsys.readouterr().out.count("Background work failed") == 1


async def test_work_that_ends_by_itself_is_not_repeated_and_a_known_error_has_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcomes: list[Exception | None] = [ApiUnavailableError("away"), FileNotFoundError("playbooks"), None]

    async def work() -> None:
        if (error := outcomes.pop(0)) is not None:
            raise error

    background = Background()
    await background.keep("a", work)
    assert outcomes == []
    assert background.notes() == {"background/a": "FileNotFoundError: playbooks"}
    assert "Traceback" not in capsys.readouterr().out
