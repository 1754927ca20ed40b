"""What is news of a dependent, and for whom."""

from __future__ import annotations

from typing import Any

import pytest

from runner.dependents.ledger import Ledger, LedgerResult, Notification, RunWrite
from runner.kube.object_state import ObjectState
from runner.objects import GVK, Object, ObjectKey, ObjectRef

OWNER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"))
OTHER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "other"))
CURIOUS = ObjectRef(GVK("cache.example.com", "v1", "Curious"), ObjectKey("ns", "mc"))
KEY = ObjectKey("ns", "child")


def deployment(version: int, *, generation: int = 1, uid: str = "u1", **more: Any) -> Object:
    meta = {"namespace": "ns", "name": "child", "uid": uid, "resourceVersion": str(version), "generation": generation}
    return {"metadata": {**meta, **more.pop("meta", {})}, "spec": {"replicas": generation}, **more}


def config_map(version: int, value: str, *, uid: str = "u1", **meta: Any) -> Object:
    meta = {"namespace": "ns", "name": "child", "uid": uid, "resourceVersion": str(version), **meta}
    return {"metadata": meta, "data": {"value": value}}


class Story:
    """What a watch and the runs tell a ledger; `news` gathers what it says."""

    def __init__(self, *, generation_tells: bool = True) -> None:
        self.ledger = Ledger(lambda target: target == CURIOUS, generation_tells=generation_tells)
        self.notifications: list[Notification] = []
        self.reads: list[ObjectKey] = []

    def seen(self, obj: Object, *targets: ObjectRef) -> Story:
        self._take(self.ledger.applied("", KEY, ObjectState.of(obj, targets or (OWNER,), whole=False)))
        return self

    def stray(self, obj: Object) -> Story:
        self._take(self.ledger.applied("", KEY, ObjectState.of(obj, (), whole=False)))
        return self

    def read(self, obj: Object, *targets: ObjectRef) -> Story:
        assert self.reads
        self.reads.clear()
        self.ledger.reads(KEY)
        self.notifications += self.ledger.read(KEY, ObjectState.of(obj, targets or (OWNER,), whole=True))
        return self

    def absent(self) -> Story:
        assert self.reads
        self.reads.clear()
        self.notifications += self.ledger.absent(KEY)
        return self

    def wrote(self, obj: Object, by: ObjectRef = OWNER, *targets: ObjectRef, whole: bool = True) -> Story:
        state = ObjectState.of(obj, targets or (by,), whole=True) if whole else None
        meta = obj["metadata"]
        self.notifications += self.ledger.wrote("", KEY, RunWrite(by, meta["uid"], meta["resourceVersion"], state))
        return self

    def gone(self, obj: Object, *targets: ObjectRef) -> Story:
        self.notifications += self.ledger.deleted(KEY, ObjectState.of(obj, targets or (OWNER,), whole=False))
        return self

    def begins(self) -> Story:
        self.ledger.restarted("")
        return self

    def ends(self) -> Story:
        self._take(self.ledger.synced(""))
        return self

    def _take(self, finding: LedgerResult) -> None:
        self.notifications += finding.notifications
        self.reads += finding.read

    @property
    def told(self) -> list[str]:
        return [notifications.what for notifications in self.notifications]


def test_what_is_seen_for_the_first_time_is_no_news() -> None:
    listed = Story().begins().seen(deployment(1)).ends()
    created = Story().begins().ends().seen(deployment(1))
    assert listed.told == created.told == []


def test_a_repetition_is_no_news() -> None:
    assert Story().seen(deployment(1)).begins().seen(deployment(1)).ends().told == []


def test_a_changed_spec_is_news() -> None:
    (notifications,) = Story().seen(deployment(1)).seen(deployment(2, generation=2)).notifications
    assert (notifications.target, notifications.key, notifications.what) == (OWNER, KEY, "changed: spec")


def test_a_changed_status_is_none() -> None:
    story = Story().seen(deployment(1)).seen(deployment(2, status={"ready": 1}))
    assert story.told == []
    assert story.reads == []


def test_changed_managed_fields_are_none() -> None:
    entry = {"manager": "m", "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}}
    assert Story().seen(deployment(1)).seen(deployment(2, meta={"managedFields": [entry]})).told == []


@pytest.mark.parametrize(
    ("meta", "what"),
    [
        ({"labels": {"a": "b"}}, "changed: labels"),
        ({"annotations": {"a": "b"}}, "changed: annotations"),
        ({"finalizers": ["example.com/f"]}, "changed: finalizers"),
        ({"ownerReferences": [{"uid": "u"}]}, "changed: owners"),
        ({"labels": {"a": "b"}, "annotations": {"a": "b"}}, "changed: labels, annotations"),
    ],
)
def test_changed_metadata_is_news_and_says_which(meta: dict[str, Any], what: str) -> None:
    assert Story().seen(deployment(1)).seen(deployment(2, meta=meta)).told == [what]


def managed(subresource: str) -> dict[str, Any]:
    return {
        "manager": "kube-controller-manager",
        "subresource": subresource,
        "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, "f:deployment.kubernetes.io/revision": {}}}},
    }


def test_an_annotation_that_is_written_with_the_status_is_status() -> None:
    meta = {"annotations": {"deployment.kubernetes.io/revision": "1"}, "managedFields": [managed("status")]}
    assert Story().seen(deployment(1)).seen(deployment(2, meta=meta)).told == []


def test_an_annotation_that_somebody_else_took_over_is_none() -> None:
    meta = {"annotations": {"deployment.kubernetes.io/revision": "1"}, "managedFields": [managed("status")]}
    taken = {**meta, "managedFields": [managed("status"), managed("")]}
    assert Story().seen(deployment(1, meta=meta)).seen(deployment(2, meta=taken)).told == [
        "changed: annotations (by kube-controller-manager)"
    ]


def test_news_says_who_wrote_last_but_for_status() -> None:
    writers = [
        {"manager": "kubectl-edit", "time": "2026-01-01T00:00:02Z"},
        {"manager": "ansible", "time": "2026-01-01T00:00:01Z"},
        {"manager": "kubelet", "time": "2026-01-01T00:00:03Z", "subresource": "status"},
    ]
    story = Story().seen(deployment(1)).seen(deployment(2, generation=2, meta={"managedFields": writers}))
    assert story.told == ["changed: spec (by kubectl-edit)"]


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
    story = Story().seen(deployment(1, meta={"managedFields": before}))
    (notifications,) = story.seen(deployment(2, generation=2, meta={"managedFields": after})).notifications
    assert notifications.what == f"changed: spec{by}"
    assert notifications.by == by.removeprefix(" (by ").removesuffix(")")


def test_what_a_run_wrote_is_no_news_to_its_owner() -> None:
    story = Story().seen(deployment(1)).wrote(deployment(2, generation=2)).seen(deployment(2, generation=2))
    assert story.told == []
    assert story.seen(deployment(3, generation=3)).told == ["changed: spec"]


def test_what_a_run_created_is_no_news_whichever_is_told_first() -> None:
    assert Story().wrote(deployment(1)).seen(deployment(1)).told == []
    assert Story().seen(deployment(1)).wrote(deployment(1)).told == []


def test_several_writes_of_a_run_are_no_news() -> None:
    story = Story().wrote(deployment(1)).wrote(deployment(2, generation=2)).wrote(deployment(3, generation=3))
    for number in (1, 2, 3):
        story.seen(deployment(number, generation=number))
    assert story.told == []


def test_a_change_between_a_write_and_the_first_list_is_news() -> None:
    assert Story().wrote(deployment(1)).begins().seen(deployment(5, generation=2)).ends().told == ["changed: spec"]


def test_a_rollout_between_a_write_and_the_first_list_is_none() -> None:
    story = Story().wrote(deployment(1)).begins().seen(deployment(5, status={"ready": 1})).ends()
    assert story.told == []


def test_a_hand_that_was_quicker_than_the_run_is_news() -> None:
    story = Story().seen(deployment(1)).wrote(deployment(3, generation=3))
    story.seen(deployment(2, generation=2)).seen(deployment(3, generation=3))
    assert story.told == ["changed: spec"]


def test_the_scale_that_a_run_set_is_no_news() -> None:
    story = Story().seen(deployment(1)).wrote(deployment(2), whole=False)
    assert story.seen(deployment(2, generation=2)).told == []


def test_what_another_owners_run_wrote_is_news() -> None:
    story = Story().seen(deployment(1), OWNER, OTHER).wrote(deployment(2, generation=2), OTHER, OWNER, OTHER)
    story.seen(deployment(2, generation=2), OWNER, OTHER)
    assert [notifications.target for notifications in story.notifications] == [OWNER]


def test_a_deletion_is_news_once() -> None:
    story = Story().seen(deployment(1)).gone(deployment(2)).gone(deployment(2))
    assert story.told == ["was deleted"]


def test_a_deletion_of_what_was_never_seen_is_news_to_the_owner_that_it_names() -> None:
    assert Story().gone(deployment(2)).told == ["was deleted"]


def test_a_deletion_that_a_list_shows_is_news() -> None:
    assert Story().begins().seen(deployment(1)).ends().begins().ends().told == ["was deleted"]


def test_the_list_of_one_namespace_says_nothing_of_another() -> None:
    story = Story().begins().seen(deployment(1)).ends()
    story.ledger.restarted("elsewhere")
    assert story.ledger.synced("elsewhere") == LedgerResult()


def test_a_deletion_by_the_run_is_none() -> None:
    story = Story().seen(deployment(1))
    story.ledger.deleted_by(OWNER, "u1")
    deleting = deployment(2, generation=2, meta={"deletionTimestamp": "t", "finalizers": ["example.com/f"]})
    assert story.seen(deleting).gone(deployment(3)).told == []


def test_a_deletion_by_one_owners_run_is_news_to_another() -> None:
    story = Story().seen(deployment(1), OWNER, OTHER)
    story.ledger.deleted_by(OTHER, "u1")
    story.gone(deployment(3), OWNER, OTHER)
    assert [notifications.target for notifications in story.notifications] == [OWNER]


def test_a_deletion_that_goes_through_by_itself_is_news_at_its_end_only() -> None:
    deleting = {"deletionTimestamp": "t", "finalizers": ["foregroundDeletion"]}
    story = Story().seen(deployment(1)).seen(deployment(2, generation=2, meta=deleting))
    assert story.told == []
    assert story.gone(deployment(3)).told == ["was deleted"]


def test_a_deletion_that_a_finalizer_holds_up_is_news_at_once() -> None:
    deleting = {"deletionTimestamp": "t", "finalizers": ["example.com/f"]}
    assert Story().seen(deployment(1)).seen(deployment(2, meta=deleting)).told == ["is being deleted"]


def test_an_object_that_was_made_anew_while_nobody_watched_is_news() -> None:
    assert Story().seen(deployment(1)).begins().seen(deployment(9, uid="u2")).ends().told == ["was recreated"]


def test_recreation_by_hand_after_a_deletion_by_the_run_is_news_though_it_names_no_owner() -> None:
    story = Story().seen(deployment(1))
    story.ledger.deleted_by(OWNER, "u1")
    assert story.gone(deployment(2)).stray(deployment(3, uid="u2")).told == ["was recreated"]


def test_recreation_by_the_run_is_none() -> None:
    story = Story().seen(deployment(1))
    story.ledger.deleted_by(OWNER, "u1")
    story.wrote(deployment(3, uid="u2")).gone(deployment(2)).seen(deployment(3, uid="u2"))
    assert story.told == []
    assert story.seen(deployment(4, uid="u2", generation=2)).told == ["changed: spec"]


def test_the_same_object_after_its_end_is_no_news() -> None:
    assert Story().seen(deployment(1)).gone(deployment(2)).seen(deployment(1)).told == ["was deleted"]


def test_an_object_whose_owner_was_taken_off_is_news_to_that_owner_and_then_forgotten() -> None:
    story = Story().seen(deployment(1, meta={"ownerReferences": [{"uid": "u"}]})).stray(deployment(2))
    assert story.told == ["changed: owners"]
    assert len(story.ledger) == 0


def test_what_nobody_owns_is_not_remembered() -> None:
    story = Story().begins().stray(deployment(1)).ends().stray(deployment(2, generation=2))
    assert story.told == []
    assert not story.ledger.concerns(KEY)


def test_a_kind_without_generation_is_read_and_compared() -> None:
    story = Story().seen(config_map(1, "a")).read(config_map(1, "a"))
    story.seen(config_map(2, "b")).read(config_map(2, "b"))
    assert story.told == ["changed: content"]


def test_status_of_a_kind_without_generation_is_none() -> None:
    story = Story().seen(config_map(1, "a")).read(config_map(1, "a"))
    assert story.seen(config_map(2, "a")).read({**config_map(2, "a"), "status": {"phase": "Bound"}}).told == []


def test_a_change_before_the_first_content_was_read_is_taken_for_one() -> None:
    assert Story().seen(config_map(1, "a")).read(config_map(2, "a")).told == ["changed: possibly content"]


def test_what_a_run_wrote_need_not_be_read() -> None:
    story = Story().wrote(config_map(1, "a")).seen(config_map(1, "a"))
    assert story.reads == []
    assert story.seen(config_map(2, "b")).read(config_map(2, "b")).told == ["changed: content"]


def test_content_that_was_read_after_a_write_and_a_status_is_what_was_written() -> None:
    story = Story().seen(config_map(1, "a")).read(config_map(1, "a")).wrote(config_map(2, "b"))
    assert story.seen(config_map(3, "b")).read({**config_map(3, "b"), "status": {}}).told == []


def test_a_kind_whose_generation_counts_status_is_read() -> None:
    story = Story(generation_tells=False).seen(deployment(1)).read(deployment(1))
    with_status = {**deployment(2, generation=1), "status": {"ready": 1}}
    with_status["metadata"]["generation"] = 2
    assert story.seen(with_status).read(with_status).told == []
    assert story.seen(deployment(3, generation=3)).read(deployment(3, generation=3)).told == ["changed: content"]


def test_status_is_news_to_who_asked_for_it() -> None:
    both = (OWNER, CURIOUS)
    story = Story().seen(deployment(1), *both).read(deployment(1), *both)
    story.seen(deployment(2), *both).read(deployment(2, status={"ready": 1}), *both)
    assert [(notifications.target, notifications.what) for notifications in story.notifications] == [
        (CURIOUS, "changed: status")
    ]


def test_an_object_that_was_written_and_is_not_in_the_list_is_looked_for() -> None:
    story = Story().wrote(deployment(1)).begins().ends()
    assert story.told == []
    assert story.absent().told == ["was deleted"]
    assert story.gone(deployment(1)).told == ["was deleted"]


def test_an_object_that_was_written_while_the_list_was_on_its_way_is_found() -> None:
    story = Story().wrote(deployment(1)).begins().ends().read(deployment(1))
    assert story.seen(deployment(1)).told == []


def test_many_writes_that_never_come_by_are_not_kept_for_ever() -> None:
    story = Story().seen(deployment(1))
    for number in range(100):
        story.wrote(deployment(1000 + number, generation=number))
    assert len(story.ledger._entries[KEY].writes) == 16


def test_many_deletions_are_not_kept_for_ever() -> None:
    story = Story()
    for number in range(3000):
        story.gone(deployment(1, uid=f"u{number}", meta={"name": "x"}))
        story.ledger.deleted_by(OWNER, f"u{number}")
        story.ledger.deleted(ObjectKey("ns", f"n{number}"), ObjectState.of(deployment(1), (OTHER,), whole=False))
    assert len(story.ledger._tombs) <= 256
    assert len(story.ledger._deletions) <= 1024


class TestSuspects:
    """Objects that have woken their owner."""

    def story(self) -> Story:
        story = Story().seen(deployment(1))
        story.ledger.suspect(KEY)
        return story

    @staticmethod
    def closely(obj: Object) -> ObjectState:
        return ObjectState.of(obj, (OWNER,), whole=True, suspect=True)

    def test_the_field_that_somebody_changed_is_named(self) -> None:
        story = self.story()
        mine = deployment(2, generation=2, meta={"annotations": {"a": "1"}})
        story.ledger.wrote("", KEY, RunWrite(OWNER, "u1", "2", self.closely(mine)))
        theirs = deployment(3, generation=3, meta={"annotations": {"a": "2"}})
        story.seen(mine).seen(theirs)
        assert (story.reads, story.told) == ([KEY], [])
        (notifications,) = story.ledger.read(KEY, self.closely(theirs))
        assert notifications.fields == ("metadata.annotations.a", "spec.replicas")
        assert notifications.what == "changed: metadata.annotations.a, spec.replicas"

    def test_a_change_of_status_alone_is_not_read(self) -> None:
        story = self.story().seen(deployment(2, status={"ready": 1}))
        assert (story.reads, story.told) == ([], [])

    def test_where_fields_were_not_known_the_part_is_named(self) -> None:
        story = self.story().seen(deployment(2, generation=2))
        (notifications,) = story.ledger.read(KEY, self.closely(deployment(2, generation=2)))
        assert (notifications.what, notifications.fields) == ("changed: spec", ("spec",))

    def test_what_may_not_be_read_is_news_all_the_same(self) -> None:
        story = self.story().seen(deployment(2, generation=2))
        (notifications,) = story.ledger.unreadable(KEY)
        assert notifications.fields == ("spec",)
        assert story.ledger.unreadable(KEY) == ()

    def test_status_is_named_only_to_who_wants_it(self) -> None:
        story = Story().seen(deployment(1), OWNER, CURIOUS)
        story.ledger.suspect(KEY)
        before, after = (deployment(n, status={"ready": n}) for n in (2, 3))
        for obj in (before, after):
            story.seen(obj, OWNER, CURIOUS)
            story.notifications += story.ledger.read(
                KEY, ObjectState.of(obj, (OWNER, CURIOUS), whole=True, suspect=True)
            )
        assert [(notifications.target, notifications.fields) for notifications in story.notifications[-1:]] == [
            (CURIOUS, ("status.ready",))
        ]
