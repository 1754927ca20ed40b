"""Resources with the same changes, apart from their own names, are one group."""

from __future__ import annotations

from runner.objects import GVK, ObjectKey, ObjectRef
from runner.plan.changes import ObjectChange, ResourcePlan
from runner.plan.fields import ABSENT, FieldChange
from runner.proxy.planning.overlay import Verb
from runner.sdk.preview.grouping import Group, groups

MEMCACHED, DEPLOYMENT = GVK("cache.example.com", "v1", "Memcached"), GVK("apps", "v1", "Deployment")


def resource(name: str, namespace: str = "shop") -> ObjectRef:
    return ObjectRef(MEMCACHED, ObjectKey(namespace, name), f"uid-of-{name}")


def change(name: str, *fields: FieldChange, namespace: str = "shop", verb: Verb = "change") -> ObjectChange:
    return ObjectChange(verb, DEPLOYMENT, ObjectKey(namespace, name), fields)


IMAGE = FieldChange("spec.image", "a", "b")


def planned(name: str, *changes: ObjectChange, namespace: str = "shop") -> ResourcePlan:
    return ResourcePlan(resource(name, namespace), "complete", changes)


def sizes(found: list[Group]) -> list[tuple[int, int]]:
    return [(len(group.resources), group.total) for group in found]


def test_equal_changes_of_many_resources_are_one_group() -> None:
    plans = [planned(f"m{number}", change(f"m{number}-memcached", IMAGE)) for number in range(47)]
    plans += [planned(f"q{number}") for number in range(3)]
    (group,) = groups(plans)
    assert (len(group.resources), group.total) == (47, 50)
    assert group.changes == (change("<name>-memcached", IMAGE, namespace="<namespace>"),)


def test_values_with_the_name_namespace_or_uid_of_the_resource_are_equal() -> None:
    def plan(name: str, namespace: str) -> ResourcePlan:
        owner = {"name": name, "uid": f"uid-of-{name}", f"{name}/x": [f"{namespace}.{name}"]}
        fields = FieldChange(f"metadata.labels[{name}]", ABSENT, owner)
        return planned(name, change(name, fields, namespace=namespace), namespace=namespace)

    (group,) = groups([plan("a", "one"), plan("b", "two")])
    (found,) = group.changes
    assert found.key == ObjectKey("<namespace>", "<name>")
    assert found.fields == (
        FieldChange(
            "metadata.labels[<name>]",
            ABSENT,
            {"name": "<name>", "uid": "<uid>", "<name>/x": ["<namespace>.<name>"]},
        ),
    )


def test_a_short_name_replaces_whole_words_only() -> None:
    found = groups([planned("a", change("a", FieldChange("x", "banana", "a-b"))), planned("b", change("b", IMAGE))])
    assert sizes(found) == [(1, 2), (1, 2)]


def test_a_group_of_one_resource_has_the_real_names() -> None:
    (group,) = groups([planned("a", change("a-memcached", IMAGE))])
    assert group.changes == (change("a-memcached", IMAGE),)


def test_different_values_are_different_groups_and_the_largest_is_first() -> None:
    other = FieldChange("spec.image", "a", "c")
    plans = [planned("x", change("x", other)), planned("y", change("y", IMAGE)), planned("z", change("z", IMAGE))]
    assert sizes(groups(plans)) == [(2, 3), (1, 3)]


def test_a_change_that_all_share_is_grouped_apart_from_one_that_some_have() -> None:
    more = FieldChange("spec.size", 1, 2)
    plans = [
        planned("x", change("x", IMAGE), change("x-more", more)),
        planned("y", change("y", IMAGE)),
    ]
    assert [(len(group.resources), len(group.changes)) for group in groups(plans)] == [(2, 1), (1, 1)]


def test_changes_that_the_same_resources_share_are_one_group() -> None:
    plans = [planned(name, change(name, IMAGE), change(f"{name}-more", IMAGE)) for name in ("x", "y")]
    (group,) = groups(plans)
    assert [each.key.name for each in group.changes] == ["<name>", "<name>-more"]


def test_a_missing_value_is_not_the_value_null() -> None:
    plans = [
        planned("x", change("x", FieldChange("a", ABSENT, 1))),
        planned("y", change("y", FieldChange("a", None, 1))),
    ]
    assert sizes(groups(plans)) == [(1, 2), (1, 2)]


def test_another_verb_is_another_group() -> None:
    plans = [planned("x", change("x", verb="delete")), planned("y", change("y"))]
    assert sizes(groups(plans)) == [(1, 2), (1, 2)]


def test_kinds_are_counted_apart() -> None:
    other = GVK("cache.example.com", "v1", "Redis")
    plans = [planned("x", change("x", IMAGE)), ResourcePlan(ObjectRef(other, ObjectKey("shop", "y")), "complete")]
    assert sizes(groups(plans)) == [(1, 1)]
