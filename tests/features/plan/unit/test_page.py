"""Plan and drift of an object, as the page shows them."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.watches.policy import RunMode
from runner.features.plan import published
from runner.features.plan.changes import ObjectChange, ResourcePlan
from runner.features.plan.fields import ABSENT, FieldChange
from runner.features.plan.page import LatestPlans
from runner.features.plan.plan_status import APPROVE
from runner.values.objects import GVK, MODE, ObjectKey, ObjectRef
from tests.kit.page_values import an_object, condition
from tests.kit.watch_values import watch_value

KEY = ObjectKey("shop", "cart")
WATCH = watch_value(mode="approve")
REF = ObjectRef(WATCH.gvk, KEY, "uid")
WEB = ObjectKey("shop", "web")
CHANGE = ObjectChange(
    "change",
    GVK("apps", "v1", "Deployment"),
    WEB,
    (FieldChange("spec.replicas", 3, 5), FieldChange("spec.x", ABSENT, {"a": 1})),
)


def plan_of(*changes: ObjectChange) -> ResourcePlan:
    return ResourcePlan(REF, "complete", changes)


def stored(field: str = "plan", annotations: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """Return the object with a plan or drift in its status."""
    value = {**published.drift(plan_of(CHANGE), "2026-11-21T11:00:00Z"), "hash": "3b0f", **more}
    kind = {"plan": "Planned", "drift": "Drifted"}[field]
    metadata = {"annotations": annotations or {}}
    return an_object("cart", [condition(kind)], "shop", 1, {"status": {field: value}, "metadata": metadata})


def shown(obj: dict[str, Any], *plans: ResourcePlan, mode: RunMode = "approve") -> Any:
    latest = LatestPlans({WATCH.gvk: mode})
    for plan in plans:
        latest.add(plan)
    return latest.section(WATCH.gvk, obj)


def rows_of(section: Any) -> Any:
    return next(node["of"]["rows"] for node in section["nodes"] if node["as"] == "table")


def test_an_object_without_plan_and_drift_shows_none() -> None:
    assert shown(an_object("cart", [], "shop", 1, {})) is None


def test_values_of_the_latest_plan_are_shown_before_and_after() -> None:
    ((name, verb, fields),) = rows_of(shown(stored(), plan_of(CHANGE)))
    assert (name, verb) == (["shop/web", " ", {"as": "soft", "of": "Deployment"}], {"as": "tag", "of": "change"})
    replicas, added = (line["of"] for line in fields)
    assert [node["of"] for node in replicas] == ["spec.replicas", "- 3", "+ 5"]
    assert added[1:] == [{"as": "added", "of": '+ {\n  "a": 1\n}'}]


def test_the_fields_of_an_object_that_is_created_are_folded() -> None:
    created = ObjectChange("create", CHANGE.gvk, WEB, CHANGE.fields)
    latest = LatestPlans({WATCH.gvk: "plan"})
    latest.add(plan_of(created))
    status = {"plan": {**published.drift(plan_of(created), "2026-11-21T11:00:00Z"), "hash": "3b0f"}}
    ((_, verb, fields),) = rows_of(latest.section(WATCH.gvk, an_object("cart", [], "shop", 1, {"status": status})))
    assert (verb["of"], fields["as"], fields["of"][0], len(fields["of"][1])) == ("create", "folded", "Content", 2)


@pytest.mark.parametrize("field", ["plan", "drift"])
def test_a_plan_of_an_earlier_process_shows_the_changed_fields(field: str) -> None:
    section = shown(stored(field))
    assert section["title"] == field.capitalize()
    ((_, _, fields),) = rows_of(section)
    assert [line["of"][0]["of"] for line in fields] == ["spec.replicas", "spec.x"]


def test_the_summary_counts_what_is_not_shown_and_names_the_approval() -> None:
    more: dict[str, Any] = {"moreChanges": 2, "unplanned": 1, "approval": {"hash": "3b0f", "state": "Succeeded"}}
    summary, _, last = shown(stored(**more))["nodes"]
    texts = [node if isinstance(node, str) else node["of"] for node in summary["of"]]
    assert texts == [
        "3 objects to change, 1 task not planned, since ",
        "2026-11-21T11:00:00Z",
        ", 3b0f",
        ", approved: ",
        "succeeded",
    ]
    assert last == {"as": "note", "of": ["2 more objects not shown"]}


def test_a_plan_that_failed_and_one_that_no_page_shows_are_not_kept() -> None:
    latest = LatestPlans({WATCH.gvk: "plan"})
    latest.add(ResourcePlan(REF, "failed", (CHANGE,)))
    hidden = LatestPlans({WATCH.gvk: "plan"}, is_shown=False)
    hidden.add(plan_of(CHANGE))
    for plans in (latest, hidden):
        assert (plans.of(WATCH.gvk, KEY), plans.revision) == ({}, 0)


@pytest.mark.parametrize(
    ("mode", "annotations", "more", "approvable"),
    [
        ("approve", {}, {}, True),
        ("apply", {MODE: "approve"}, {}, True),
        ("approve", {MODE: "plan"}, {}, False),
        ("plan", {}, {}, False),
        ("approve", {}, {"changes": []}, False),
        ("approve", {}, {"approval": {"hash": "3b0f", "state": "Succeeded"}}, False),
        ("approve", {}, {"approval": {"hash": "older", "state": "Succeeded"}}, True),
    ],
)
def test_the_command_is_shown_only_if_the_plan_can_be_approved(
    *, mode: RunMode, annotations: dict[str, str], more: dict[str, Any], approvable: bool
) -> None:
    nodes = shown(stored(annotations=annotations, **more), mode=mode)["nodes"]
    commands = [node["of"]["line"] for node in nodes if node["as"] == "command"]
    expected = f"kubectl annotate --overwrite memcached.v1alpha1.cache.example.com cart -n shop {APPROVE}=3b0f"
    assert commands == ([expected] if approvable else [])


def test_long_values_and_old_plans_are_dropped() -> None:
    latest = LatestPlans({})
    for number in range(300):
        ref = ObjectRef(WATCH.gvk, ObjectKey("shop", f"cart-{number}"), "uid")
        long = ObjectChange("change", CHANGE.gvk, WEB, (FieldChange("spec.text", "", "x" * 10_000),))
        latest.add(ResourcePlan(ref, "complete", (long,)))
    assert latest.of(WATCH.gvk, ObjectKey("shop", "cart-0")) == {}
    (row,) = latest.of(WATCH.gvk, ObjectKey("shop", "cart-299")).values()
    assert len(str(row)) < 3000
