"""A share of the workers is not for background work, within a kind and over all kinds. Virtual time."""

from __future__ import annotations

import asyncio

import pytest

from runner.core.queue import reasons
from runner.core.queue.line import ConcurrencyLimit
from runner.core.queue.queue import Dispatcher, WorkQueue
from runner.core.queue.reasons import RunReason
from runner.values.objects import ObjectKey
from tests.kit.reasons import REASONS

pytestmark = pytest.mark.virtual_time


RUN = 10.0
"""Seconds that a run takes."""


class Kind:
    """A kind's queue and its workers, each of which holds what it gets for RUN seconds."""

    def __init__(self, workers: int, dispatcher: Dispatcher) -> None:
        self.queue = WorkQueue(ConcurrencyLimit.of(workers), dispatcher)
        self.workers = workers
        self.began: dict[str, float] = {}
        self.most = 0

    async def work(self) -> None:
        while (request := await self.queue.get()) is not None:
            self.began[request.key.name] = asyncio.get_running_loop().time()
            self.most = max(self.most, self.queue.active)
            await asyncio.sleep(RUN)
            self.queue.succeeded(request.key)
            self.queue.done(request.key)

    def add(self, name: str, reason: RunReason, namespace: str = "ns") -> None:
        self.queue.add(ObjectKey(namespace, name), reason)

    def present(self, number: int = 500) -> None:
        for each in range(number):
            self.add(f"present-{each}", reasons.PRESENT)


async def began_after(
    kinds: list[Kind],
    late: Kind,
    moment: float,
    reason: RunReason = reasons.CHANGED,
    namespace: str = "ns",
) -> float:
    """Add an object after a time, and return how long it waited; all workers are at work."""
    async with asyncio.TaskGroup() as group:
        for kind in kinds:
            for _ in range(kind.workers):
                group.create_task(kind.work())
        await asyncio.sleep(moment)
        added = asyncio.get_running_loop().time()
        late.add("late", reason, namespace)
        while "late" not in late.began:
            await asyncio.sleep(RUN / 100)
        for kind in kinds:
            kind.queue.close()
    return late.began["late"] - added


@pytest.mark.parametrize("moment", [1.0, 100.0, 2000.0], ids=lambda at: f"after {at:.0f} s")
@pytest.mark.parametrize("reason", [reasons.CHANGED, reasons.CREATED, reasons.DELETED])
async def test_a_change_starts_at_once_however_many_objects_were_present_at_start(
    moment: float, reason: RunReason
) -> None:
    kind = Kind(2, Dispatcher(ConcurrencyLimit.of(4)))
    kind.present()
    assert await began_after([kind], kind, moment, reason) == 0


@pytest.mark.parametrize(
    "reason", [reason for reason in REASONS if reason.is_background], ids=lambda reason: reason.value
)
async def test_no_background_reason_uses_reserved_workers(reason: RunReason) -> None:
    kind = Kind(4, Dispatcher(ConcurrencyLimit.of(8)))
    for number in range(100):
        kind.add(str(number), reason)
    await asyncio.sleep(2 * reasons.RESYNC.handicap)
    assert await began_after([kind], kind, 1.0) == 0
    assert kind.most == 4


async def test_with_one_worker_a_change_waits_only_for_the_active_run() -> None:
    kind = Kind(1, Dispatcher(ConcurrencyLimit.of(2)))
    kind.present()
    assert await began_after([kind], kind, 1001.0) == pytest.approx(9.0)


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("flood", [reasons.CREATED, reasons.REQUESTED, reasons.DEPENDENT, reasons.RETRY])
@pytest.mark.parametrize("reason", [reasons.CREATED, reasons.DEPENDENT, reasons.RETRY])
async def test_many_objects_of_one_namespace_delay_another_namespace_by_two_runs_at_most(
    workers: int, flood: RunReason, reason: RunReason
) -> None:
    kind = Kind(workers, Dispatcher(ConcurrencyLimit.of(workers)))
    for number in range(600):
        kind.add(f"tenant-{number}", flood, "tenant")
    # One more if both are background work: the first of the other namespace is due only after its handicap.
    most = 2 * RUN + (reason.handicap if reason.is_background else 0.0)
    assert await began_after([kind], kind, 101.0, reason, "victim") <= most


async def test_changes_without_end_leave_one_start_in_two_to_what_has_waited_out_its_handicap() -> None:
    kind = Kind(1, Dispatcher(ConcurrencyLimit.of(1)))
    kind.add("resync", reasons.RESYNC)
    async with asyncio.TaskGroup() as group:
        group.create_task(kind.work())
        for number in range(100):
            kind.add(f"change-{number}", reasons.CHANGED)
            await asyncio.sleep(RUN)
        kind.queue.close()
    assert reasons.RESYNC.handicap <= kind.began["resync"] <= reasons.RESYNC.handicap + 2 * RUN


async def test_the_kinds_do_not_exceed_their_common_limit_and_each_has_at_least_one_run() -> None:
    dispatcher = Dispatcher(ConcurrencyLimit.of(4))
    busy, others = Kind(10, dispatcher), [Kind(10, dispatcher) for _ in range(3)]
    for number in range(50):
        busy.add(str(number), reasons.CREATED)
    async with asyncio.TaskGroup() as group:
        for kind in (busy, *others):
            for _ in range(kind.workers):
                group.create_task(kind.work())
        await asyncio.sleep(1)
        assert busy.queue.active == 4
        for kind in others:
            kind.present()
        await asyncio.sleep(1)
        assert [kind.queue.active for kind in (busy, *others)] == [4, 1, 1, 1]
        for kind in (busy, *others):
            kind.queue.close()


@pytest.mark.parametrize(("workers", "background"), [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (64, 48)])
def test_a_quarter_is_kept_and_at_least_one_of_two(workers: int, background: int) -> None:
    assert ConcurrencyLimit.of(workers).background == background
