"""Notifications that arrive while their owner runs."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.dependents.notification import DeferredNotifications, Notification, RunWrite
from runner.core.kube.object_state import ObjectState
from runner.values.objects import GVK, ObjectKey, ObjectRef

KIND = GVK("apps", "v1", "Deployment")
OWNER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"))
CHILD = ObjectRef(KIND, ObjectKey("ns", "child"), "u1")


def state(version: int, generation: int = 1, **meta: Any) -> ObjectState:
    obj = {"metadata": {"uid": "u1", "resourceVersion": str(version), "generation": generation, **meta}}
    return ObjectState.of(obj, (OWNER,), whole=False)


def notification(now: ObjectState | None) -> Notification:
    return Notification(OWNER, CHILD, "changed", now)


def write(version: int, generation: int = 1) -> RunWrite:
    return RunWrite(OWNER, "u1", str(version), state(version, generation))


@pytest.fixture
def deferred() -> DeferredNotifications:
    """Notifications during a run of the owner."""
    deferred = DeferredNotifications()
    deferred.began(OWNER)
    return deferred


def test_a_notification_is_deferred_until_the_last_of_several_runs_ends(deferred: DeferredNotifications) -> None:
    deferred.began(OWNER)
    deferred.defer(notification(state(1)))
    assert deferred.ended(OWNER) == []
    assert len(deferred.ended(OWNER)) == 1


def test_a_write_of_the_run_removes_the_notification_that_it_caused(deferred: DeferredNotifications) -> None:
    for now in (state(1), state(2, generation=2), state(3, generation=2)):
        deferred.defer(notification(now))
    deferred.wrote(CHILD, write(2, generation=2), trigger="off")
    assert deferred.ended(OWNER) == [notification(state(1))]


def test_a_client_that_changes_a_dependent_again_and_again_fills_no_memory(deferred: DeferredNotifications) -> None:
    for version in range(300):
        deferred.defer(notification(state(version, generation=version)))
    deferred.wrote(CHILD, write(0, generation=0), trigger="off")
    left = deferred.ended(OWNER)
    assert len(left) < 270
    assert left[-1] == notification(state(299, generation=299))


def test_a_notification_that_waits_does_not_keep_the_digests_of_all_fields(deferred: DeferredNotifications) -> None:
    obj = {"kind": "ConfigMap", "metadata": {"uid": "u1"}, "data": {str(number): "x" for number in range(1000)}}
    deferred.defer(notification(ObjectState.of(obj, (OWNER,), whole=True, suspect=True, uses_generation=False)))
    (left,) = deferred.ended(OWNER)
    assert left.state is not None
    assert left.state.content
    assert not left.state.fields


def test_a_write_of_one_object_takes_back_nothing_of_another(deferred: DeferredNotifications) -> None:
    deferred.defer(notification(state(1)))
    deferred.wrote(ObjectRef(KIND, ObjectKey("ns", "another")), write(1), trigger="off")
    deferred.wrote(ObjectRef(GVK("", "v1", "Service"), CHILD.key), write(1), trigger="off")
    assert len(deferred.ended(OWNER)) == 1


def test_a_deletion_by_the_run_removes_the_notifications_that_it_caused(deferred: DeferredNotifications) -> None:
    deferred.defer(notification(state(2, deletionTimestamp="t")))
    assert not deferred.deleted(KIND, OWNER, "u1")
    deferred.defer(notification(None))
    assert deferred.deleted(KIND, OWNER, "u1")
    assert deferred.ended(OWNER) == []


def test_a_notification_of_a_deletion_by_another_client_remains(deferred: DeferredNotifications) -> None:
    deferred.defer(notification(None))
    deferred.wrote(CHILD, write(1), trigger="off")
    assert not deferred.deleted(KIND, OWNER, "u2")
    assert len(deferred.ended(OWNER)) == 1
