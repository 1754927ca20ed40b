"""Behaviours of the work queue, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from runner.core.queue import reasons
from runner.core.queue.line import ConcurrencyLimit
from runner.core.queue.queue import Dispatcher, WorkQueue
from runner.core.queue.reasons import DEPENDENT_STATUS_HANDICAP, ReconcileRequest
from runner.values.backoff import MAX_BACKOFF, Backoff
from runner.values.objects import ObjectKey

pytestmark = pytest.mark.virtual_time


A, B, C = (ObjectKey("ns", name) for name in "abc")


def a_queue(workers: int = 8) -> WorkQueue:
    """The queue of a kind that is alone."""
    return WorkQueue(ConcurrencyLimit.of(workers), Dispatcher(ConcurrencyLimit.of(workers)))


async def _take(queue: WorkQueue) -> ReconcileRequest:
    request = await queue.get()
    assert request is not None
    return request


async def _drain(queue: WorkQueue) -> list[ObjectKey]:
    taken = []
    while len(queue):
        request = await _take(queue)
        queue.done(request.key)
        taken.append(request.key)
    return taken


async def test_a_run_for_a_changed_status_goes_behind_one_for_a_changed_spec_and_behind_new_objects() -> None:
    queue = a_queue()
    queue.add(A, reasons.DEPENDENT, ("Deployment x status.readyReplicas changed",), DEPENDENT_STATUS_HANDICAP)
    await asyncio.sleep(reasons.DEPENDENT.handicap + 1)
    queue.add(B, reasons.DEPENDENT, ("Deployment y spec changed",))
    queue.add(C, reasons.CREATED)
    assert await _drain(queue) == [C, B, A]


async def test_a_changed_spec_of_a_dependent_moves_up_the_run_for_its_status() -> None:
    queue = a_queue()
    queue.add(A, reasons.DEPENDENT, ("status changed",), DEPENDENT_STATUS_HANDICAP)
    queue.add(A, reasons.DEPENDENT, ("spec changed",))
    await asyncio.sleep(1)
    queue.add(B, reasons.DEPENDENT, ("spec changed",))
    assert await _drain(queue) == [A, B]


async def test_a_change_moves_up_what_waits_for_a_background_run_and_takes_its_place() -> None:
    queue = a_queue()
    for key in (A, B, C):
        queue.add(key, reasons.PRESENT)
    await asyncio.sleep(1)
    queue.add(C, reasons.CHANGED, ("spec.size",))
    request = await _take(queue)
    assert (request.key, request.reason, request.details) == (C, reasons.CHANGED, ("spec.size",))
    assert request.waited == pytest.approx(1)
    queue.done(C)
    assert await _drain(queue) == [A, B]
    assert queue.adds == 3


async def test_details_are_collected_for_the_most_urgent_reason() -> None:
    queue = a_queue()
    queue.add(A, reasons.RESYNC)
    await asyncio.sleep(reasons.RESYNC.handicap + 1)
    for field in ("spec.a", "spec.b", "spec.a"):
        queue.add(A, reasons.CHANGED, (field,))
    queue.add(A, reasons.DEPENDENT, ("Deployment x was deleted",))
    request = await _take(queue)
    assert (request.reason, request.details) == (reasons.CHANGED, ("spec.a", "spec.b"))
    queue.add(A, reasons.DEPENDENT, ("Deployment x was deleted",))
    queue.done(A)
    assert (await _take(queue)).details == ("Deployment x was deleted",)


async def test_a_key_is_never_handed_out_twice_at_once_and_runs_once_more_when_it_changed_meanwhile() -> None:
    queue = a_queue()
    queue.add(A, reasons.CREATED)
    await _take(queue)
    queue.add(A, reasons.CHANGED)
    queue.add(A, reasons.DEPENDENT)
    assert len(queue) == 0
    queue.done(A)
    assert (await _take(queue)).reason is reasons.CHANGED
    queue.done(A)
    assert len(queue) == 0


async def test_changes_before_the_object_is_read_are_handled_by_the_same_run() -> None:
    queue = a_queue()
    queue.add(A, reasons.GONE)
    request = await _take(queue)
    queue.add(A, reasons.CREATED, ("spec",))
    request = queue.begun(request)
    assert (request.reason, request.details) == (reasons.CREATED, ("spec",))
    assert queue.begun(request) == request
    queue.add(A, reasons.CHANGED)
    queue.done(A)
    assert (await _take(queue)).reason is reasons.CHANGED
    queue.done(A)
    assert len(queue) == 0


async def test_a_change_before_the_object_is_read_starts_the_count_of_failures_over() -> None:
    queue = a_queue()
    queue.add(A, reasons.CHANGED)
    request = await _take(queue)
    queue.retry(A, Backoff(1.0), ran=True)
    queue.done(A)
    request = await _take(queue)
    assert (request.failures, request.failed_runs) == (1, 1)
    queue.add(A, reasons.CHANGED)
    request = queue.begun(request)
    assert (request.reason, request.failures, request.failed_runs) == (reasons.CHANGED, 0, 0)


async def test_backoff_doubles_up_to_the_cap_and_starts_over_with_a_change() -> None:
    queue = a_queue()
    loop = asyncio.get_running_loop()
    queue.add(A, reasons.CREATED)
    delays = []
    for _ in range(13):
        await _take(queue)
        delays.append(queue.retry(A, Backoff(1.0), ran=True))
        queue.done(A)
        before = loop.time()
        request = await _take(queue)
        assert loop.time() - before == pytest.approx(delays[-1])
        assert request.reason is reasons.RETRY
        queue.done(A)
        queue.add(A, reasons.RETRY)
    assert delays[:4] == [1, 2, 4, 8]
    assert delays[-1] == MAX_BACKOFF
    queue.add(A, reasons.CHANGED)
    request = await _take(queue)
    assert request.failures == 0
    assert queue.retry(A, Backoff(1.0), ran=True) == 1.0


async def test_runs_that_failed_are_counted_apart_from_writes_that_came_too_late() -> None:
    queue = a_queue()
    queue.add(A, reasons.CREATED)
    for ran in (True, False, True):
        await _take(queue)
        queue.retry(A, Backoff(1.0), ran=ran)
        queue.done(A)
    request = await _take(queue)
    assert (request.failures, request.failed_runs) == (3, 2)


async def test_a_dependent_does_not_cut_a_backoff_short_but_a_change_does() -> None:
    queue = a_queue()
    queue.add(A, reasons.CREATED)
    await _take(queue)
    queue.add(A, reasons.DEPENDENT)
    assert queue.retry(A, Backoff(8.0), ran=True) == 8.0
    queue.done(A)
    queue.add(A, reasons.DEPENDENT)
    assert len(queue) == 0
    queue.add(A, reasons.CHANGED)
    assert len(queue) == 1


async def test_a_change_during_a_failing_run_is_served_at_once() -> None:
    queue = a_queue()
    queue.add(A, reasons.CREATED)
    await _take(queue)
    queue.add(A, reasons.CHANGED)
    assert queue.retry(A, Backoff(8.0), ran=True) == 0.0
    queue.done(A)
    assert (await _take(queue)).failures == 0


async def test_the_earlier_of_two_delays_wins() -> None:
    queue = a_queue()
    loop = asyncio.get_running_loop()
    queue.add_after(A, reasons.RESYNC, 100)
    queue.add_after(A, reasons.REQUEUED, 10)
    queue.add_after(A, reasons.RESYNC, 50)
    assert (await _take(queue)).reason is reasons.REQUEUED
    assert loop.time() == pytest.approx(10)


async def test_the_entries_are_the_running_waiting_and_delayed_requests() -> None:
    queue = a_queue()
    queue.add(A, reasons.CHANGED, ("spec.size",))
    await _take(queue)
    queue.retry(A, Backoff(60.0), ran=True)
    queue.done(A)
    queue.add(B, reasons.RESYNC)
    await _take(queue)
    queue.add(C, reasons.DEPENDENT, ("Deployment c was deleted",))
    queue.add(ObjectKey("ns", "d"), reasons.CREATED)
    await asyncio.sleep(10)
    assert [(at.key.name, at.stage, at.reason, at.details, at.seconds) for at in queue.entries()] == [
        ("b", "running", reasons.RESYNC, (), 10.0),
        ("d", "waiting", reasons.CREATED, (), 10.0),
        ("c", "waiting", reasons.DEPENDENT, ("Deployment c was deleted",), 10.0),
        ("a", "delayed", reasons.RETRY, (), 50.0),
    ]
    assert (queue.is_running(A), queue.is_running(B)) == (False, True)


async def test_a_forgotten_key_is_not_requeued() -> None:
    queue = a_queue()
    queue.add(A, reasons.CREATED)
    queue.add_after(B, reasons.RESYNC, 5)
    queue.forget(A)
    queue.forget(B)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 10_000)


async def test_closing_ends_every_waiting_worker_and_every_timer() -> None:
    queue = a_queue()
    queue.add_after(A, reasons.RESYNC, 5)
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(1)
    queue.close()
    assert await asyncio.gather(*workers) == [None, None, None]
    await asyncio.sleep(10)
    assert len(queue) == 0


async def test_a_canceled_worker_loses_no_request() -> None:
    queue = a_queue()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    queue.add(A, reasons.CREATED)
    first.cancel()
    queue.add(A, reasons.RESYNC)
    request = await second
    assert request is not None
    assert request.key == A
