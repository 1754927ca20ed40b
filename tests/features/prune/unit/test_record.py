"""Which recorded objects count as unused, and which existing objects may be deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.features.prune import record as records
from runner.features.prune.coverage import Coverage, Omission
from runner.features.prune.fields import PrunePolicy
from runner.features.prune.record import KEEP, MOST_OBJECTS, Basis, CreatedObject, CreationRecord, ObjectId
from runner.features.prune.uses import MOST_DIGESTS, MOST_ROWS, UseDigests, UsedObjects
from runner.values.objects import GVK, PRIMARY_RESOURCE, PRIMARY_RESOURCE_TYPE, Object, ObjectKey, ObjectRef, Owner

MAP, SECRET = GVK("", "v1", "ConfigMap"), GVK("", "v1", "Secret")
OWNER = Owner(ObjectRef(GVK("example.com", "v1", "Shop"), ObjectKey("ns", "one"), "owner"), namespaced=True)
FIRST, CHANGED, OTHER_ROLE = Basis("1", "role"), Basis("2", "role"), Basis("1", "other role")
DELETE = PrunePolicy("delete")


def obj(name: str = "a", uid: str = "u", **metadata: Any) -> Object:
    found = {"name": name, "namespace": "ns", "uid": uid, "ownerReferences": [OWNER.reference()], **metadata}
    return {"metadata": {"creationTimestamp": "1970-01-01T00:01:40Z", **found}}


def entry(record: CreationRecord, name: str = "a", gvk: GVK = MAP, plural: str = "configmaps") -> CreatedObject:
    key = ObjectKey("ns", name)
    assert record.intend(gvk, plural, key, FIRST, 100.0)
    found = record.objects[ObjectId("", plural, key)]
    found.found(obj(name))
    return found


@pytest.fixture
def record() -> CreationRecord:
    return CreationRecord()


def ended(
    record: CreationRecord,
    basis: Basis,
    *names: str,
    counts: bool = True,
    used: UsedObjects | None = None,
    coverage: Coverage | None = None,
) -> list[tuple[CreatedObject, Omission]]:
    used = used or UsedObjects()
    for name in names:
        used.name("configmaps", ObjectKey("ns", name))
    covered = coverage or Coverage(tuple(Omission(task, task, 0) for task in basis.omitted))
    return record.ended(basis, used, covered, counts=counts, may_prune=lambda each: records.may_prune(DELETE, each))


def created_by(record: CreationRecord, tasks: dict[str, str]) -> None:
    """End a run whose tasks created these objects, one after the other."""
    times = tuple(map(float, range(1, len(tasks) + 1)))
    clock = iter(times)
    used = UsedObjects(lambda: next(clock))
    for name in tasks:
        entry(record, name)
        used.name("configmaps", ObjectKey("ns", name))
    ended(record, FIRST, used=used, coverage=Coverage(times=times, tasks=tuple(tasks.values())))


def ended_twice(record: CreationRecord, basis: Basis, **options: Any) -> None:
    for _ in range(2):
        ended(record, basis, **options)


def test_thousands_of_omissions_do_not_hold_the_operator_up(record: CreationRecord) -> None:
    """They are counted, not timed: each omission that is looked at costs one access to its task."""
    looks = 0

    class Counted(Omission):
        def __getattribute__(self, name: str) -> Any:
            nonlocal looks
            looks += name == "task"
            return super().__getattribute__(name)

    created_by(record, {f"object-{number}": "create" for number in range(200)})
    skipped = Coverage(tuple(Counted("include", "skipped", 2) for _ in range(500)), (), (1.0, 2.0), ("create", "x"))
    looks = 0
    assert ended(record, replace(CHANGED, omitted=("include",) * 500), coverage=skipped) == []
    assert looks < 10 * 500
    assert all(each.unused == 1 for each in record.objects.values())


@pytest.mark.parametrize("changed", [CHANGED, OTHER_ROLE])
def test_an_object_is_unused_after_two_complete_runs_without_it_that_follow_a_change(
    record: CreationRecord, changed: Basis
) -> None:
    a = entry(record)
    ended(record, changed, "b")
    assert (record.unused(), record.is_pending()) == ([], True)
    ended(record, changed, "b")
    assert (record.unused(), record.is_pending()) == ([a], False)
    ended(record, changed, "b")
    assert record.unused() == [a]


def test_without_a_change_an_object_that_is_not_used_stays(record: CreationRecord) -> None:
    entry(record)
    for _ in range(3):
        ended(record, FIRST)
    assert (record.unused(), record.is_pending()) == ([], False)


def test_a_run_that_uses_the_object_again_or_is_incomplete_starts_over(record: CreationRecord) -> None:
    entry(record)
    ended(record, CHANGED)
    ended(record, CHANGED, counts=False)
    ended(record, CHANGED)
    assert record.unused() == []
    ended(record, CHANGED, "a")
    ended_twice(record, CHANGED)
    assert (record.unused(), record.is_pending()) == ([], False)
    ended_twice(record, Basis("3", "role"))
    assert [each.key.name for each in record.unused()] == ["a"]


@pytest.mark.parametrize(("before", "now", "unused"), [((), ("x",), 0), (("x",), ("x",), 1), (("x",), ("x", "x"), 0)])
def test_a_run_that_leaves_out_more_than_the_last_one_with_the_object_does_not_count(
    record: CreationRecord, before: tuple[str, ...], now: tuple[str, ...], unused: int
) -> None:
    entry(record)
    ended(record, replace(FIRST, omitted=before), "a")
    ended_twice(record, replace(CHANGED, omitted=now))
    assert len(record.unused()) == unused


def test_a_task_that_was_skipped_holds_only_the_objects_of_tasks_that_did_not_run(record: CreationRecord) -> None:
    created_by(record, {"of-a-task": "task", "of-an-include": "included"})
    assert [each.tasks for each in record.objects.values()] == [("task",), ("included",)]
    skipped = Omission("include", "the include was skipped", 1)
    for _ in range(2):
        now = Coverage((skipped,), times=(1.0, 2.0), tasks=("include", "task"))
        held = ended(record, replace(CHANGED, omitted=("include",)), coverage=now)
        assert [(each.key.name, why) for each, why in held] == [("of-an-include", skipped)]
    assert [each.key.name for each in record.unused()] == ["of-a-task"]


def test_a_rescued_failure_also_holds_the_objects_of_later_tasks_unless_it_is_always_rescued(
    record: CreationRecord,
) -> None:
    created_by(record, {"before": "first", "after": "second"})
    rescued = Coverage((Omission("x", "rescued", 1, failed=True),), times=(1.0, 2.0), tasks=("first", "second"))
    ended(record, replace(CHANGED, omitted=("x",)), coverage=rescued)
    held = ended(record, replace(CHANGED, omitted=("x",)), coverage=rescued)
    assert [each.key.name for each, _ in held] == ["after"]
    assert [each.key.name for each in record.unused()] == ["before"]
    ended(record, replace(FIRST, omitted=("x",)), "after", coverage=rescued)
    ended(record, replace(CHANGED, omitted=("x",)), coverage=rescued)
    held = ended(record, replace(CHANGED, omitted=("x",)), coverage=rescued)
    assert held == []
    assert [each.key.name for each in record.unused()] == ["before", "after"]


def test_a_list_or_a_watch_of_the_kind_uses_its_objects(record: CreationRecord) -> None:
    entry(record)
    listed, coarse, watched, other = UsedObjects(), UsedObjects(), UsedObjects(), UsedObjects()
    listed.listed("configmaps", "ns", {"items": [obj("a")]})
    coarse.listed("configmaps", "ns", {"kind": "Table", "rows": []})
    watched.all_of("configmaps", "")
    other.listed("configmaps", "ns", {"items": [obj("b")]})
    for used, count in ((listed, 0), (coarse, 0), (watched, 0), (other, 1)):
        ended(record, FIRST, "a")
        ended_twice(record, CHANGED, used=used)
        assert len(record.unused()) == count
        ended(record, FIRST, "a")


def test_objects_of_a_helm_release_are_used_while_the_run_reads_the_release(record: CreationRecord) -> None:
    named = {"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "ns"}
    entry(record).found(obj(annotations=named))
    ended_twice(record, CHANGED)
    assert record.unused() == []  # where helm stores the release is not known
    entry(record, "sh.helm.release.v1.shop.v1", SECRET, "secrets")
    reads = UsedObjects()
    reads.listed("secrets", "ns", {"items": [obj("sh.helm.release.v1.shop.v1")]})
    ended(record, Basis("3", "role"), used=reads)
    ended(record, Basis("4", "role"), used=reads)
    assert record.unused() == []
    ended_twice(record, Basis("5", "role"))
    assert [each.key.name for each in record.unused()] == ["a"]


@pytest.mark.parametrize(
    "more",
    [{"annotations": {"helm.sh/hook": "pre-install"}}, {"managedFields": [{"manager": "helm"}]}],
)
def test_objects_that_helm_does_not_touch_again_are_never_unused(record: CreationRecord, more: dict[str, Any]) -> None:
    entry(record).found(obj(**more))
    ended_twice(record, CHANGED)
    assert (record.unused(), record.is_pending()) == ([], False)


@pytest.mark.parametrize(
    ("kind", "group", "named", "allowed"),
    [
        ("ConfigMap", "", (), True),
        ("Secret", "", (), False),
        ("Secret", "", ("Secret",), True),
        ("Secret", "vault.example.com", (), True),
        ("PersistentVolumeClaim", "", ("Secret",), False),
        ("Namespace", "", (), False),
        ("CustomResourceDefinition", "apiextensions.k8s.io", (), False),
    ],
)
def test_protected_kinds_are_pruned_only_by_name(
    kind: str, group: str, named: tuple[str, ...], *, allowed: bool
) -> None:
    policy = PrunePolicy("delete", frozenset(named))
    made = CreatedObject(GVK(group, "v1", kind), "plural", ObjectKey("ns", "a"), FIRST)
    assert records.may_prune(policy, made) is allowed
    release = CreatedObject(SECRET, "secrets", ObjectKey("ns", "sh.helm.release.v1.a.v1"), FIRST)
    assert not records.may_prune(PrunePolicy("delete", frozenset({"Secret"})), release)


OTHER = {"apiVersion": "v1", "kind": "Other", "name": "x", "uid": "other"}
OURS = OWNER.annotations()


@pytest.mark.parametrize(
    ("metadata", "kept"),
    [
        ({}, False),
        ({"annotations": OURS}, False),
        ({"ownerReferences": [], "annotations": OURS}, False),
        ({"ownerReferences": []}, True),
        ({"ownerReferences": [OWNER.reference(), OTHER]}, True),
        ({"ownerReferences": [OTHER]}, True),
        ({"ownerReferences": [OTHER], "annotations": OURS}, True),
        ({"annotations": {PRIMARY_RESOURCE: "ns/two", PRIMARY_RESOURCE_TYPE: "Shop.example.com"}}, True),
        ({"annotations": {KEEP: "false"}}, True),
        ({"annotations": {"helm.sh/resource-policy": "keep"}}, True),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, True),
    ],
)
def test_only_an_object_without_another_owner_is_deleted(metadata: dict[str, Any], *, kept: bool) -> None:
    assert bool(records.reason_to_keep(obj(**metadata), OWNER)) is kept


@pytest.mark.parametrize(
    ("found", "uids"),
    [
        (None, []),
        (obj(), ["u"]),
        (obj(creationTimestamp="1970-01-01T00:01:29Z"), []),
        (obj(ownerReferences=[]), []),
        (obj(ownerReferences=[OWNER.reference(), OTHER]), []),
    ],
)
def test_an_intent_becomes_an_entry_only_for_an_owned_object_that_is_not_older(
    record: CreationRecord, found: Object | None, uids: list[str]
) -> None:
    record.intend(MAP, "configmaps", ObjectKey("ns", "a"), FIRST, 100.9)
    read = CreationRecord.parse(record.spell())
    (intent,) = read.intents()
    read.resolve(intent, found, OWNER)
    assert [each.uid for each in read.objects.values()] == uids
    assert read.intents() == []


def test_an_intent_for_a_recorded_object_keeps_its_uid_if_nothing_is_created(record: CreationRecord) -> None:
    a = entry(record)
    record.intend(MAP, "configmaps", a.key, CHANGED, 200.0)
    record.withdraw(a.id)
    assert (a.uid, record.intents()) == ("u", [])
    record.intend(MAP, "configmaps", a.key, CHANGED, 200.0)
    record.resolve(a, obj(uid="u"), OWNER)
    assert (a.uid, record.intents()) == ("u", [])


def test_a_full_record_takes_no_further_object_and_keeps_all_of_its_own(record: CreationRecord) -> None:
    for number in range(MOST_OBJECTS):
        assert record.intend(MAP, "configmaps", ObjectKey("ns", str(number)), FIRST, 0.0)
    assert not record.intend(MAP, "configmaps", ObjectKey("ns", "more"), FIRST, 0.0)
    assert record.intend(MAP, "configmaps", ObjectKey("ns", "0"), FIRST, 0.0)
    assert len(record.objects) == MOST_OBJECTS


def test_a_record_of_long_names_is_smaller_than_a_config_map(record: CreationRecord) -> None:
    group = GVK("g" * 253, "v1", "K" * 63)
    for number in range(MOST_OBJECTS):
        key = ObjectKey("n" * 63, f"{number:0>253}")
        assert record.intend(group, "p" * 63, key, FIRST, 1e9)
        record.objects[ObjectId(group.group, "p" * 63, key)].uid = "0" * 36
    assert len(record.spell()) < 1 << 20


def test_a_record_is_the_same_after_it_was_read(record: CreationRecord) -> None:
    entry(record).release = "ns/shop"
    entry(record, "b").exempt = True
    entry(record, "c").tasks = ("x", "y")
    ended(record, replace(CHANGED, omitted=("x", "x")), "b")
    again = CreationRecord.parse(record.spell())
    assert again == record
    assert again.spell() == record.spell()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"bases": [], "objects": [{"basis": 0}]}', '{"bases": 1}'])
def test_an_invalid_record_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"record|JSON|unexpected|nput"):
        CreationRecord.parse(text)


_KEYS = st.builds(ObjectKey, st.sampled_from(["", "a", "b"]), st.sampled_from(["x", "y", "sh.helm.release.v1.x.v1"]))
_PLURALS = st.sampled_from(["configmaps", "secrets", "pods"])
_OBJECTS = st.lists(st.tuples(_PLURALS, _KEYS), max_size=6)


@given(_OBJECTS, st.lists(st.tuples(_PLURALS, st.sampled_from(["", "a"])), max_size=2), _PLURALS, _KEYS)
def test_digests_contain_what_a_run_used(
    named: list[tuple[str, ObjectKey]], kinds: list[tuple[str, str]], plural: str, key: ObjectKey
) -> None:
    used = UsedObjects()
    for each in named:
        used.name(*each)
    for kind in kinds:
        used.all_of(*kind)
    digests = UseDigests.of(used)
    assert digests.has(plural, key) == used.has(plural, key)
    release = ObjectKey(key.namespace, "x")
    assert digests.has_release(release) == used.has_release(release)


def test_the_union_contains_the_uses_of_both() -> None:
    one, two = UsedObjects(), UsedObjects()
    one.name("configmaps", ObjectKey("a", "x"))
    two.all_of("pods", "a")
    union = UseDigests.of(one).union(UseDigests.of(two))
    assert union.has("configmaps", ObjectKey("a", "x"))
    assert union.has("pods", ObjectKey("a", "any"))
    assert not union.has("pods", ObjectKey("b", "any"))


def test_an_object_that_too_many_tasks_used_is_recorded_without_them() -> None:
    used = UsedObjects(iter(range(10**6)).__next__)
    for _ in range(20):
        for number in range(MOST_DIGESTS):
            used.name("configmaps", ObjectKey("a", str(number)))
    found = UseDigests.of(used, lambda times: {f"{int(time):x}" for time in times})
    assert len(found.digests) == MOST_DIGESTS <= MOST_ROWS
    assert set(found.tasks) == {0}
    assert found.without(["1"]).has("configmaps", ObjectKey("a", "0"))


def test_beyond_the_limit_all_objects_of_the_kinds_with_the_most_objects_count_as_used() -> None:
    used = UsedObjects()
    for number in range(MOST_DIGESTS):
        used.name("configmaps", ObjectKey("a", str(number)))
    used.name("secrets", ObjectKey("a", "x"))
    found = UseDigests.of(used)
    assert len(found.digests) == 1
    assert found.has("configmaps", ObjectKey("a", "unnamed"))
    assert found.has("secrets", ObjectKey("a", "x"))
    assert not found.has("configmaps", ObjectKey("b", "0"))
    assert not found.has("secrets", ObjectKey("a", "unnamed"))
