"""Changes of the status of a dependent that cause notifications, with `watchDependentStatus: auto`."""

from __future__ import annotations

from typing import Any, Self

import pytest

from runner.core.watches.policy import StatusTrigger
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef
from tests.unit.dependents.scenario import KEY, OTHER, OWNER, LedgerScenario

OTHERS: dict[ObjectRef, StatusTrigger] = {
    ObjectRef(GVK("cache.example.com", "v1", "All"), ObjectKey("ns", "mc")): "all",
    ObjectRef(GVK("cache.example.com", "v1", "Off"), ObjectKey("ns", "mc")): "off",
}
A, B, NOISE = {"phase": "A"}, {"phase": "B"}, {"phase": "A", "message": "1 of 3"}
STATUS = ["changed: status"]


def thing(version: int, status: Any = None, **meta: Any) -> Object:
    fixed = {"namespace": "ns", "name": "child", "resourceVersion": str(version)}
    meta = {"uid": "u", "generation": 1, **meta, **fixed}
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta, "spec": {}, "status": status}


def status_scenario(*owners: ObjectRef) -> LedgerScenario:
    return LedgerScenario(*owners, trigger=lambda target: OTHERS.get(target, "auto"))


def test_a_status_that_means_something_causes_a_notification_once() -> None:
    scenario = status_scenario().sees(thing(1, A)).sees(thing(2, B)).sees(thing(3, B))
    (notification,) = scenario.notifications
    assert (notification.target, notification.what, notification.fields) == (OWNER, "changed: status", ("status",))
    assert notification.is_status
    assert not notification.is_progress


def test_a_status_without_meaning_and_the_first_one_cause_none() -> None:
    assert status_scenario().sees(thing(1, A)).sees(thing(2, NOISE)).reported == []


def test_a_change_before_the_first_read_counts() -> None:
    assert status_scenario().seen(thing(1)).seen(thing(2)).begins_reading().ends_reading(thing(2, A)).reported == STATUS
    assert status_scenario().seen(thing(1)).begins_reading().ends_reading(thing(2, A)).reported == STATUS


def test_a_changed_spec_causes_a_notification_before_the_status_is_read() -> None:
    scenario = status_scenario().sees(thing(1, A)).seen(thing(2, generation=2))
    assert scenario.reported == ["changed: spec"]
    assert scenario.begins_reading().ends_reading(thing(2, B, generation=2)).reported == ["changed: spec", *STATUS]


def test_a_read_that_an_event_overtook_is_not_used_and_the_next_one_is() -> None:
    scenario = status_scenario().sees(thing(1, A)).seen(thing(2)).begins_reading()
    scenario.seen(thing(3, labels={"a": "b"})).ends_reading(thing(2, A))
    assert scenario.reported == ["changed: labels"]
    assert scenario.begins_reading().ends_reading(thing(3, B, labels={"a": "b"})).reported == [
        "changed: labels",
        *STATUS,
    ]


def test_a_read_that_is_newer_than_its_event_counts_once() -> None:
    scenario = status_scenario().sees(thing(1, A)).seen(thing(2)).begins_reading().ends_reading(thing(3, B))
    assert scenario.reported == STATUS
    assert scenario.seen(thing(3)).reported == STATUS


def test_the_status_in_the_response_to_a_creation_is_the_first_one() -> None:
    assert status_scenario().wrote(thing(1, A)).seen(thing(1)).sees(thing(2, A)).reported == []
    assert status_scenario().wrote(thing(1)).seen(thing(1)).sees(thing(2, A)).reported == STATUS
    assert status_scenario().seen(thing(1)).wrote(thing(1)).sees(thing(2, A)).reported == STATUS


def test_a_write_of_a_run_does_not_hide_a_status_that_changed_before_it() -> None:
    labels = {"labels": {"a": "b"}}
    before = status_scenario().sees(thing(1, A)).seen(thing(2))
    assert before.wrote(thing(3, B, **labels)).seen(thing(3, **labels)).reported == STATUS
    after = status_scenario().sees(thing(1, A)).seen(thing(3, **labels))
    assert after.wrote(thing(3, B, **labels)).reported[-1:] == STATUS
    between = status_scenario().sees(thing(1, A)).seen(thing(2)).begins_reading().wrote(thing(3, B, **labels))
    assert between.ends_reading(thing(3, B, **labels)).reported == STATUS


def test_a_write_of_a_run_that_changes_nothing_else_causes_no_notification() -> None:
    labels = {"labels": {"a": "b"}}
    scenario = status_scenario().sees(thing(1, A)).wrote(thing(2, A, **labels)).seen(thing(2, **labels))
    assert scenario.sees(thing(3, NOISE, **labels)).reported == []


def test_a_recreated_object_begins_anew() -> None:
    scenario = status_scenario().sees(thing(1, A)).seen(thing(9, uid="v"))
    assert scenario.begins_reading().ends_reading(thing(9, B, uid="v")).reported == ["was recreated"]


def test_a_status_of_an_object_that_is_being_deleted_is_not_read() -> None:
    deleting = {"deletionTimestamp": "t", "finalizers": ["example.com/f"]}
    scenario = status_scenario().sees(thing(1, A)).seen(thing(2, **deleting))
    assert (scenario.found.read_status, scenario.reported) == ((), ["is being deleted"])


def test_a_kind_without_generation_is_read_and_its_status_compared() -> None:
    scenario = status_scenario()
    for version, status in ((1, A), (2, NOISE), (3, B)):
        scenario.sees(thing(version, status, generation=None))
        assert (scenario.found.read_status, scenario.found.read) == ((), (KEY,))
    assert scenario.reported == STATUS


def test_each_owner_is_notified_as_its_watch_sets_it() -> None:
    scenario = status_scenario(OWNER, *OTHERS)
    for version, status in ((1, A), (2, NOISE), (3, B)):
        scenario.sees(thing(version, status))
    assert [(each.target.gvk.kind, each.what) for each in scenario.notifications] == [
        ("All", "changed: status"),
        ("All", "changed: status"),
        ("Memcached", "changed: status"),
    ]


def test_the_fields_of_a_suspect_are_named_if_they_mean_something() -> None:
    scenario = status_scenario().sees(thing(1, A))
    scenario.ledger.suspect(KEY)
    scenario.sees(thing(2, {"phase": "A", "message": "x"})).sees(thing(3, {"phase": "B", "message": "y", "at": "z"}))
    assert scenario.notifications[-1].fields == ("status.at", "status.phase")
    assert scenario.reported[-1] == "changed: status.at, status.phase"


@pytest.mark.parametrize("status", [A, None])
def test_what_skipped_runs_compare_is_unknown_until_the_status_was_read(status: Any) -> None:
    scenario = status_scenario().seen(thing(1, status))

    def traits() -> list[object] | None:
        ((_, state),) = scenario.ledger.owned_by(OWNER)
        return scenario.ledger.traits(state, OWNER)

    assert traits() is None
    scenario.seen(thing(2))
    assert traits() is None
    scenario.begins_reading().ends_reading(thing(2, A))
    known = traits()
    assert known is not None
    scenario.sees(thing(3, NOISE))
    assert traits() == known
    scenario.sees(thing(4, B))
    assert traits() != known


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
def test_a_write_that_was_not_undone_leaves_no_notification(*, recorded_first: bool) -> None:
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
