"""The report for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from runner.core.kube.discovery import ApiResource
from runner.features.plan.changes import ObjectChange, Plan, ResourcePlan
from runner.features.plan.fields import ABSENT, FieldChange
from runner.features.plan.tasks import UnplannedTask
from runner.features.rollout.fields import ROLLOUT_POLICY, RolloutPolicy, Step
from runner.sdk.preview import planner
from runner.sdk.preview.grouping import document
from runner.sdk.preview.selection import ResourceSelection, Target
from runner.sdk.preview.text import Style, lines
from runner.values.objects import GVK, ObjectKey, ObjectRef
from runner.values.slots import EMPTY
from tests.kit.watch_values import watch_value

MEMCACHED, DEPLOYMENT = GVK("cache.example.com", "v1", "Memcached"), GVK("apps", "v1", "Deployment")
IMAGE = FieldChange("spec.template.spec.containers[memcached].image", "memcached:1.6.38", "memcached:1.6.39")
RAN = {"conditions": [{"type": "Failure", "status": "False", "reason": "Successful"}]}
EVERYTHING = ResourceSelection.parse("", "", everything=True)


def ref(name: str) -> ObjectRef:
    return ObjectRef(MEMCACHED, ObjectKey("shop", name))


def changed(name: str, *fields: FieldChange, **more: Any) -> ObjectChange:
    return ObjectChange("change", DEPLOYMENT, ObjectKey("shop", name), fields, **more)


def text(*plans: ResourcePlan, colour: bool = False) -> str:
    return "\n".join(lines(Plan(plans), Style(colour)))


def of_fields(*fields: FieldChange) -> Sequence[str]:
    found = text(ResourcePlan(ref("a"), "complete", (changed("a", *fields),))).splitlines()
    return [line.removeprefix("      ") for line in found[2:-2]]


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        pytest.param(FieldChange("a", 1, "1"), ['a: 1 → "1"'], id="text that could be a number is quoted"),
        pytest.param(FieldChange("b", "", None), ['b: "" → null'], id="empty text is quoted"),
        pytest.param(FieldChange("c", 1.5, "true"), ['c: 1.5 → "true"'], id="text that could be a boolean is quoted"),
        *(
            pytest.param(FieldChange("d", 1, value), [f'd: 1 → "{value}"'], id=f"{value} is quoted, and not evaluated")
            for value in ("2001-99-99", "!!bool x", "!!int x", "!!timestamp x", "9" * 100)
        ),
        pytest.param(
            FieldChange("e", ABSENT, "[" * 3000), ["e:", f"  + '{'[' * 3000}'"], id="a long text is not evaluated"
        ),
        pytest.param(FieldChange("a", ABSENT, 1), ["a: (added) 1"], id="an added field"),
        pytest.param(FieldChange("b", "x", ABSENT), ["b: (removed) x"], id="a removed field"),
        pytest.param(FieldChange("c", ABSENT, {}), ["c: (added) {}"], id="an added empty mapping"),
        pytest.param(
            FieldChange("a", {"b": 1}, [{"c": 2}]), ["a:", "  - b: 1", "  + - c: 2"], id="a structure is YAML"
        ),
        pytest.param(
            FieldChange("data.conf", "a\nb\nc\n", "a\nB\nc\n"),
            ["data.conf:", "  @@ -1,3 +1,3 @@", "   a", "  -b", "  +B", "   c"],
            id="text of several lines is compared by line",
        ),
        pytest.param(
            FieldChange("a", "x\n", "x"), ["a:", "  (only line breaks at the end differ)"], id="the last line break"
        ),
        pytest.param(
            FieldChange("data.conf", ABSENT, "a: 1\nb\x1b\n"),
            ["data.conf:", "  + a: 1", "  + b\\x1b"],
            id="new text of several lines",
        ),
        pytest.param(
            FieldChange("data.conf", "a\nb", 3),
            ["data.conf:", "  - a", "  - b", "  + 3"],
            id="text of several lines ends",
        ),
        pytest.param(
            FieldChange("a", "x", "\x1b]0;title\x07y"),
            [r"a: x → \x1b]0;title\x07y"],
            id="no value controls the terminal",
        ),
    ],
)
def test_a_changed_field_is_shown(change: FieldChange, shown: list[str]) -> None:
    assert of_fields(change) == shown


def test_equal_changes_of_a_fleet_are_shown_once() -> None:
    plans = [ResourcePlan(ref(f"m{number}"), "complete", (changed(f"m{number}-x", IMAGE),)) for number in range(47)]
    plans += [ResourcePlan(ref(f"q{number}"), "complete") for number in range(3)]
    assert text(*plans).splitlines() == [
        "47 of 50 Memcached resources: shop/m0, shop/m1, shop/m2 and 44 more",
        "  ~ change Deployment <namespace>/<name>-x",
        "      spec.template.spec.containers[memcached].image: memcached:1.6.38 → memcached:1.6.39",
        "",
        "Plan: 47 of 50 resources with changes; objects: 47 to change",
    ]


def test_a_new_object_shows_its_content_and_a_deleted_one_does_not() -> None:
    data = {"size": "3", "conf": "a: 1\nb: 2\n"}
    content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data}
    config = GVK("", "v1", "ConfigMap")
    plan = ResourcePlan(
        ref("a"),
        "complete",
        (
            ObjectChange("create", config, ObjectKey("shop", "x"), (FieldChange("", ABSENT, content),)),
            ObjectChange("delete", config, ObjectKey("shop", "y"), ()),
        ),
    )
    assert text(plan).splitlines()[1:] == [
        "  + create ConfigMap shop/x",
        "      + metadata:",
        "      +   name: x",
        "      + data:",
        "      +   size: '3'",
        "      +   conf: |",
        "      +     a: 1",
        "      +     b: 2",
        "  - delete ConfigMap shop/y",
        "",
        "Plan: 1 of 1 resource with changes; objects: 1 to create, 1 to delete",
    ]


def test_colour_is_used_only_if_asked_for() -> None:
    assert text(ResourcePlan(ref("a"), "complete")) == "Plan: no changes for 1 resource"
    plan = ResourcePlan(ref("a"), "complete", (changed("a", IMAGE),))
    assert "\x1b[31mmemcached:1.6.38\x1b[0m → \x1b[32mmemcached:1.6.39\x1b[0m" in text(plan, colour=True)
    assert "\x1b" not in text(plan)


def test_why_a_plan_is_partial_failed_or_left_out_is_shown() -> None:
    task = UnplannedTask("Run it", "/r/tasks/main.yml:3", "command", "Command would have run if not in check mode")
    reason = UnplannedTask("", "", "", "refused create pods/exec shop/x: the API server cannot dry-run it")
    assert text(
        ResourcePlan(ref("a"), "partial", (), (task, reason), more_unplanned=7),
        ResourcePlan(ref("b"), "failed", message="task 'Apply' (/r/tasks/main.yml:9) failed: no"),
        ResourcePlan(ref("c"), "skipped", message="paused"),
    ).splitlines() == [
        "Memcached shop/a: the plan is partial",
        "  task 'Run it' (/r/tasks/main.yml:3): Command would have run if not in check mode",
        "  refused create pods/exec shop/x: the API server cannot dry-run it",
        "  7 more tasks",
        "",
        "Memcached shop/b: the plan failed",
        "  task 'Apply' (/r/tasks/main.yml:9) failed: no",
        "",
        "Memcached shop/c: not planned",
        "  paused",
        "",
        "Plan: no changes for 3 resources (1 partial, 1 failed, 1 skipped)",
    ]


def test_objects_that_are_made_again_or_that_nothing_validated_are_marked() -> None:
    plan = ResourcePlan(
        ref("a"), "complete", (changed("a", recreated=True), changed("b", not_validated="no namespace"))
    )
    shown = text(plan)
    assert "  ~ change Deployment shop/a: delete and create again" in shown
    assert "  ~ change Deployment shop/b (not validated: no namespace)" in shown


def test_equal_reasons_of_several_resources_are_shown_once() -> None:
    task = UnplannedTask("Run it", "/r/tasks/main.yml:3", "command", "not in check mode")
    plans = [ResourcePlan(ref(f"m{number}"), "partial", (), (task,)) for number in range(5)]
    plans += [ResourcePlan(ref("z"), "partial", (), (task,), more_unplanned=1)]
    assert text(*plans).splitlines() == [
        "5 Memcached resources: shop/m0, shop/m1, shop/m2 and 2 more: the plan is partial",
        "  task 'Run it' (/r/tasks/main.yml:3): not in check mode",
        "",
        "Memcached shop/z: the plan is partial",
        "  task 'Run it' (/r/tasks/main.yml:3): not in check mode",
        "  1 more tasks",
        "",
        "Plan: no changes for 6 resources (6 partial)",
    ]


def test_a_deletion_is_marked_and_is_not_grouped_with_changes() -> None:
    gone = ObjectChange("delete", MEMCACHED, ObjectKey("shop", "a"), ())
    dependent = ObjectChange("delete", DEPLOYMENT, ObjectKey("shop", "a-x"), (), is_collected=True)
    plans = (
        ResourcePlan(ref("a"), "complete", (gone, dependent), finalizing=True),
        ResourcePlan(ref("b"), "complete", (changed("b-x", IMAGE),)),
    )
    assert text(*plans).splitlines()[:5] == [
        "Memcached shop/a (deletion) (1 of 2 Memcached resources)",
        "  - delete Memcached shop/a",
        "  - delete Deployment shop/a-x (by Kubernetes, with its owner)",
        "",
        "Memcached shop/b (1 of 2 Memcached resources)",
    ]


@pytest.mark.parametrize(("text", "namespace", "files"), [("a/m4", "", ()), ("", "shop", ()), ("", "", ("m4.yaml",))])
def test_a_plan_of_some_resources_names_no_step_because_it_depends_on_all(
    text: str, namespace: str, files: tuple[str, ...]
) -> None:
    watch = watch_value(gvk=MEMCACHED, more=EMPTY.having(ROLLOUT_POLICY, RolloutPolicy((Step(1),))))
    resource = ApiResource(MEMCACHED, "memcacheds", namespaced=True, verbs=frozenset(), subresources=frozenset())
    target = Target(watch, resource, {"metadata": {"name": "m4", "namespace": "shop", "uid": "u"}, "status": RAN})
    selection = ResourceSelection.parse(text, namespace, everything=bool(namespace), files=files)
    assert planner.steps([target], selection) == {}
    assert planner.steps([target], EVERYTHING) == {ref("m4"): 1}


def test_resources_of_a_rollout_are_grouped_by_the_step_that_reaches_them() -> None:
    policy = RolloutPolicy((Step(1), Step(3)))
    watch = watch_value(gvk=MEMCACHED, more=EMPTY.having(ROLLOUT_POLICY, policy))
    resource = ApiResource(MEMCACHED, "memcacheds", namespaced=True, verbs=frozenset(), subresources=frozenset())
    metas = [{"name": f"m{number}", "namespace": "shop", "uid": f"uid-{number}"} for number in range(5)]
    new = {"metadata": {"name": "new", "namespace": "shop", "uid": "uid-new"}}
    targets = [Target(watch, resource, {"metadata": meta, "status": RAN}) for meta in metas]
    steps = planner.steps([*targets, Target(watch, resource, new)], EVERYTHING)
    assert {each.key.name: step for each, step in steps.items()} == {"m0": 1, "m1": 2, "m2": 2, "m3": 3, "m4": 3}
    plans = [
        ResourcePlan(each, "complete", (changed(f"{each.key.name}-x", IMAGE),), step=step)
        for each, step in steps.items()
    ]
    assert [line for line in text(*plans).splitlines() if "step" in line] == [
        "Memcached shop/m0 in step 1 of the rollout (1 of 5 Memcached resources)",
        "2 of 5 Memcached resources in step 2 of the rollout: shop/m1, shop/m2",
        "2 of 5 Memcached resources in step 3 of the rollout: shop/m3, shop/m4",
    ]
    assert [group["step"] for group in document(Plan(plans))["groups"]] == [1, 2, 3]


def test_an_object_that_several_resources_write_is_counted_once() -> None:
    plans = [ResourcePlan(ref(name), "complete", (changed("shared", IMAGE),)) for name in ("a", "b")]
    assert text(*plans).splitlines()[-1] == "Plan: 2 of 2 resources with changes; objects: 1 to change"
