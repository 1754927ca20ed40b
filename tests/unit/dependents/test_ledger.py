"""Changes of a dependent that cause notifications, and of which owners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runner.core.dependents.ledger import LedgerResult
from runner.core.dependents.notification import RunWrite
from runner.core.kube.object_state import ObjectState
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef
from tests.unit.dependents.scenario import KEY, OTHER, OWNER, LedgerScenario

CURIOUS = ObjectRef(GVK("cache.example.com", "v1", "Curious"), ObjectKey("ns", "mc"))


def deployment(version: int, *, generation: int = 1, uid: str = "u1", **more: Any) -> Object:
    meta = {"namespace": "ns", "name": "child", "uid": uid, "resourceVersion": str(version), "generation": generation}
    return {"metadata": {**meta, **more.pop("meta", {})}, "spec": {"replicas": generation}, **more}


def config_map(version: int, value: str, *, uid: str = "u1", **meta: Any) -> Object:
    meta = {"namespace": "ns", "name": "child", "uid": uid, "resourceVersion": str(version), **meta}
    return {"metadata": meta, "data": {"value": value}}


def curious() -> LedgerScenario:
    """Begin a scenario with a second owner, which watches the status."""
    return LedgerScenario(OWNER, CURIOUS, trigger=lambda target: "all" if target == CURIOUS else "off")


def managed(subresource: str) -> dict[str, Any]:
    return {
        "manager": "kube-controller-manager",
        "subresource": subresource,
        "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, "f:deployment.kubernetes.io/revision": {}}}},
    }


REVISION = {"deployment.kubernetes.io/revision": "1"}
OF_STATUS = {"annotations": REVISION, "managedFields": [managed("status")]}
TAKEN_OVER = {"annotations": REVISION, "managedFields": [managed("status"), managed("")]}
APPLIED = {"manager": "m", "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}}
WRITERS = [
    {"manager": "kubectl-edit", "time": "2026-01-01T00:00:02Z"},
    {"manager": "ansible", "time": "2026-01-01T00:00:01Z"},
    {"manager": "kubelet", "time": "2026-01-01T00:00:03Z", "subresource": "status"},
]
FOREGROUND = {"deletionTimestamp": "t", "finalizers": ["foregroundDeletion"]}
HELD = {"deletionTimestamp": "t", "finalizers": ["example.com/f"]}
ONE, TWO, THREE = (deployment(number, generation=number) for number in (1, 2, 3))
OLD, NEW = config_map(1, "a"), config_map(2, "b")


def with_meta(**meta: Any) -> Object:
    return deployment(2, meta=meta)


CASES: dict[str, tuple[Callable[[LedgerScenario], LedgerScenario], str]] = {
    "the first state in a list": (lambda ledger: ledger.begins().seen(ONE).ends(), ""),
    "the first state after a list": (lambda ledger: ledger.begins().ends().seen(ONE), ""),
    "a repeated event": (lambda ledger: ledger.seen(ONE).begins().seen(ONE).ends(), ""),
    "labels": (lambda ledger: ledger.seen(ONE).seen(with_meta(labels={"a": "b"})), "changed: labels"),
    "annotations": (lambda ledger: ledger.seen(ONE).seen(with_meta(annotations={"a": "b"})), "changed: annotations"),
    "finalizers": (lambda ledger: ledger.seen(ONE).seen(with_meta(finalizers=["a.b/f"])), "changed: finalizers"),
    "owners": (lambda ledger: ledger.seen(ONE).seen(with_meta(ownerReferences=[{"uid": "u"}])), "changed: owners"),
    "labels and annotations": (
        lambda ledger: ledger.seen(ONE).seen(with_meta(labels={"a": "b"}, annotations={"a": "b"})),
        "changed: labels, annotations",
    ),
    "managed fields": (lambda ledger: ledger.seen(ONE).seen(with_meta(managedFields=[APPLIED])), ""),
    "an annotation that is written with the status": (lambda ledger: ledger.seen(ONE).seen(with_meta(**OF_STATUS)), ""),
    "an annotation that another manager takes over": (
        lambda ledger: ledger.seen(deployment(1, meta=OF_STATUS)).seen(with_meta(**TAKEN_OVER)),
        "changed: annotations (by kube-controller-manager)",
    ),
    "the last writer except of the status": (
        lambda ledger: ledger.seen(ONE).seen(deployment(2, generation=2, meta={"managedFields": WRITERS})),
        "changed: spec (by kubectl-edit)",
    ),
    "a creation by a run before its event": (lambda ledger: ledger.wrote(ONE).seen(ONE), ""),
    "a creation by a run after its event": (lambda ledger: ledger.seen(ONE).wrote(ONE), ""),
    "several writes of a run": (
        lambda ledger: ledger.wrote(ONE).wrote(TWO).wrote(THREE).seen(ONE).seen(TWO).seen(THREE),
        "",
    ),
    "a change between a write and the first list": (
        lambda ledger: ledger.wrote(ONE).begins().seen(deployment(5, generation=2)).ends(),
        "changed: spec",
    ),
    "a rollout between a write and the first list": (
        lambda ledger: ledger.wrote(ONE).begins().seen(deployment(5, status={"ready": 1})).ends(),
        "",
    ),
    "a change by another client just before a write": (
        lambda ledger: ledger.seen(ONE).wrote(THREE).seen(TWO).seen(THREE),
        "changed: spec",
    ),
    "a scale set by a run": (lambda ledger: ledger.seen(ONE).wrote(deployment(2), whole=False).seen(TWO), ""),
    "a deletion that is seen twice": (lambda ledger: ledger.seen(ONE).gone(TWO).gone(TWO), "was deleted"),
    "a deletion of an unknown dependent": (lambda ledger: ledger.gone(TWO), "was deleted"),
    "a dependent missing from a list": (
        lambda ledger: ledger.begins().seen(ONE).ends().begins().ends(),
        "was deleted",
    ),
    "a deletion in the foreground that begins": (
        lambda ledger: ledger.seen(ONE).seen(deployment(2, generation=2, meta=FOREGROUND)),
        "",
    ),
    "a deletion in the foreground that ends": (
        lambda ledger: ledger.seen(ONE).seen(deployment(2, generation=2, meta=FOREGROUND)).gone(THREE),
        "was deleted",
    ),
    "a deletion that waits for a finalizer": (
        lambda ledger: ledger.seen(ONE).seen(with_meta(**HELD)),
        "is being deleted",
    ),
    "a recreation without an event": (
        lambda ledger: ledger.seen(ONE).begins().seen(deployment(9, uid="u2")).ends(),
        "was recreated",
    ),
    "a late event of a deleted dependent": (lambda ledger: ledger.seen(ONE).gone(TWO).seen(ONE), "was deleted"),
    "content of a kind without generation": (lambda ledger: ledger.sees(OLD).sees(NEW), "changed: content"),
    "the status of a kind without generation": (
        lambda ledger: ledger.sees(OLD).seen(config_map(2, "a")).read({**config_map(2, "a"), "status": {"phase": "A"}}),
        "",
    ),
    "content before the first read": (
        lambda ledger: ledger.seen(OLD).read(config_map(2, "a")),
        "changed: possibly content",
    ),
    "content that is read after a write and a status": (
        lambda ledger: ledger.sees(OLD).wrote(NEW).seen(config_map(3, "b")).read({**config_map(3, "b"), "status": {}}),
        "",
    ),
    "an object that was written while the list was on its way": (
        lambda ledger: ledger.wrote(ONE).begins().ends().read(ONE).seen(ONE),
        "",
    ),
}


@pytest.mark.parametrize(("history", "reported"), CASES.values(), ids=CASES)
def test_a_change_of_a_dependent_causes_one_notification_or_none(
    history: Callable[[LedgerScenario], LedgerScenario], reported: str
) -> None:
    assert history(LedgerScenario()).reported == [reported] * bool(reported)


ROLE = {"manager": "role", "operation": "Update", "time": "2026-01-01T00:00:01Z"}
EDIT = {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-01T00:00:02Z"}
SCALE = {"manager": "kubectl", "operation": "Update", "subresource": "scale"}


@pytest.mark.parametrize(
    ("before", "after", "by"),
    [
        ([ROLE], [ROLE, SCALE], " (by kubectl)"),
        ([ROLE, SCALE], [ROLE, SCALE], ""),
        ([ROLE, SCALE], [ROLE, EDIT, SCALE], " (by kubectl-edit)"),
        ([ROLE], [ROLE, SCALE, {**SCALE, "manager": "autoscaler"}], ""),
        ([SCALE], [SCALE], ""),
    ],
)
def test_a_write_of_the_scale_has_no_time_and_is_not_attributed_to_the_last_writer_with_one(
    before: list[Object], after: list[Object], by: str
) -> None:
    scenario = LedgerScenario().seen(deployment(1, meta={"managedFields": before}))
    (notifications,) = scenario.seen(deployment(2, generation=2, meta={"managedFields": after})).notifications
    assert notifications.what == f"changed: spec{by}"
    assert notifications.by == by.removeprefix(" (by ").removesuffix(")")


@pytest.mark.parametrize(("listed", "value", "reported"), [(5, "b", ["changed: content"]), (5, "a", []), (1, "a", [])])
def test_content_that_changed_between_a_write_and_the_first_list_causes_a_notification(
    listed: int, value: str, reported: list[str]
) -> None:
    scenario = LedgerScenario().wrote(config_map(1, "a")).begins().seen(config_map(listed, value)).ends()
    assert scenario.reads == [KEY] * (listed != 1)
    if scenario.reads:
        scenario.read(config_map(listed, value))
    assert scenario.reported == reported


def test_a_write_that_another_client_undid_while_no_watch_was_open_causes_a_notification() -> None:
    scenario = LedgerScenario().seen(config_map(1, "a")).read(config_map(1, "a")).wrote(config_map(2, "b"))
    assert scenario.begins().seen(config_map(3, "a")).ends().read(config_map(3, "a")).reported == ["changed: content"]
    assert scenario.seen(config_map(4, "b")).read(config_map(4, "b")).reported == ["changed: content"] * 2


def test_a_write_by_the_run_of_another_owner_causes_a_notification() -> None:
    scenario = (
        LedgerScenario().seen(deployment(1), OWNER, OTHER).wrote(deployment(2, generation=2), OTHER, OWNER, OTHER)
    )
    scenario.seen(deployment(2, generation=2), OWNER, OTHER)
    assert [notifications.target for notifications in scenario.notifications] == [OWNER]


def test_a_run_s_write_between_the_request_of_a_list_and_its_first_object_causes_no_notification() -> None:
    scenario = LedgerScenario().wrote(deployment(1))
    scenario.ledger.requested("")
    scenario.wrote(deployment(2, generation=2))
    scenario.ledger.restarted("")
    assert scenario.seen(deployment(1)).ends().seen(deployment(2, generation=2)).reported == []


def test_the_list_of_one_namespace_does_not_affect_another() -> None:
    scenario = LedgerScenario().begins().seen(deployment(1)).ends()
    scenario.ledger.requested("elsewhere")
    scenario.ledger.restarted("elsewhere")
    assert scenario.ledger.synced("elsewhere") == LedgerResult()


def test_a_deletion_by_the_run_causes_no_notification() -> None:
    scenario = LedgerScenario().seen(deployment(1))
    scenario.ledger.deleted_by(OWNER, "u1")
    deleting = deployment(2, generation=2, meta={"deletionTimestamp": "t", "finalizers": ["example.com/f"]})
    assert scenario.seen(deleting).gone(deployment(3)).reported == []


def test_a_deletion_by_the_run_of_one_owner_causes_a_notification_of_another() -> None:
    scenario = LedgerScenario().seen(deployment(1), OWNER, OTHER)
    scenario.ledger.deleted_by(OTHER, "u1")
    scenario.gone(deployment(3), OWNER, OTHER)
    assert [notifications.target for notifications in scenario.notifications] == [OWNER]


def test_a_recreation_without_owner_after_a_deletion_by_the_run_causes_a_notification() -> None:
    scenario = LedgerScenario().seen(deployment(1))
    scenario.ledger.deleted_by(OWNER, "u1")
    assert scenario.gone(deployment(2)).stray(deployment(3, uid="u2")).reported == ["was recreated"]


def test_a_recreation_by_the_run_causes_no_notification() -> None:
    scenario = LedgerScenario().seen(deployment(1))
    scenario.ledger.deleted_by(OWNER, "u1")
    scenario.wrote(deployment(3, uid="u2")).gone(deployment(2)).seen(deployment(3, uid="u2"))
    assert scenario.reported == []
    assert scenario.seen(deployment(4, uid="u2", generation=2)).reported == ["changed: spec"]


def test_a_removed_owner_gets_a_notification_and_the_ledger_drops_the_object() -> None:
    scenario = LedgerScenario().seen(deployment(1, meta={"ownerReferences": [{"uid": "u"}]})).stray(deployment(2))
    assert scenario.reported == ["changed: owners"]
    assert len(scenario.ledger) == 0


def test_an_object_without_owner_is_not_stored() -> None:
    scenario = LedgerScenario().begins().stray(deployment(1)).ends().stray(deployment(2, generation=2))
    assert scenario.reported == []
    assert not scenario.ledger.concerns(KEY)


def test_a_write_whose_answer_has_only_metadata_causes_no_notification_and_the_content_is_read() -> None:
    scenario = LedgerScenario().sees(config_map(1, "a"))
    state = ObjectState.of(config_map(2, "b"), (OWNER,), whole=False)
    scenario.ledger.wrote("", KEY, RunWrite(OWNER, "u1", "2", state))
    assert scenario.seen(config_map(2, "b")).read(config_map(2, "b")).reported == []
    assert scenario.sees(config_map(3, "b", labels={"a": "b"})).reported == ["changed: labels"]


def test_a_kind_whose_generation_counts_status_is_read() -> None:
    scenario = LedgerScenario(uses_generation=False).seen(deployment(1)).read(deployment(1))
    with_status = {**deployment(2, generation=1), "status": {"ready": 1}}
    with_status["metadata"]["generation"] = 2
    assert scenario.seen(with_status).read(with_status).reported == []
    assert scenario.seen(deployment(3, generation=3)).read(deployment(3, generation=3)).reported == ["changed: content"]


def test_a_written_object_that_is_not_in_the_list_is_read() -> None:
    scenario = LedgerScenario().wrote(deployment(1)).begins().ends()
    assert scenario.reported == []
    assert scenario.absent().reported == ["was deleted"]
    assert scenario.gone(deployment(1)).reported == ["was deleted"]


def test_many_writes_that_never_come_by_are_not_kept_for_ever() -> None:
    scenario = LedgerScenario().seen(deployment(1))
    for number in range(100):
        scenario.wrote(deployment(1000 + number, generation=number))
    assert len(scenario.ledger._entries[KEY].log) == 16


@pytest.mark.lengthy
def test_many_deletions_are_not_kept_for_ever() -> None:
    scenario = LedgerScenario()
    for number in range(3000):
        scenario.gone(deployment(1, uid=f"u{number}", meta={"name": "x"}))
        scenario.ledger.deleted_by(OWNER, f"u{number}")
        scenario.ledger.deleted(ObjectKey("ns", f"n{number}"), ObjectState.of(deployment(1), (OTHER,), whole=False))
    assert len(scenario.ledger._deleted_objects) <= 256
    assert len(scenario.ledger._deletions) <= 1024


class TestSuspects:
    """Objects whose changes have triggered their owner."""

    def scenario(self) -> LedgerScenario:
        scenario = LedgerScenario().seen(deployment(1))
        scenario.ledger.suspect(KEY)
        return scenario

    @staticmethod
    def closely(obj: Object) -> ObjectState:
        return ObjectState.of(obj, (OWNER,), whole=True, suspect=True)

    def test_a_notification_names_the_fields_that_another_client_changed(self) -> None:
        scenario = self.scenario()
        mine = deployment(2, generation=2, meta={"annotations": {"a": "1"}})
        scenario.ledger.wrote("", KEY, RunWrite(OWNER, "u1", "2", self.closely(mine)))
        theirs = deployment(3, generation=3, meta={"annotations": {"a": "2"}})
        scenario.seen(mine).seen(theirs)
        assert (scenario.reads, scenario.reported) == ([KEY], [])
        (notifications,) = scenario.begins_reading().ledger.read(KEY, self.closely(theirs))
        assert notifications.fields == ("metadata.annotations.a", "spec.replicas")
        assert notifications.what == "changed: metadata.annotations.a, spec.replicas"

    def test_a_change_of_status_alone_is_not_read(self) -> None:
        scenario = self.scenario().seen(deployment(2, status={"ready": 1}))
        assert (scenario.reads, scenario.reported) == ([], [])

    def test_a_notification_names_the_part_if_the_fields_are_unknown(self) -> None:
        scenario = self.scenario().seen(deployment(2, generation=2)).begins_reading()
        (notifications,) = scenario.ledger.read(KEY, self.closely(deployment(2, generation=2)))
        assert (notifications.what, notifications.fields) == ("changed: spec", ("spec",))

    def test_a_dependent_that_cannot_be_read_causes_a_notification_that_names_the_part(self) -> None:
        scenario = self.scenario().seen(deployment(2, generation=2))
        (notifications,) = scenario.ledger.unreadable(KEY)
        assert notifications.fields == ("spec",)
        assert scenario.ledger.unreadable(KEY) == ()

    def test_fields_of_status_are_named_only_for_owners_that_watch_status(self) -> None:
        scenario = curious().seen(deployment(1))
        scenario.ledger.suspect(KEY)
        for number in (2, 3):
            scenario.sees(deployment(number, status={"ready": number}))
        assert [(notifications.target, notifications.fields) for notifications in scenario.notifications[-1:]] == [
            (CURIOUS, ("status.ready",))
        ]


def test_the_dependents_of_an_owner_follow_each_change_of_their_owners() -> None:
    scenario = LedgerScenario(OWNER)

    def owned() -> list[int]:
        return [len(scenario.ledger.owned_by(owner)) for owner in (OWNER, OTHER)]

    assert owned() == [0, 0], "the index exists before the first event"
    scenario.seen(deployment(1))
    assert owned() == [1, 0]
    scenario.seen(deployment(2), OWNER, OTHER)
    assert owned() == [1, 1]
    scenario.seen(deployment(3), OTHER)
    assert owned() == [0, 1]
    scenario.stray(deployment(4))
    assert owned() == [0, 0]
    scenario.seen(deployment(5), OWNER)
    scenario.ledger.deleted(KEY, ObjectState.of(deployment(6), (OWNER,), whole=False))
    assert owned() == [0, 0]
    written = ObjectState.of(deployment(7, uid="u2"), (OTHER,), whole=True)
    scenario.ledger.wrote("", KEY, RunWrite(OTHER, "u2", "7", written))
    assert owned() == [0, 1], "a write of a run counts before its event"
    assert not scenario.ledger._by_owner or OWNER not in scenario.ledger._by_owner
