"""A write of a run that another client undoes before the ledger reads the object causes a notification."""

from __future__ import annotations

from typing import Any

import pytest

from runner.dependents.ledger import Ledger
from runner.dependents.notification import Notification, RunWrite
from runner.kube.object_state import ObjectState
from runner.objects import GVK, Object, ObjectKey, ObjectRef

OWNER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"))
OTHER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "other"))
KEY = ObjectKey("ns", "child")


def config_map(version: int, value: str) -> Object:
    meta: dict[str, Any] = {"namespace": "ns", "name": "child", "uid": "u1", "resourceVersion": str(version)}
    return {"metadata": meta, "data": {"value": value}}


class LedgerScenario:
    """A ledger with a ConfigMap of version 1 whose value is \"old\"; receives events, reads and writes."""

    def __init__(self, *owners: ObjectRef) -> None:
        self._owners = owners or (OWNER,)
        self._ledger = Ledger(lambda _: "off", uses_generation=False)
        self.notifications: list[Notification] = []
        self.event(1).begins_reading().reads(1, "old")
        assert self.notifications == []

    def event(self, version: int) -> LedgerScenario:
        state = ObjectState.of(config_map(version, "unknown"), self._owners, whole=False)
        self.notifications += self._ledger.applied("", KEY, state).notifications
        return self

    def begins_reading(self) -> LedgerScenario:
        self._ledger.reads(KEY)
        return self

    def reads(self, version: int, value: str) -> LedgerScenario:
        self.notifications += self._ledger.read(
            KEY, ObjectState.of(config_map(version, value), self._owners, whole=True)
        )
        return self

    def wrote(self, version: int, value: str) -> LedgerScenario:
        state = ObjectState.of(config_map(version, value), self._owners, whole=True)
        self.notifications += self._ledger.wrote("", KEY, RunWrite(OWNER, "u1", str(version), state))
        return self

    @property
    def reported(self) -> list[tuple[ObjectRef, str]]:
        return [(each.target, each.what) for each in self.notifications]


NOTIFICATION = [(OWNER, "changed: content")]


def test_an_undone_write_causes_a_notification_if_it_is_recorded_after_the_read() -> None:
    scenario = LedgerScenario().event(2).begins_reading().reads(3, "old")
    assert scenario.reported == []
    assert scenario.wrote(2, "new").reported == NOTIFICATION
    assert scenario.event(3).reported == NOTIFICATION


def test_an_undone_write_causes_a_notification_if_it_is_recorded_before_the_read() -> None:
    assert LedgerScenario().event(2).wrote(2, "new").begins_reading().reads(3, "old").event(3).reported == NOTIFICATION
    assert LedgerScenario().event(2).begins_reading().wrote(2, "new").reads(3, "old").event(3).reported == NOTIFICATION


def test_an_undone_write_causes_a_notification_if_its_event_is_received_before_the_read() -> None:
    scenario = LedgerScenario().event(2).wrote(2, "new").event(3).begins_reading().reads(3, "old")
    assert scenario.reported == NOTIFICATION


def test_a_read_that_began_before_the_event_shows_nothing_of_it() -> None:
    scenario = LedgerScenario().event(2).begins_reading().event(3).reads(2, "old").wrote(3, "new")
    assert scenario.reported == []
    assert scenario.begins_reading().reads(3, "new").reported == []


@pytest.mark.parametrize("recorded_first", [True, False])
def test_a_write_that_was_not_undone_leaves_no_notification(recorded_first: bool) -> None:  # noqa: FBT001 - a case
    scenario = LedgerScenario().event(2)
    scenario = scenario.wrote(2, "new").begins_reading() if recorded_first else scenario.begins_reading()
    scenario.reads(3, "new")
    before = len(scenario.notifications)
    if not recorded_first:
        scenario.wrote(2, "new")
    assert len(scenario.notifications) == before, "the write of the run removes the notification that its event caused"
    assert (before == 0) is recorded_first


def test_other_owners_compare_with_their_last_known_content() -> None:
    scenario = LedgerScenario(OWNER, OTHER).event(2).wrote(2, "new").begins_reading().reads(3, "old")
    assert scenario.reported == NOTIFICATION, "for the other owner nothing has changed"
    scenario = LedgerScenario(OWNER, OTHER).event(2).wrote(2, "new").begins_reading().reads(3, "new")
    assert scenario.reported == [(OTHER, "changed: content")]


def test_a_read_is_compared_with_the_last_of_two_writes() -> None:
    scenario = LedgerScenario().event(2).event(3).wrote(2, "new").wrote(3, "newer").begins_reading().reads(4, "new")
    assert scenario.reported == NOTIFICATION
