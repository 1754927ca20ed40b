"""What counts as a change of an object, and which field of it."""

from __future__ import annotations

from typing import Any

import pytest

from runner.features.plan.fields import ABSENT, differences, normalised


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        pytest.param({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, [], id="equal objects do not differ"),
        pytest.param(
            {"spec": {"replicas": 1, "paused": True}, "data": {"a.b": "x"}},
            {"spec": {"replicas": 2, "size": 3}, "data": {"a.b": "y"}},
            [
                ('data["a.b"]', "x", "y"),
                ("spec.paused", True, ABSENT),
                ("spec.replicas", 1, 2),
                ("spec.size", ABSENT, 3),
            ],
            id="fields have paths in the order of names",
        ),
        pytest.param({"a": True}, {"a": 1}, [("a", True, 1)], id="true and one differ"),
        pytest.param({"a": 1}, {"a": None}, [("a", 1, None)], id="a field becomes null"),
        pytest.param({"a": 1}, {}, [("a", 1, ABSENT)], id="a field is removed"),
        pytest.param(
            {"containers": [{"name": "web", "image": "a"}, {"name": "log", "image": "b"}]},
            {"containers": [{"name": "web", "image": "c"}, {"name": "new", "image": "d"}]},
            [
                ("containers[web].image", "a", "c"),
                ("containers[log]", {"name": "log", "image": "b"}, ABSENT),
                ("containers[new]", ABSENT, {"name": "new", "image": "d"}),
            ],
            id="items are compared by name",
        ),
        pytest.param(
            {"initContainers": [{"name": "a"}, {"name": "b"}]},
            {"initContainers": [{"name": "b"}, {"name": "a"}]},
            [("initContainers", ["a", "b"], ["b", "a"])],
            id="named items are in another order",
        ),
        pytest.param(
            {"ports": [{"name": "dns", "protocol": "UDP"}, {"name": "dns", "protocol": "TCP"}]},
            {"ports": [{"name": "dns", "protocol": "UDP"}, {"name": "dns", "protocol": "SCTP"}]},
            [("ports[1].protocol", "TCP", "SCTP")],
            id="items with equal names are compared by position",
        ),
        pytest.param(
            {"args": ["-a", "-c"]},
            {"args": ["-a", "-b", "-c"]},
            [("args[1]", ABSENT, "-b")],
            id="an inserted item changes no later one",
        ),
        pytest.param(
            {"args": ["-a", "-b"]},
            {"args": ["-b"]},
            [("args[0]", "-a", ABSENT)],
            id="a removed item changes no later one",
        ),
        pytest.param({"a": {"b": 1}}, {"a": [1]}, [("a", {"b": 1}, [1])], id="a value of another type is one change"),
    ],
)
def test_differences_are_named_by_their_field(before: Any, after: Any, changes: list[tuple[str, Any, Any]]) -> None:
    assert [(each.path, each.before, each.after) for each in differences(before, after)] == changes


def test_long_lists_of_equal_items_are_compared_one_by_one_because_a_better_comparison_takes_hours() -> None:
    changes = differences([0, 1] * 2000, [1, 0, 0] * 2000)
    assert [change.path for change in changes[:3]] == ["[0]", "[1]", "[5]"]
    assert sum(change.before is ABSENT for change in changes) == 2000


def test_a_long_list_with_one_new_item_has_one_change() -> None:
    items = [number % 7 for number in range(5000)]
    assert [change.path for change in differences(items, [*items[:9], "new", *items[9:]])] == ["[9]"]


def test_fields_that_the_api_server_maintains_are_removed() -> None:
    obj: dict[str, Any] = {
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
    assert normalised(obj, with_status=False) == {"metadata": {"name": "web"}, "spec": {"replicas": 1}}
    assert normalised(obj, with_status=True)["status"] == {"replicas": 1}
    obj["metadata"]["annotations"]["a"] = "b"
    assert normalised(obj, with_status=False)["metadata"] == {"name": "web", "annotations": {"a": "b"}}


@pytest.mark.parametrize(
    ("address", "kept"), [("10.0.0.7", {}), ("None", {"clusterIP": "None", "clusterIPs": ["None"]})]
)
def test_values_that_the_api_server_chooses_for_a_new_service_are_removed(address: str, kept: dict[str, Any]) -> None:
    spec = {"clusterIP": address, "clusterIPs": [address], "ports": [{"port": 80, "nodePort": 31000}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
    assert normalised(service, with_status=False, created=True)["spec"] == {**kept, "ports": [{"port": 80}]}
    assert normalised(service, with_status=False)["spec"] == spec
