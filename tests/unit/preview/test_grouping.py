"""Resources with the same changes, apart from their own names, are one group."""

from __future__ import annotations

import pytest

from runner.features.plan.changes import ObjectChange, ResourcePlan
from runner.features.plan.fields import ABSENT, FieldChange
from runner.features.plan.trial.overlay import Verb
from runner.sdk.preview.grouping import groups
from runner.values.objects import GVK, ObjectKey, ObjectRef

MEMCACHED, DEPLOYMENT = GVK("cache.example.com", "v1", "Memcached"), GVK("apps", "v1", "Deployment")


def resource(name: str, namespace: str = "shop") -> ObjectRef:
    return ObjectRef(MEMCACHED, ObjectKey(namespace, name), f"uid-of-{name}")


def change(name: str, *fields: FieldChange, namespace: str = "shop", verb: Verb = "change") -> ObjectChange:
    return ObjectChange(verb, DEPLOYMENT, ObjectKey(namespace, name), fields)


IMAGE = FieldChange("spec.image", "a", "b")


def planned(name: str, *changes: ObjectChange, namespace: str = "shop") -> ResourcePlan:
    return ResourcePlan(resource(name, namespace), "complete", changes)


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


MORE, OTHER = FieldChange("spec.size", 1, 2), FieldChange("spec.image", "a", "c")
REDIS = ObjectRef(GVK("cache.example.com", "v1", "Redis"), ObjectKey("shop", "y"))


@pytest.mark.parametrize(
    ("plans", "sizes"),
    [
        pytest.param(
            [planned("a", change("a", FieldChange("x", "banana", "a-b"))), planned("b", change("b", IMAGE))],
            [(1, 1, 2), (1, 1, 2)],
            id="a short name replaces whole words only",
        ),
        pytest.param(
            [planned("x", change("x", OTHER)), planned("y", change("y", IMAGE)), planned("z", change("z", IMAGE))],
            [(2, 1, 3), (1, 1, 3)],
            id="different values are different groups and the largest is first",
        ),
        pytest.param(
            [planned("x", change("x", IMAGE), change("x-more", MORE)), planned("y", change("y", IMAGE))],
            [(2, 1, 2), (1, 1, 2)],
            id="a change that all share is grouped apart from one that some have",
        ),
        pytest.param(
            [
                planned("x", change("x", FieldChange("a", ABSENT, 1))),
                planned("y", change("y", FieldChange("a", None, 1))),
            ],
            [(1, 1, 2), (1, 1, 2)],
            id="a missing value is not null",
        ),
        pytest.param(
            [planned("x", change("x", verb="delete")), planned("y", change("y"))],
            [(1, 1, 2), (1, 1, 2)],
            id="another verb is another group",
        ),
        pytest.param(
            [planned("x", change("x", IMAGE)), ResourcePlan(REDIS, "complete")],
            [(1, 1, 1)],
            id="kinds are counted apart",
        ),
    ],
)
def test_resources_are_grouped_by_their_changes(plans: list[ResourcePlan], sizes: list[tuple[int, int, int]]) -> None:
    assert [(len(group.resources), len(group.changes), group.total) for group in groups(plans)] == sizes
