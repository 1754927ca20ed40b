"""Conversion of a run's planned writes to changes in the report."""

from __future__ import annotations

from typing import Any

from runner.core.engine.run_secrets import RunSecrets
from runner.features.plan import changes
from runner.features.plan.changes import ObjectChange
from runner.features.plan.fields import ABSENT, FieldChange
from runner.features.plan.trial.overlay import PlannedChange, Verb
from runner.values.objects import GVK, Object, ObjectKey

DEPLOYMENT = GVK("apps", "v1", "Deployment")
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
