"""Contentions of owners and dependents, separately for each field; the guard that delays triggers, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from runner.core.dependents.notification import DeferredNotifications, Notification
from runner.core.kube.object_state import ObjectState
from runner.core.queue.reasons import DEPENDENT_STATUS_HANDICAP, Cause
from runner.features.loopguard.guard import Contention, LoopGuard, Loops, TriggerPair
from runner.features.references.feature import REFERENCE
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


class Guarded:
    """A loop guard with the times of its triggers and the contentions that it reported."""

    def __init__(self) -> None:
        self.causes: list[tuple[float, Cause]] = []
        self.contentions: list[tuple[float, Contention | None]] = []
        self.guard = LoopGuard(lambda _, cause: self.causes.append((self.now(), cause)))
        self.guard.reports[OWNER.gvk] = lambda _, contention: self.contentions.append((self.now(), contention))

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    @property
    def triggered(self) -> list[float]:
        return [at for at, _ in self.causes]

    @property
    def statuses(self) -> list[bool]:
        """Whether only a status changed."""
        return [cause.handicap == DEPENDENT_STATUS_HANDICAP for _, cause in self.causes]

    async def tell(self, *notifications: Notification, every: float) -> None:
        for notification in notifications:
            self.guard.trigger(notification)
            await asyncio.sleep(every)


async def test_a_contention_is_reported_at_its_start_and_at_its_end() -> None:
    guarded = Guarded()
    for _ in range(10):
        before = len(guarded.triggered)
        guarded.guard.trigger(notification("spec.replicas"))
        while len(guarded.triggered) == before:
            await asyncio.sleep(0.5)
    assert [contention.fields if contention else None for _, contention in guarded.contentions] == [("spec.replicas",)]
    contention = guarded.contentions[0][1]
    assert contention is not None
    assert "Deployment ns/web: spec.replicas changes repeatedly" in contention.sentence()
    last = guarded.triggered[-1]
    await asyncio.sleep(3600)
    ((over, nothing),) = guarded.contentions[1:]
    assert nothing is None
    assert over == pytest.approx(last + 300 + 6 * 60, abs=60)
    guarded.guard.trigger(notification("spec.replicas"))
    assert guarded.triggered[-1] == asyncio.get_running_loop().time()


async def test_any_number_of_changes_during_a_wait_cause_one_trigger() -> None:
    guarded = Guarded()
    await guarded.tell(*[notification("spec.replicas")] * 50, every=0.01)
    assert len(guarded.triggered) == 5
    await asyncio.sleep(2)
    assert len(guarded.triggered) == 6


async def test_a_loop_over_a_reference_is_slowed_down_and_reported_once() -> None:
    guarded = Guarded()
    await guarded.tell(*[replace(notification(), source=SECRET, reason=REFERENCE)] * 50, every=0.01)
    assert len(guarded.triggered) == 5
    await asyncio.sleep(2)
    assert [cause.reason for _, cause in guarded.causes] == [REFERENCE] * 6
    ((_, contention),) = guarded.contentions
    assert contention is not None
    assert contention.reason == "ReferenceChangedAgain"
    assert "Secret ns/web changed repeatedly after this object's runs" in contention.sentence()
    await asyncio.sleep(3600)
    assert guarded.contentions[1][1] is None


async def test_a_contention_ends_when_neither_dependents_nor_references_change() -> None:
    guarded = Guarded()
    await guarded.tell(*[notification("spec.replicas")] * 6, every=0)
    await guarded.tell(*[replace(notification(), reason=REFERENCE)] * 30, every=60)
    assert [contention.reason if contention else "" for _, contention in guarded.contentions] == [
        "DependentChangedAgain",
        "ReferenceChangedAgain",
    ]
    await asyncio.sleep(7200)
    assert guarded.contentions[-1][1] is None


async def test_no_end_of_a_contention_is_reported_for_a_deleted_owner() -> None:
    guarded = Guarded()
    await guarded.tell(*[notification("spec.replicas")] * 8, every=0)
    guarded.guard.forget(OWNER)
    await asyncio.sleep(3600)
    assert [contention is None for _, contention in guarded.contentions] == [False]


WEB = ObjectRef(KIND, ObjectKey("ns", "web"), "u")


def state(generation: int = 1) -> ObjectState:
    return ObjectState.of({"metadata": {"uid": "u", "generation": generation}}, (OWNER,), whole=True)


STATUS = Notification(OWNER, WEB, "changed: status", state(), ("status",), is_status=True)
STEP = replace(STATUS, is_progress=True)
SPEC = Notification(OWNER, WEB, "changed: spec", state(), ("spec",))
GONE = Notification(OWNER, WEB, "was deleted", None)


@pytest.mark.parametrize(
    ("steps", "every", "expected"),
    [(3, 2.0, [6.0]), (30, 2.0, [10.0, 60.0]), (100, 1.2, [10.0, 120.0]), (60, 5.0, [10.0, 130.0, 250.0, 300.0])],
)
async def test_a_rollout_triggers_one_run_at_its_end_and_one_before_it_if_it_lasts(
    steps: int, every: float, expected: list[float]
) -> None:
    guarded = Guarded()
    await guarded.tell(*[STEP] * steps, STATUS, every=every)
    await asyncio.sleep(1000)
    assert guarded.triggered == pytest.approx(expected)
    assert all(guarded.statuses)


async def test_the_last_step_of_a_rollout_that_never_ends_triggers_a_run() -> None:
    guarded = Guarded()
    await guarded.tell(*[STEP] * 3, every=5.0)
    await asyncio.sleep(1000)
    assert guarded.triggered == [10.0, 130.0]


async def test_a_changed_spec_and_a_deletion_do_not_wait_for_a_rollout() -> None:
    guarded = Guarded()
    await guarded.tell(STEP, SPEC, STEP, GONE, every=1.0)
    await asyncio.sleep(1000)
    assert guarded.triggered == [1.0, 3.0]
    assert guarded.statuses == [False, False]


async def test_nothing_waits_for_a_deleted_owner() -> None:
    guarded = Guarded()
    await guarded.tell(STEP, every=1.0)
    guarded.guard.forget(OWNER)
    await asyncio.sleep(1000)
    assert guarded.triggered == []
    assert not guarded.guard._rollouts


async def test_a_status_that_always_changes_triggers_one_run_in_30_seconds_whatever_its_fields_are() -> None:
    guarded = Guarded()
    noise = [replace(STATUS, fields=(f"status.{number}",)) for number in range(1200)]
    await guarded.tell(*noise, every=1.0)
    late = [at for at in guarded.triggered if at > 600]
    assert len(guarded.triggered) < 12 + 1200 / 30
    assert min(b - a for a, b in itertools.pairwise(late)) >= 30
    ((_, contention),) = guarded.contentions
    assert contention is not None
    assert "set watchDependentStatus: false" in contention.sentence()


async def test_a_role_that_writes_another_spec_in_each_run_triggers_one_run_in_five_minutes() -> None:
    guarded = Guarded()
    await guarded.tell(*[replace(STATUS, state=state(number)) for number in range(3600)], every=1.0)
    late = [at for at in guarded.triggered if at > 1800]
    assert min(b - a for a, b in itertools.pairwise(late)) >= 300


def test_the_statuses_of_a_dependent_during_a_run_are_one_notification_that_waits_only_if_each_does() -> None:
    other = replace(STATUS, source=ObjectRef(KIND, ObjectKey("ns", "other")))
    for told, waits in (([STEP, STEP], True), ([STEP, STATUS], False), ([STATUS, STEP], False)):
        deferred = DeferredNotifications()
        deferred.began(OWNER)
        for each in (other, *told):
            assert deferred.defer(each)
        left = deferred.ended(OWNER)
        assert [(each.source, each.is_progress) for each in left] == [(other.source, False), (WEB, waits)]


def test_the_deletion_of_a_dependent_by_the_run_removes_its_status() -> None:
    deferred = DeferredNotifications()
    deferred.began(OWNER)
    deferred.defer(STATUS)
    deferred.deleted(KIND, OWNER, "u")
    assert deferred.ended(OWNER) == []
