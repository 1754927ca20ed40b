"""Plan and drift of an object, as the page shows them."""

from __future__ import annotations

from typing import Any

import pytest

from runner.objects import APPROVE, GVK, MODE, ObjectKey, ObjectRef
from runner.plan import published
from runner.plan.changes import ObjectChange, ResourcePlan
from runner.plan.fields import ABSENT, FieldChange
from runner.ui import plans
from runner.ui.plans import LatestPlans
from runner.watches.policy import RunMode
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


def shown(obj: dict[str, Any], latest: LatestPlans | None = None, mode: RunMode = "approve") -> Any:
    return plans.view(watch_value(mode=mode), obj, latest or LatestPlans(), KEY)


def test_an_object_without_plan_and_drift_shows_none() -> None:
    assert shown(an_object("cart", [], "shop", 1, {})) is None


def test_values_of_the_latest_plan_are_shown_before_and_after() -> None:
    latest = LatestPlans()
    latest.add(plan_of(CHANGE))
    (change,) = shown(stored(), latest)["changes"]
    assert (change["verb"], change["kind"], change["name"]) == ("change", "Deployment", "web")
    replicas, added = change["fields"]
    assert replicas == {"path": "spec.replicas", "before": "3", "after": "5"}
    assert (added["before"], added["after"]) == (None, '{\n  "a": 1\n}')


@pytest.mark.parametrize("field", ["plan", "drift"])
def test_a_plan_of_an_earlier_process_shows_the_changed_fields(field: str) -> None:
    view = shown(stored(field))
    assert view["type"] == field
    (change,) = view["changes"]
    assert [each["path"] for each in change["fields"]] == ["spec.replicas", "spec.x"]


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
    command = shown(stored(annotations=annotations, **more), mode=mode)["approve"]
    expected = f"kubectl annotate --overwrite memcached.v1alpha1.cache.example.com cart -n shop {APPROVE}=3b0f"
    assert command == (expected if approvable else "")


def test_long_values_and_old_plans_are_dropped() -> None:
    latest = LatestPlans()
    for number in range(300):
        ref = ObjectRef(WATCH.gvk, ObjectKey("shop", f"cart-{number}"), "uid")
        long = ObjectChange("change", CHANGE.gvk, WEB, (FieldChange("spec.text", "", "x" * 10_000),))
        latest.add(ResourcePlan(ref, "complete", (long,)))
    assert latest.of(WATCH.gvk, ObjectKey("shop", "cart-0")) == ()
    ((change,),) = [latest.of(WATCH.gvk, ObjectKey("shop", "cart-299"))]
    assert len(change["fields"][0]["after"]) < 3000
