"""The hash of a plan covers what an approval is about, and nothing that changes by itself or is secret."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from runner.core.engine.run_secrets import RunSecrets
from runner.features.plan import changes, published
from runner.features.plan.changes import ObjectChange, ResourcePlan
from runner.features.plan.fields import ABSENT, FieldChange
from runner.features.plan.published import PlanBasis
from runner.features.plan.tasks import UnplannedTask
from runner.features.plan.trial.overlay import PlannedChange, Verb
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef

KIND = GVK("example.com", "v1", "Web")
OWNER = {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "w", "namespace": "shop", "uid": "u"}}
REF = ObjectRef.of(KIND, OWNER)
DEPLOYMENT = GVK("apps", "v1", "Deployment")
SERVICE = GVK("", "v1", "Service")


def change(
    gvk: GVK = DEPLOYMENT, verb: Verb = "change", name: str = "web", path: str = "spec", value: object = 2
) -> ObjectChange:
    changes = (FieldChange(path, 1, value),)
    return ObjectChange(verb, gvk, ObjectKey("shop", name), changes)


def new(gvk: GVK, obj: object) -> ObjectChange:
    return ObjectChange("create", gvk, ObjectKey("shop", "web"), (FieldChange("", ABSENT, obj),))


def basis(*changes: ObjectChange, **different: Any) -> PlanBasis:
    plan = ResourcePlan(REF, "complete", changes or (change(),))
    return replace(PlanBasis(plan, "u", 3, "role", {"/api/v1/namespaces/shop/configmaps/a": "1"}), **different)


@pytest.mark.parametrize(
    "other",
    [
        basis(uid="another"),
        basis(generation=4),
        basis(content="edited"),
        basis(reads={"/api/v1/namespaces/shop/configmaps/a": "2"}),
        basis(change(value=3)),
        basis(change(name="other")),
        basis(change(verb="delete")),
        basis(change(), change(name="second")),
        basis(plan=ResourcePlan(REF, "partial", (change(),), (UnplannedTask("t", "f:1", "command", "why"),))),
        basis(plan=ResourcePlan(REF, "complete", (change(),), finalizing=True)),
    ],
)
def test_whatever_an_approval_is_about_changes_the_hash(other: PlanBasis) -> None:
    assert other.hash("n") != basis().hash("n")


def test_each_nonce_gives_another_hash_and_the_order_of_writes_does_not_count() -> None:
    assert basis().hash("n") != basis().hash("m")
    one, two = change(), change(name="second")
    assert basis(one, two).hash("n") == basis(two, one).hash("n")


def test_values_that_the_api_server_chooses_do_not_count() -> None:
    def service(port: int, address: str, named: int) -> PlanBasis:
        ports = [{"name": "http", "port": named, "nodePort": port}]
        return basis(new(SERVICE, {"spec": {"clusterIP": address, "ports": ports}}))

    assert service(30001, "10.0.0.1", 80).hash("n") == service(30002, "10.0.0.2", 80).hash("n")
    assert service(30001, "10.0.0.1", 80).hash("n") != service(30001, "10.0.0.1", 81).hash("n")


def test_times_of_a_status_do_not_count() -> None:
    def conditions(time: str, status: str) -> PlanBasis:
        after = {"conditions": [{"type": "Up", "status": status, "lastTransitionTime": time}]}
        return basis(ObjectChange("change", KIND, ObjectKey("shop", "w"), (FieldChange("status", ABSENT, after),)))

    assert conditions("10:00", "True").hash("n") == conditions("10:01", "True").hash("n")
    assert conditions("10:00", "True").hash("n") != conditions("10:00", "False").hash("n")


def test_the_status_names_objects_and_fields_without_their_values() -> None:
    found = published.status(
        basis(change(path="spec.replicas", value="the value")), "n", "now", "w-plan", {"hash": "old"}
    )
    assert found["hash"] == basis(change(path="spec.replicas", value="the value")).hash("n")
    (entry,) = found["changes"]
    del entry["digest"]
    assert entry == {
        "verb": "change",
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "namespace": "shop",
        "name": "web",
        "fields": ["spec.replicas"],
    }
    assert (found["configMap"], found["approval"]) == ("w-plan", {"hash": "old"})
    assert "the value" not in str(found)


@pytest.mark.lengthy
def test_a_large_plan_is_cut_in_the_status_and_in_the_config_map() -> None:
    many = [change(name=f"web-{number}", path="spec." + "x" * 150, value="y" * 3000) for number in range(500)]
    found = published.status(basis(*many), "n", "now", "", {})
    assert len(str(found)) < 64 << 10
    assert len(found["changes"]) + found["moreChanges"] == 500
    text = published.data(basis(*many).plan)["changes.yaml"]
    assert len(text) < 300 << 10
    assert "more entries are omitted" in text
    assert yaml.safe_load(text)[0]["change"]["name"] == "web-0"


def test_an_object_that_exceeds_the_config_map_is_omitted_before_it_becomes_yaml(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(yaml, "safe_dump", None)
    text = published.data(basis(change(value=[0] * 200_000)).plan)["changes.yaml"]
    assert text == "# 1 more entries are omitted, because they are too large\n"


@pytest.mark.parametrize(
    ("other", "phrase"),
    [
        (basis(generation=4), "the object changed (generation 3 → 4)"),
        (basis(content="edited"), "the role, playbook or settings changed"),
        (
            basis(reads={"/api/v1/namespaces/shop/configmaps/a": "2"}),
            "an object that the plan read changed: /api/v1/namespaces/shop/configmaps/a",
        ),
        (basis(change(value=3)), "change Deployment shop/web is planned with other values"),
        (basis(change(), change(name="second")), "change Deployment shop/second is planned now"),
    ],
)
def test_a_difference_is_named(other: PlanBasis, phrase: str) -> None:
    before = published.status(basis(), "n", "now", "", {})
    assert published.differences(before, other) == (phrase,)


def plan_of(*changes: ObjectChange) -> ResourcePlan:
    return ResourcePlan(REF, "complete", changes)


def test_equal_drift_has_an_equal_hash_in_any_order_and_at_any_time() -> None:
    first, second = change(), change(name="second")
    found = published.drift(plan_of(first, second), "now")
    assert found["hash"] == published.drift(plan_of(second, first), "later")["hash"]
    assert found["hash"] != published.drift(plan_of(first), "now")["hash"]
    assert found["hash"] != published.drift(plan_of(change(value=3), second), "now")["hash"]


def test_drift_lists_objects_with_their_changed_fields_up_to_a_limit() -> None:
    found = published.drift(plan_of(change()), "now")
    assert found["time"] == "now"
    assert found["changes"] == [
        {
            "verb": "change",
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "namespace": "shop",
            "name": "web",
            "fields": ["spec"],
            "values": [{"path": "spec", "before": 1, "after": 2}],
        }
    ]
    assert "moreChanges" not in found
    many = published.drift(plan_of(*(change(name=f"web-{number}") for number in range(1000))), "now")
    assert len(many["changes"]) + many["moreChanges"] == 1000
    assert many["moreChanges"] > 0


def test_drift_has_the_values_of_the_first_fields_and_long_ones_are_cut() -> None:
    fields = [
        FieldChange("spec.text", ABSENT, "x" * 1000),
        FieldChange("spec.items", ["y" * 300], None),
        *(FieldChange(f"spec.f{number}", number, ABSENT) for number in range(100)),
    ]
    (entry,) = published.drift(plan_of(replace(change(), fields=tuple(fields))), "now")["changes"]
    assert entry["values"][:3] == [
        {"path": "spec.text", "after": "x" * 200 + "…"},
        {"path": "spec.items", "before": '["' + "y" * 198 + "…", "after": None},
        {"path": "spec.f0", "before": 0},
    ]
    assert len(entry["values"]) == 10


def test_the_summary_of_a_finalizers_plan_says_that_it_is_for_a_deletion() -> None:
    plan = replace(plan_of(change()), finalizing=True)
    assert published.summary(plan) == "deletion: 1 to change: Deployment shop/web"


KEY = ObjectKey("shop", "web")


def state(replicas: int, version: str = "1", **more: Any) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": version, "uid": "u"},
        "spec": {"replicas": replicas},
        **more,
    }


def reported(verb: Verb, before: Object | None, after: Object | None, **more: Any) -> list[ObjectChange]:
    planned = PlannedChange(verb, DEPLOYMENT, KEY, before, after, **{"writes": 1, **more})
    return list(changes.reported([planned], RunSecrets()))


def test_a_changed_object_has_the_fields_that_differ_but_not_maintained_metadata() -> None:
    (found,) = reported("change", state(1), state(2, "2"))
    assert found == ObjectChange("change", DEPLOYMENT, KEY, (FieldChange("spec.replicas", 1, 2),))
    assert reported("change", state(1), state(1, "2")) == []
    (found,) = reported("change", state(1), state(1, "2"), recreated=True)
    assert (found.fields, found.recreated) == ((), True), "it is created again, so it is reported"
    (found,) = reported("delete", state(1), None)
    assert (found.verb, found.fields) == ("delete", ())


def test_the_status_is_compared_only_if_the_run_changed_it() -> None:
    (found,) = reported("change", state(1, status={"ready": 1}), state(2, status={"ready": 1}))
    assert [each.path for each in found.fields] == ["spec.replicas"]
    (found,) = reported("change", state(1, status={"ready": 1}), state(1, status={"ready": 2}))
    assert [each.path for each in found.fields] == ["status.ready"]


def test_a_new_object_has_one_field_with_its_content_and_no_status_unless_the_run_wrote_it() -> None:
    (found,) = reported("create", None, state(1, status={}), reason="namespace shop is planned")
    (content,) = found.fields
    assert (content.path, content.before) == ("", ABSENT)
    assert content.after == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 1},
    }
    assert found.not_validated == "namespace shop is planned"
    (found,) = reported("create", None, state(1, status={"ready": 1}), writes=2)
    assert found.fields[0].after["status"] == {"ready": 1}
