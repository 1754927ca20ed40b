"""A write of a run that another client undoes before the ledger reads the object causes a notification."""

from __future__ import annotations

from typing import Any, Self

import pytest

from runner.values.objects import Object, ObjectRef
from tests.unit.dependents.scenario import OTHER, OWNER, LedgerScenario


def config_map(version: int, value: str) -> Object:
    meta: dict[str, Any] = {"namespace": "ns", "name": "child", "uid": "u1", "resourceVersion": str(version)}
    return {"metadata": meta, "data": {"value": value}}


class PutBack(LedgerScenario):
    """A ledger with a ConfigMap of version 1 whose value is "old"."""

    def __init__(self, *owners: ObjectRef) -> None:
        super().__init__(*owners, uses_generation=False)
        self.event(1).begins_reading().finds(1, "old")
        assert self.notifications == []

    def event(self, version: int) -> Self:
        return self.seen(config_map(version, "unknown"))

    def finds(self, version: int, value: str) -> Self:
        return self.ends_reading(config_map(version, value))

    def writes(self, version: int, value: str) -> Self:
        return self.wrote(config_map(version, value))

    @property
    def told(self) -> list[tuple[ObjectRef, str]]:
        return [(each.target, each.what) for each in self.notifications]


NOTIFICATION = [(OWNER, "changed: content")]


def test_an_undone_write_causes_a_notification_if_it_is_recorded_after_the_read() -> None:
    scenario = PutBack().event(2).begins_reading().finds(3, "old")
    assert scenario.told == []
    assert scenario.writes(2, "new").told == NOTIFICATION
    assert scenario.event(3).told == NOTIFICATION


def test_an_undone_write_causes_a_notification_if_it_is_recorded_before_the_read() -> None:
    assert PutBack().event(2).writes(2, "new").begins_reading().finds(3, "old").event(3).told == NOTIFICATION
    assert PutBack().event(2).begins_reading().writes(2, "new").finds(3, "old").event(3).told == NOTIFICATION


def test_an_undone_write_causes_a_notification_if_its_event_is_received_before_the_read() -> None:
    scenario = PutBack().event(2).writes(2, "new").event(3).begins_reading().finds(3, "old")
    assert scenario.told == NOTIFICATION


def test_a_read_that_began_before_the_event_shows_nothing_of_it() -> None:
    scenario = PutBack().event(2).begins_reading().event(3).finds(2, "old").writes(3, "new")
    assert scenario.told == []
    assert scenario.begins_reading().finds(3, "new").told == []


@pytest.mark.parametrize("recorded_first", [True, False])
def test_a_write_that_was_not_undone_leaves_no_notification(recorded_first: bool) -> None:  # noqa: FBT001 - a case
    scenario = PutBack().event(2)
    scenario = scenario.writes(2, "new").begins_reading() if recorded_first else scenario.begins_reading()
    scenario.finds(3, "new")
    before = len(scenario.notifications)
    if not recorded_first:
        scenario.writes(2, "new")
    assert len(scenario.notifications) == before, "the write of the run removes the notification that its event caused"
    assert (before == 0) is recorded_first


def test_other_owners_compare_with_their_last_known_content() -> None:
    scenario = PutBack(OWNER, OTHER).event(2).writes(2, "new").begins_reading().finds(3, "old")
    assert scenario.told == NOTIFICATION, "for the other owner nothing has changed"
    scenario = PutBack(OWNER, OTHER).event(2).writes(2, "new").begins_reading().finds(3, "new")
    assert scenario.told == [(OTHER, "changed: content")]


def test_a_read_is_compared_with_the_last_of_two_writes() -> None:
    scenario = PutBack().event(2).event(3).writes(2, "new").writes(3, "newer").begins_reading().finds(4, "new")
    assert scenario.told == NOTIFICATION
