"""What counts as a change of an object, and which field of it."""

from __future__ import annotations

from typing import Any

import pytest

from runner.plan.fields import ABSENT, FieldChange, differences, normalised


def changed(before: Any, after: Any) -> list[tuple[str, Any, Any]]:
    return [(each.path, each.before, each.after) for each in differences(before, after)]


def test_equal_objects_have_no_differences() -> None:
    assert differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}) == ()


def test_fields_are_named_by_their_path_in_the_order_of_names() -> None:
    before = {"spec": {"replicas": 1, "paused": True}, "data": {"a.b": "x"}}
    after = {"spec": {"replicas": 2, "size": 3}, "data": {"a.b": "y"}}
    assert changed(before, after) == [
        ('data["a.b"]', "x", "y"),
        ("spec.paused", True, ABSENT),
        ("spec.replicas", 1, 2),
        ("spec.size", ABSENT, 3),
    ]


def test_true_and_one_differ() -> None:
    assert changed({"a": True}, {"a": 1}) == [("a", True, 1)]


def test_a_field_that_becomes_null_differs_from_one_that_is_removed() -> None:
    assert changed({"a": 1}, {"a": None}) == [("a", 1, None)]
    assert changed({"a": 1}, {}) == [("a", 1, ABSENT)]


def test_items_with_names_are_compared_by_name() -> None:
    before = {"containers": [{"name": "web", "image": "a"}, {"name": "log", "image": "b"}]}
    after = {"containers": [{"name": "web", "image": "c"}, {"name": "new", "image": "d"}]}
    assert changed(before, after) == [
        ("containers[web].image", "a", "c"),
        ("containers[log]", {"name": "log", "image": "b"}, ABSENT),
        ("containers[new]", ABSENT, {"name": "new", "image": "d"}),
    ]


def test_another_order_of_named_items_is_a_change() -> None:
    before = {"initContainers": [{"name": "a"}, {"name": "b"}]}
    after = {"initContainers": [{"name": "b"}, {"name": "a"}]}
    assert changed(before, after) == [("initContainers", ["a", "b"], ["b", "a"])]


def test_items_with_equal_names_are_compared_by_position() -> None:
    before = {"ports": [{"name": "dns", "protocol": "UDP"}, {"name": "dns", "protocol": "TCP"}]}
    after = {"ports": [{"name": "dns", "protocol": "UDP"}, {"name": "dns", "protocol": "SCTP"}]}
    assert changed(before, after) == [("ports[1].protocol", "TCP", "SCTP")]


def test_an_inserted_item_changes_no_later_item() -> None:
    assert changed({"args": ["-a", "-c"]}, {"args": ["-a", "-b", "-c"]}) == [("args[1]", ABSENT, "-b")]
    assert changed({"args": ["-a", "-b"]}, {"args": ["-b"]}) == [("args[0]", "-a", ABSENT)]


def test_a_value_of_another_type_is_one_change() -> None:
    assert changed({"a": {"b": 1}}, {"a": [1]}) == [("a", {"b": 1}, [1])]


DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {
        "name": "web",
        "uid": "1",
        "resourceVersion": "2",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    },
    "spec": {"replicas": 1},
    "status": {"replicas": 1},
}


def test_maintained_fields_are_removed() -> None:
    assert normalised(DEPLOYMENT, with_status=False) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 1},
    }


def test_a_status_that_the_run_wrote_is_kept() -> None:
    assert normalised(DEPLOYMENT, with_status=True)["status"] == {"replicas": 1}


def test_other_annotations_are_kept() -> None:
    obj = {"metadata": {"annotations": {"a": "b", "kubectl.kubernetes.io/last-applied-configuration": "{}"}}}
    assert normalised(obj, with_status=False) == {"metadata": {"annotations": {"a": "b"}}}


@pytest.mark.parametrize(
    ("address", "kept"), [("10.0.0.7", {}), ("None", {"clusterIP": "None", "clusterIPs": ["None"]})]
)
def test_values_that_the_api_server_chooses_for_a_new_service_are_removed(address: str, kept: dict[str, Any]) -> None:
    spec = {"clusterIP": address, "clusterIPs": [address], "ports": [{"port": 80, "nodePort": 31000}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
    assert normalised(service, with_status=False, created=True)["spec"] == {**kept, "ports": [{"port": 80}]}
    assert normalised(service, with_status=False)["spec"] == spec


def test_a_change_is_a_value() -> None:
    assert FieldChange("a", 1, 2) == FieldChange("a", 1, 2)
