"""Conversion of a run's planned writes to changes in the report."""

from __future__ import annotations

from typing import Any

from runner.engine.run_secrets import RunSecrets
from runner.objects import GVK, Object, ObjectKey
from runner.plan import changes
from runner.plan.changes import ObjectChange
from runner.plan.fields import ABSENT, FieldChange
from runner.proxy.planning.overlay import PlannedChange, Verb

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


def test_a_changed_object_has_the_fields_that_differ() -> None:
    (found,) = reported("change", state(1), state(2, "2"))
    assert found == ObjectChange("change", DEPLOYMENT, KEY, (FieldChange("spec.replicas", 1, 2),))


def test_a_change_of_maintained_metadata_alone_is_none() -> None:
    assert reported("change", state(1), state(1, "2")) == []


def test_the_status_is_compared_only_if_the_run_changed_it() -> None:
    (found,) = reported("change", state(1, status={"ready": 1}), state(2, status={"ready": 1}))
    assert [each.path for each in found.fields] == ["spec.replicas"]
    (found,) = reported("change", state(1, status={"ready": 1}), state(1, status={"ready": 2}))
    assert [each.path for each in found.fields] == ["status.ready"]


def test_a_new_object_has_one_field_with_its_content_and_no_status() -> None:
    (found,) = reported("create", None, state(1, status={}))
    (content,) = found.fields
    assert (content.path, content.before) == ("", ABSENT)
    assert content.after == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 1},
    }


def test_the_status_of_a_new_object_is_reported_if_the_run_wrote_it() -> None:
    (found,) = reported("create", None, state(1, status={"ready": 1}), writes=2)
    assert found.fields[0].after["status"] == {"ready": 1}


def test_a_deleted_object_has_no_fields() -> None:
    (found,) = reported("delete", state(1), None)
    assert (found.verb, found.fields) == ("delete", ())


def test_an_object_that_is_created_again_is_reported_even_without_differences() -> None:
    (found,) = reported("change", state(1), state(1, "2"), recreated=True)
    assert (found.fields, found.recreated) == ((), True)


def test_an_object_that_the_api_server_did_not_validate_has_the_reason() -> None:
    (found,) = reported("create", None, state(1), reason="namespace shop is planned")
    assert found.not_validated == "namespace shop is planned"
