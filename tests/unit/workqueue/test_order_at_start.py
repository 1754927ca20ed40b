"""Which objects run first after a restart, by the results in their statuses. Virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest

from runner.core.queue import reasons
from runner.core.queue.line import ConcurrencyLimit
from runner.core.queue.queue import Dispatcher, WorkQueue
from runner.values.objects import LastResult, ObjectKey, last_result

pytestmark = pytest.mark.virtual_time

SUCCEEDED, FAILED, OUTDATED, NONE = LastResult.SUCCEEDED, LastResult.FAILED, LastResult.OUTDATED, LastResult.NONE


def obj(*conditions: object, generation: int | None = 2) -> dict[str, Any]:
    return {"metadata": {"generation": generation}, "status": {"conditions": list(conditions)}}


def condition(kind: str, status: str = "True", observed: int | None = 2, reason: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "observedGeneration": observed}


RUNNING = condition("Running", reason="Running")
ENDED = condition("Running", reason="Successful")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"metadata": {}}, NONE),
        ({"metadata": {}, "status": "odd"}, NONE),
        ({"metadata": {}, "status": {"conditions": "odd"}}, NONE),
        (obj("odd", {"type": ["odd"]}), NONE),
        (obj(condition("Ready")), NONE),
        (obj(RUNNING), NONE),
        (obj(ENDED, condition("Successful")), SUCCEEDED),
        (obj(ENDED), SUCCEEDED),
        (obj(ENDED, condition("Successful", observed=None)), SUCCEEDED),
        (obj(ENDED, condition("Successful", observed=1), generation=None), SUCCEEDED),
        (obj(ENDED, condition("Successful", observed=1)), OUTDATED),
        (obj(condition("Failure", observed=1), condition("Successful", "False", 1)), OUTDATED),
        (obj(RUNNING, condition("Successful", "False")), OUTDATED),
        (obj(condition("Running", "False"), condition("Failure"), condition("Successful", "False")), FAILED),
        (obj(ENDED, condition("Successful"), condition("Failure", "False")), SUCCEEDED),
    ],
)
def test_the_conditions_show_the_result_of_the_last_run(found: dict[str, Any], expected: LastResult) -> None:
    assert last_result(found) is expected


class Start:
    """A queue after a restart, with one worker whose runs take ten seconds."""

    def __init__(self) -> None:
        self.queue = WorkQueue(ConcurrencyLimit.of(1), Dispatcher(ConcurrencyLimit.of(1)))
        self.ran: list[str] = []

    async def work(self, count: int) -> None:
        while len(self.ran) < count:
            request = await self.queue.get()
            assert request is not None
            self.ran.append(request.key.name)
            await asyncio.sleep(10)
            self.queue.succeeded(request.key)
            self.queue.done(request.key)

    def kinds(self) -> Iterator[str]:
        return (kind for kind, _ in groupby(name.partition("-")[0] for name in self.ran))


async def test_objects_that_never_ran_run_first_then_changed_ones_then_failed_ones_then_the_rest() -> None:
    start = Start()
    start.queue.hold_reruns()
    worker = asyncio.create_task(start.work(40))
    for number in range(10):
        for result in (SUCCEEDED, FAILED, OUTDATED, NONE):
            start.queue.add_at_start(ObjectKey("ns", f"{result.name}-{number}"), result)
        await asyncio.sleep(0.1)
    start.queue.release_reruns()
    await worker
    assert list(start.kinds()) == ["NONE", "OUTDATED", "FAILED", "SUCCEEDED"]


async def test_reruns_wait_for_the_first_list_and_all_other_requests_do_not() -> None:
    start = Start()
    start.queue.hold_reruns()
    worker = asyncio.create_task(start.work(3))
    start.queue.add_at_start(ObjectKey("ns", "rerun"), SUCCEEDED)
    await asyncio.sleep(1)
    assert start.ran == []
    start.queue.add(ObjectKey("ns", "created"), reasons.CREATED)
    start.queue.add(ObjectKey("ns", "dependent"), reasons.DEPENDENT)
    await asyncio.sleep(30)
    assert start.ran == ["created", "dependent"]
    start.queue.release_reruns()
    await worker
    assert start.ran[-1] == "rerun"


async def test_a_rerun_that_waits_behind_later_requests_starts_after_ten_minutes_at_the_latest() -> None:
    start = Start()
    start.queue.add(ObjectKey("ns", "first"), reasons.CREATED)
    start.queue.add_at_start(ObjectKey("ns", "rerun"), SUCCEEDED)
    worker = asyncio.create_task(start.work(200))
    for number in range(90):
        start.queue.add(ObjectKey("ns", f"retry-{number}"), reasons.RETRY)
        await asyncio.sleep(10)
    assert 55 <= start.ran.index("rerun") <= 62
    worker.cancel()


async def test_a_request_keeps_its_rank_at_start_if_another_one_for_its_object_comes() -> None:
    start = Start()
    start.queue.add(ObjectKey("ns", "first"), reasons.CREATED)
    start.queue.add_at_start(ObjectKey("ns", "failed"), FAILED)
    start.queue.add_at_start(ObjectKey("ns", "new"), NONE)
    start.queue.add_at_start(ObjectKey("ns", "new"), SUCCEEDED)
    start.queue.add(ObjectKey("ns", "new"), reasons.RESYNC)
    await start.work(3)
    assert start.ran == ["first", "new", "failed"]
