"""Runs that the rollout of a dependent triggers, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from runner.core.dependents.notification import DeferredNotifications, Notification
from runner.core.kube.object_state import ObjectState
from runner.core.queue.request import DEPENDENT_STATUS_HANDICAP, Cause
from runner.features.loopguard.guard import Contention, LoopGuard
from runner.values.objects import GVK, ObjectKey, ObjectRef

pytestmark = pytest.mark.virtual_time


KIND = GVK("apps", "v1", "Deployment")
OWNER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"))
WEB = ObjectRef(KIND, ObjectKey("ns", "web"), "u")


def state(generation: int = 1) -> ObjectState:
    return ObjectState.of({"metadata": {"uid": "u", "generation": generation}}, (OWNER,), whole=True)


STATUS = Notification(OWNER, WEB, "changed: status", state(), ("status",), is_status=True)
STEP = replace(STATUS, is_progress=True)
SPEC = Notification(OWNER, WEB, "changed: spec", state(), ("spec",))
GONE = Notification(OWNER, WEB, "was deleted", None)


class Guarded:
    """A loop guard, the times of its triggers, and the contentions that it reported."""

    def __init__(self) -> None:
        self.triggered: list[float] = []
        self.statuses: list[bool] = []
        """Whether only a status changed."""
        self.contentions: list[Contention | None] = []
        self.guard = LoopGuard(self._trigger)
        self.guard.reports[OWNER.gvk] = lambda _, contention: self.contentions.append(contention)

    def _trigger(self, _: ObjectRef, cause: Cause) -> None:
        self.triggered.append(asyncio.get_running_loop().time())
        self.statuses.append(cause.handicap == DEPENDENT_STATUS_HANDICAP)

    async def tell(self, *notifications: Notification, every: float) -> None:
        for notification in notifications:
            self.guard.trigger(notification)
            await asyncio.sleep(every)


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
    (contention,) = guarded.contentions
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
            assert deferred.defer(OWNER, each)
        left = deferred.ended(OWNER)
        assert [(each.source, each.is_progress) for each in left] == [(other.source, False), (WEB, waits)]


def test_the_deletion_of_a_dependent_by_the_run_removes_its_status() -> None:
    deferred = DeferredNotifications()
    deferred.began(OWNER)
    deferred.defer(OWNER, STATUS)
    deferred.deleted(KIND, OWNER, "u")
    assert deferred.ended(OWNER) == []
