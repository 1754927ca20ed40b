"""Contentions of owners and dependents, separately for each field; the guard that delays triggers, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from runner.core.dependents.notification import Notification
from runner.core.queue.request import Cause
from runner.features.loopguard.guard import Contention, LoopGuard
from runner.features.loopguard.loops import Loops, TriggerPair
from runner.features.references.watching import REFERENCE
from runner.values.objects import GVK, ObjectKey, ObjectRef

pytestmark = pytest.mark.virtual_time


KIND = GVK("apps", "v1", "Deployment")
SERVICE = ObjectRef(GVK("", "v1", "Service"), ObjectKey("ns", "web"))
SECRET = ObjectRef(GVK("", "v1", "Secret"), ObjectKey("ns", "web"))
OWNER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"))


def notification(*fields: str, name: str = "web", owner: str = "mc") -> Notification:
    target = ObjectRef(OWNER.gvk, ObjectKey("ns", owner))
    return Notification(target, ObjectRef(KIND, ObjectKey("ns", name), "u"), "changed", None, fields)


def seconds(loops: Loops, item: Notification, now: float) -> float:
    return loops.slowdown(TriggerPair.of(item), item, now).seconds


def contention_delays(loops: Loops, rounds: int, *fields: str) -> list[float]:
    """Return the delay before each run of a contention; each run takes three seconds."""
    now, waits = 0.0, []
    for _ in range(rounds):
        waits.append(seconds(loops, notification(*fields), now))
        now += waits[-1] + 3
    return waits


def test_the_first_changes_of_a_field_trigger_at_once_and_each_later_one_waits_longer() -> None:
    waits = contention_delays(Loops(), 30, "spec.replicas")
    assert waits[:9] == [0, 0, 0, 0, 0, 2, 4, 8, 16]
    assert waits[-10:] == [300.0] * 10


def test_a_field_of_status_never_waits_long() -> None:
    assert max(contention_delays(Loops(), 30, "status.readyReplicas")) == 30


def test_a_change_of_another_field_triggers_at_once() -> None:
    loops = Loops()
    contention_delays(loops, 20, "spec.replicas")
    assert seconds(loops, notification("spec.paused"), 5000.0) == 0
    assert seconds(loops, notification("spec.paused", "spec.replicas"), 5000.0) == 0
    assert seconds(loops, notification("spec.replicas"), 5000.0) == 0


def test_changes_during_a_wait_do_not_make_it_longer() -> None:
    loops = Loops()
    assert [seconds(loops, notification("spec.replicas"), float(second)) for second in range(6)] == [0, 0, 0, 0, 0, 2]
    assert seconds(loops, notification("spec.replicas"), 6.0) == pytest.approx(1.0)
    assert seconds(loops, notification("spec.replicas"), 6.5) == pytest.approx(0.5)
    assert seconds(loops, notification("spec.replicas"), 8.0) == 4


def test_the_wait_decreases_step_by_step_without_changes() -> None:
    quiet = {240.0: 300.0, 300.0 + 3 * 60: 128.0, 300.0 + 15 * 60: 0.0}
    for after, expected in quiet.items():
        loops = Loops()
        end = sum(wait + 3 for wait in contention_delays(loops, 20, "spec.replicas")) - 3
        assert seconds(loops, notification("spec.replicas"), end + after) == expected


def test_a_contention_with_runs_of_minutes_is_detected() -> None:
    loops, now, waits = Loops(), 0.0, []
    for _ in range(7):
        waits.append(seconds(loops, notification("spec.replicas"), now))
        now += waits[-1] + 280
    assert waits == [0, 0, 0, 0, 0, 2, 4]


def test_each_dependent_and_each_owner_is_counted_by_itself() -> None:
    loops = Loops()
    for second in range(15):
        seconds(loops, notification("spec"), float(second))
    assert seconds(loops, notification("spec", name="another"), 15.0) == 0.0
    assert seconds(loops, notification("spec", owner="another"), 15.0) == 0.0
    assert seconds(loops, replace(notification("spec"), source=SERVICE), 15.0) == 0.0


@pytest.mark.lengthy
def test_many_pairs_and_many_fields_are_not_kept_for_ever() -> None:
    loops = Loops()
    for number in range(5000):
        seconds(loops, notification("spec", name=str(number)), 0.0)
    assert len(loops._pairs) == 4096
    for number in range(5000):
        seconds(loops, notification(f"data.{number}"), float(number))
    assert max(map(len, loops._pairs.values())) < 100


class Reports:
    """A loop guard with the times of its triggers and the contentions that it reported."""

    def __init__(self) -> None:
        self.triggered: list[float] = []
        self.triggered_for_references: list[float] = []
        self.contentions: list[tuple[float, Contention | None]] = []
        self.guard = LoopGuard(self._trigger)
        self.guard.reports[OWNER.gvk] = self._contended

    def _trigger(self, _: ObjectRef, cause: Cause) -> None:
        triggered = self.triggered_for_references if cause.reason is REFERENCE else self.triggered
        triggered.append(asyncio.get_running_loop().time())

    def _contended(self, _: ObjectKey, contention: Contention | None) -> None:
        self.contentions.append((asyncio.get_running_loop().time(), contention))


async def test_a_contention_is_reported_at_its_start_and_at_its_end() -> None:
    reports = Reports()
    for _ in range(10):
        before = len(reports.triggered)
        reports.guard.trigger(notification("spec.replicas"))
        while len(reports.triggered) == before:
            await asyncio.sleep(0.5)
    assert [contention.fields if contention else None for _, contention in reports.contentions] == [("spec.replicas",)]
    contention = reports.contentions[0][1]
    assert contention is not None
    assert "Deployment ns/web: spec.replicas changes repeatedly" in contention.sentence()
    last = reports.triggered[-1]
    await asyncio.sleep(3600)
    ((over, nothing),) = reports.contentions[1:]
    assert nothing is None
    assert over == pytest.approx(last + 300 + 6 * 60, abs=60)
    reports.guard.trigger(notification("spec.replicas"))
    assert reports.triggered[-1] == asyncio.get_running_loop().time()


async def test_any_number_of_changes_during_a_wait_cause_one_trigger() -> None:
    reports = Reports()
    for _ in range(50):
        reports.guard.trigger(notification("spec.replicas"))
        await asyncio.sleep(0.01)
    assert len(reports.triggered) == 5
    await asyncio.sleep(2)
    assert len(reports.triggered) == 6


async def test_a_loop_over_a_reference_is_slowed_down_and_reported_once() -> None:
    reports = Reports()
    for _ in range(50):
        reports.guard.trigger(replace(notification(), source=SECRET, reason=REFERENCE))
        await asyncio.sleep(0.01)
    assert len(reports.triggered_for_references) == 5
    await asyncio.sleep(2)
    assert len(reports.triggered_for_references) == 6
    assert not reports.triggered
    ((_, contention),) = reports.contentions
    assert contention is not None
    assert contention.reason == "ReferenceChangedAgain"
    assert "Secret ns/web changed repeatedly after this object's runs" in contention.sentence()
    await asyncio.sleep(3600)
    assert reports.contentions[1][1] is None


async def test_a_contention_ends_when_neither_dependents_nor_references_change() -> None:
    reports = Reports()
    for _ in range(6):
        reports.guard.trigger(notification("spec.replicas"))
    for _ in range(30):
        reports.guard.trigger(replace(notification(), reason=REFERENCE))
        await asyncio.sleep(60)
    assert [contention.reason if contention else "" for _, contention in reports.contentions] == [
        "DependentChangedAgain",
        "ReferenceChangedAgain",
    ]
    await asyncio.sleep(7200)
    assert reports.contentions[-1][1] is None


async def test_no_end_of_a_contention_is_reported_for_a_deleted_owner() -> None:
    reports = Reports()
    for _ in range(8):
        reports.guard.trigger(notification("spec.replicas"))
    reports.guard.forget(OWNER)
    await asyncio.sleep(3600)
    assert [contention is None for _, contention in reports.contentions] == [False]
