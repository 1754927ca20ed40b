"""Owners and dependents that wake each other, told apart by field; the guard that puts wakes off, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from runner.dependents.ledger import Notification
from runner.dependents.loop_guard import Contention, LoopGuard
from runner.dependents.loops import Loops, TriggerPair
from runner.objects import GVK, ObjectKey, ObjectRef

Virtually = Callable[[Coroutine[Any, Any, None]], None]

KIND = GVK("apps", "v1", "Deployment")
OWNER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"))


def news(*fields: str, name: str = "web", owner: str = "mc") -> Notification:
    target = ObjectRef(OWNER.gvk, ObjectKey("ns", owner))
    return Notification(target, ObjectKey("ns", name), "u", "changed", None, fields)


def seconds(loops: Loops, item: Notification, now: float, kind: GVK = KIND) -> float:
    return loops.slowdown(TriggerPair(item.target, kind, item.key), item, now).seconds


def circle(loops: Loops, rounds: int, *fields: str) -> list[float]:
    """What a circle has to wait in each round; each run takes three seconds."""
    now, waits = 0.0, []
    for _ in range(rounds):
        waits.append(seconds(loops, news(*fields), now))
        now += waits[-1] + 3
    return waits


def test_the_first_few_changes_of_a_field_wake_at_once_and_then_each_waits_longer() -> None:
    waits = circle(Loops(), 30, "spec.replicas")
    assert waits[:9] == [0, 0, 0, 0, 0, 2, 4, 8, 16]
    assert waits[-10:] == [300.0] * 10


def test_a_field_of_status_never_waits_long() -> None:
    assert max(circle(Loops(), 30, "status.readyReplicas")) == 30


def test_another_field_is_seen_to_at_once() -> None:
    loops = Loops()
    circle(loops, 20, "spec.replicas")
    assert seconds(loops, news("spec.paused"), 5000.0) == 0
    assert seconds(loops, news("spec.paused", "spec.replicas"), 5000.0) == 0
    assert seconds(loops, news("spec.replicas"), 5000.0) == 0


def test_a_wake_that_waits_already_is_not_counted_again() -> None:
    loops = Loops()
    assert [seconds(loops, news("spec.replicas"), float(second)) for second in range(6)] == [0, 0, 0, 0, 0, 2]
    assert seconds(loops, news("spec.replicas"), 6.0) == pytest.approx(1.0)
    assert seconds(loops, news("spec.replicas"), 6.5) == pytest.approx(0.5)
    assert seconds(loops, news("spec.replicas"), 8.0) == 4


def test_quiet_lets_it_begin_anew_little_by_little() -> None:
    quiet = {240.0: 300.0, 300.0 + 3 * 60: 128.0, 300.0 + 15 * 60: 0.0}
    for after, expected in quiet.items():
        loops = Loops()
        end = sum(wait + 3 for wait in circle(loops, 20, "spec.replicas")) - 3
        assert seconds(loops, news("spec.replicas"), end + after) == expected


def test_a_circle_with_runs_of_minutes_is_one_too() -> None:
    loops, now, waits = Loops(), 0.0, []
    for _ in range(7):
        waits.append(seconds(loops, news("spec.replicas"), now))
        now += waits[-1] + 280
    assert waits == [0, 0, 0, 0, 0, 2, 4]


def test_each_dependent_and_each_owner_is_counted_by_itself() -> None:
    loops = Loops()
    for second in range(15):
        seconds(loops, news("spec"), float(second))
    assert seconds(loops, news("spec", name="another"), 15.0) == 0.0
    assert seconds(loops, news("spec", owner="another"), 15.0) == 0.0
    assert seconds(loops, news("spec"), 15.0, GVK("", "v1", "Service")) == 0.0


def test_many_pairs_and_many_fields_are_not_kept_for_ever() -> None:
    loops = Loops()
    for number in range(5000):
        seconds(loops, news("spec", name=str(number)), 0.0)
    assert len(loops._pairs) == 4096
    for number in range(5000):
        seconds(loops, news(f"data.{number}"), float(number))
    assert max(map(len, loops._pairs.values())) < 100


class Told:
    """A guard, and whom it woke and what it told."""

    def __init__(self) -> None:
        self.woken: list[float] = []
        self.woken_for_references: list[float] = []
        self.told: list[tuple[float, Contention | None]] = []
        self.guard = LoopGuard(self._wake, self._wake_for_reference, self._contended)

    def _wake(self, *_: object) -> None:
        self.woken.append(asyncio.get_running_loop().time())

    def _wake_for_reference(self, *_: object) -> None:
        self.woken_for_references.append(asyncio.get_running_loop().time())

    def _contended(self, _: GVK, __: ObjectKey, contention: Contention | None) -> None:
        self.told.append((asyncio.get_running_loop().time(), contention))


def test_a_circle_is_told_when_it_begins_and_when_it_has_been_quiet(virtually: Virtually) -> None:
    async def scenario() -> None:
        told = Told()
        for _ in range(10):
            before = len(told.woken)
            told.guard.tell(KIND, news("spec.replicas"))
            while len(told.woken) == before:
                await asyncio.sleep(0.5)
        assert [contention.fields if contention else None for _, contention in told.told] == [("spec.replicas",)]
        contention = told.told[0][1]
        assert contention is not None
        assert "Deployment ns/web: spec.replicas changes repeatedly" in contention.sentence()
        last = told.woken[-1]
        await asyncio.sleep(3600)
        ((over, nothing),) = told.told[1:]
        assert nothing is None
        assert over == pytest.approx(last + 300 + 6 * 60, abs=60)
        told.guard.tell(KIND, news("spec.replicas"))
        assert told.woken[-1] == asyncio.get_running_loop().time()

    virtually(scenario())


def test_any_number_of_changes_while_a_wake_waits_cause_one(virtually: Virtually) -> None:
    async def scenario() -> None:
        told = Told()
        for _ in range(50):
            told.guard.tell(KIND, news("spec.replicas"))
            await asyncio.sleep(0.01)
        assert len(told.woken) == 5
        await asyncio.sleep(2)
        assert len(told.woken) == 6

    virtually(scenario())


def test_a_reference_that_goes_in_circles_is_slowed_down_and_told_as_one(virtually: Virtually) -> None:
    async def scenario() -> None:
        told = Told()
        secret = GVK("", "v1", "Secret")
        for _ in range(50):
            told.guard.tell_of_reference(secret, news())
            await asyncio.sleep(0.01)
        assert len(told.woken_for_references) == 5
        await asyncio.sleep(2)
        assert len(told.woken_for_references) == 6
        assert not told.woken
        ((_, contention),) = told.told
        assert contention is not None
        assert contention.reason == "ReferenceChangedAgain"
        assert "Secret ns/web changed repeatedly after this object's runs" in contention.sentence()
        await asyncio.sleep(3600)
        assert told.told[1][1] is None

    virtually(scenario())


def test_what_an_object_owns_and_names_is_quiet_only_when_both_are(virtually: Virtually) -> None:
    async def scenario() -> None:
        told = Told()
        for _ in range(6):
            told.guard.tell(KIND, news("spec.replicas"))
        for _ in range(30):
            told.guard.tell_of_reference(KIND, news())
            await asyncio.sleep(60)
        assert [contention.reason if contention else "" for _, contention in told.told] == [
            "DependentChangedAgain",
            "ReferenceChangedAgain",
        ]
        await asyncio.sleep(7200)
        assert told.told[-1][1] is None

    virtually(scenario())


def test_of_an_owner_that_is_gone_nothing_more_is_told(virtually: Virtually) -> None:
    async def scenario() -> None:
        told = Told()
        for _ in range(8):
            told.guard.tell(KIND, news("spec.replicas"))
        told.guard.forget(OWNER)
        await asyncio.sleep(3600)
        assert [contention is None for _, contention in told.told] == [False]

    virtually(scenario())
