"""Patches of planned objects."""

from __future__ import annotations

from typing import Any

import pytest

from runner.features.plan.trial import patches
from runner.features.plan.trial.patches import PatchError
from runner.features.plan.trial.schemas import ApiDocument, Schema
from runner.values.objects import GVK, Object

# RFC 6902, appendix A, and cases of its section 4.
JSON_PATCHES: list[tuple[Object, list[Object], Object]] = [
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "q"}], {"baz": "q", "foo": "bar"}),
    ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "q"}], {"foo": ["bar", "q", "baz"]}),
    ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["a"]}], {"foo": ["bar", ["a"]]}),
    ({"foo": ["bar", "q", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    ({"baz": "q", "foo": "bar"}, [{"op": "replace", "path": "/baz", "value": "b"}], {"baz": "b", "foo": "bar"}),
    ({"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/d"}], {"a": {}, "c": {"d": 1}}),
    ({"foo": ["a", "b", "c"]}, [{"op": "move", "from": "/foo/0", "path": "/foo/2"}], {"foo": ["b", "c", "a"]}),
    ({"a": {"b": [1]}}, [{"op": "copy", "from": "/a/b", "path": "/c"}], {"a": {"b": [1]}, "c": [1]}),
    ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ({"a/b": 1}, [{"op": "replace", "path": "/a~1b", "value": None}], {"a/b": None}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
]


@pytest.mark.parametrize(("target", "operations", "expected"), JSON_PATCHES)
def test_json_patches_follow_rfc_6902(target: Object, operations: list[Object], expected: Object) -> None:
    assert patches.json_patch(target, operations) == expected


def test_a_json_patch_cannot_exhaust_the_memory_with_copies_of_copies() -> None:
    doubled = [{"op": "copy", "from": "/a", "path": f"/a/x{number}"} for number in range(60)]
    with pytest.raises(PatchError, match="copies too much"):
        patches.json_patch({"a": {"b": "words" * 100}}, doubled)


def test_a_missing_field_is_null_in_a_test_as_at_the_api_server() -> None:
    tests = [{"op": "test", "path": path, "value": None} for path in ("/a/b", "/c")]
    assert patches.json_patch({"a": {}}, tests) == {"a": {}}
    for path in ("/c/d", "/list/0"):
        with pytest.raises(PatchError, match=r"no value|no index"):
            patches.json_patch({"a": {}, "list": []}, [{"op": "test", "path": path, "value": None}])


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([{"op": "test", "path": "/n", "value": True}], "failed"),
        ([{"op": "remove", "path": "/missing"}], "no value"),
        ([{"op": "replace", "path": "/missing", "value": 1}], "no value"),
        ([{"op": "add", "path": "/missing/deep", "value": 1}], "no value"),
        ([{"op": "add", "path": "/list/3", "value": 1}], "no index"),
        ([{"op": "add", "path": "/list/01", "value": 1}], "no index"),
        ([{"op": "remove", "path": "/list/-"}], "no index"),
        ([{"op": "remove", "path": "/list/" + "9" * 10_000}], "no index"),
        ([{"op": "add", "path": "/n/x", "value": 1}], "no object or list"),
        ([{"op": "move", "from": "/list", "path": "/list/0"}], "into itself"),
        ([{"op": "add", "path": "/x"}], "`value` is missing"),
        ([{"op": "sudo", "path": "/x"}], "unknown operation"),
        ([{"op": "add", "path": "x", "value": 1}], "JSON Pointer"),
        ([{"op": "remove", "path": ""}], "whole document"),
        ([{"op": "replace", "path": "", "value": []}], "not an object"),
        (["add"], "not an object"),
        ({"op": "add"}, "list of operations"),
    ],
)
def test_invalid_json_patches_are_rejected_and_change_nothing(operations: Any, message: str) -> None:
    target = {"n": 1, "list": [1, 2]}
    with pytest.raises(PatchError, match=message):
        patches.json_patch(target, operations)
    assert target == {"n": 1, "list": [1, 2]}


# RFC 7386, appendix A.
@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches_follow_rfc_7386(target: Any, patch: Any, expected: Any) -> None:
    assert patches.merge_patch(target, patch) == expected


PORTS = {
    "type": "object",
    "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}},
}
DOCUMENT = ApiDocument(
    {
        "paths": {
            "/api/v1/things": {"post": {"parameters": [{"name": "dryRun", "in": "query"}]}, "get": {}},
            "/api/v1/things/{name}": {
                "parameters": [{"name": "pretty", "in": "query"}],
                "put": {"parameters": [{"name": "dryRun", "in": "header"}]},
                "patch": {"requestBody": {"content": {"application/strategic-merge-patch+json": {}}}},
            },
        },
        "components": {
            "schemas": {
                "Thing": {
                    "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Thing"}],
                    "properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/Spec"}], "default": {}}},
                },
                "Spec": {
                    "description": "Long text.",
                    "properties": {
                        "items": {
                            "type": "array",
                            "items": {"allOf": [{"$ref": "#/components/schemas/Item"}]},
                            "x-kubernetes-patch-merge-key": "name",
                            "x-kubernetes-patch-strategy": "merge",
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["name"],
                        },
                        "finalizers": {
                            "items": {"type": "string"},
                            "x-kubernetes-patch-strategy": "merge",
                            "x-kubernetes-list-type": "set",
                        },
                        "ports": {
                            "items": PORTS,
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["port", "protocol"],
                        },
                        "plain": {"items": {"type": "string"}},
                        "strategy": {"type": "object", "x-kubernetes-patch-strategy": "retainKeys"},
                        "source": {"type": "object", "x-kubernetes-patch-strategy": "replace"},
                        "selector": {"type": "object", "x-kubernetes-map-type": "atomic"},
                    },
                },
                "Item": {
                    "properties": {
                        "env": {"x-kubernetes-patch-merge-key": "name", "x-kubernetes-patch-strategy": "merge"}
                    }
                },
            }
        },
    }
)


@pytest.fixture
def schema() -> Schema:
    found = DOCUMENT.schema(GVK("", "v1", "Thing"))
    assert found is not None
    return found


def test_a_document_lists_the_operations_with_dry_runs() -> None:
    assert DOCUMENT.can_dry_run("/api/v1/things", "POST")
    assert not DOCUMENT.can_dry_run("/api/v1/things", "GET")
    assert not DOCUMENT.can_dry_run("/api/v1/things/{name}", "PUT")
    assert not DOCUMENT.can_dry_run("/api/v1/others", "POST")
    assert DOCUMENT.takes_strategic("/api/v1/things/{name}")
    assert not DOCUMENT.takes_strategic("/api/v1/things")
    assert "description" not in DOCUMENT.schemas["Spec"]


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        (
            {"items": [{"name": "a", "v": 1}]},
            {"items": [{"name": "b"}]},
            {"items": [{"name": "a", "v": 1}, {"name": "b"}]},
        ),
        (
            {"items": [{"name": "a", "env": [{"name": "x", "value": "1"}]}]},
            {"items": [{"name": "a", "env": [{"name": "y"}]}]},
            {"items": [{"name": "a", "env": [{"name": "x", "value": "1"}, {"name": "y"}]}]},
        ),
        (
            {"items": [{"name": "a"}, {"name": "b"}]},
            {"items": [{"name": "a", "$patch": "delete"}]},
            {"items": [{"name": "b"}]},
        ),
        ({"items": [{"name": "a"}]}, {"items": [{"$patch": "replace"}, {"name": "c"}]}, {"items": [{"name": "c"}]}),
        (
            {"items": [{"name": "a"}, {"name": "b"}]},
            {"$setElementOrder/items": [{"name": "c"}, {"name": "b"}, {"name": "a"}], "items": [{"name": "c"}]},
            {"items": [{"name": "c"}, {"name": "b"}, {"name": "a"}]},
        ),
        ({"finalizers": ["a", "b"]}, {"finalizers": ["c", "a"]}, {"finalizers": ["a", "b", "c"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        ({"plain": ["a"]}, {"plain": ["b"]}, {"plain": ["b"]}),
        (
            {"strategy": {"type": "A", "old": {}}},
            {"strategy": {"$retainKeys": ["type"], "type": "B"}},
            {"strategy": {"type": "B"}},
        ),
        (
            {"items": [{"name": "a", "v": 1}, {"name": "b"}, {"name": "a", "v": 2}]},
            {"items": [{"name": "c"}, {"name": "a", "$patch": "delete"}]},
            {"items": [{"name": "b"}, {"name": "c"}]},
        ),
        ({"source": {"old": 1}}, {"source": {"new": 1}}, {"source": {"new": 1}}),
        ({"free": {"a": 1, "b": 1}}, {"free": {"$patch": "replace", "c": 1}}, {"free": {"c": 1}}),
        ({"free": {"a": 1, "b": 1}}, {"free": {"a": None}}, {"free": {"b": 1}}),
    ],
)
def test_strategic_patches_use_the_merge_keys(schema: Schema, before: Object, patch: Object, after: Object) -> None:
    target = {"kind": "Thing", "spec": before}
    assert patches.strategic_patch(target, {"spec": patch}, schema) == {"kind": "Thing", "spec": after}


@pytest.mark.parametrize(
    "patch", [{"items": [{"v": 1}]}, {"$patch": "explode"}, {"$setElementOrder/items": 1, "items": []}, {"items": [1]}]
)
def test_invalid_strategic_patches_are_rejected(schema: Schema, patch: Object) -> None:
    with pytest.raises(PatchError):
        patches.strategic_patch({"spec": {"items": [{"name": "a"}]}}, {"spec": patch}, schema)


class Counted(str):
    """Text that counts how often it is compared."""

    __slots__ = ()
    __hash__ = str.__hash__
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)


def test_the_time_of_a_patch_does_not_grow_with_the_square_of_its_lists(schema: Schema) -> None:
    names = [Counted(f"n{number}") for number in range(300)]
    lists: Object = {"items": [{"name": name} for name in names], "finalizers": names}
    lists["ports"] = [{"port": name, "protocol": "TCP"} for name in names]
    order = {f"$setElementOrder/{field}": lists[field] for field in ("items", "finalizers")}
    removed = {"$deleteFromPrimitiveList/finalizers": names}
    Counted.comparisons = 0
    patches.server_side_apply({"spec": lists}, {"spec": lists}, "m", schema)
    patches.strategic_patch({"spec": lists}, {"spec": {**lists, **order, **removed}}, schema)
    assert Counted.comparisons < 10 * len(names)


def test_an_apply_merges_by_list_type(schema: Schema) -> None:
    before = {
        "items": [{"name": "a", "v": 1}],
        "finalizers": ["a"],
        "ports": [{"port": 80, "protocol": "TCP", "name": "web"}],
        "plain": ["a"],
        "selector": {"a": "b"},
    }
    config = {
        "items": [{"name": "a", "w": 2}, {"name": "b"}],
        "finalizers": ["b"],
        "ports": [{"port": 80, "target": 1}, {"port": 80, "protocol": "UDP"}],
        "plain": ["b"],
        "selector": {"c": "d"},
    }
    assert patches.server_side_apply({"spec": before}, {"spec": config}, "m", schema)["spec"] == {
        "items": [{"name": "a", "v": 1, "w": 2}, {"name": "b"}],
        "finalizers": ["a", "b"],
        "ports": [{"port": 80, "protocol": "TCP", "name": "web", "target": 1}, {"port": 80, "protocol": "UDP"}],
        "plain": ["b"],
        "selector": {"c": "d"},
    }


def test_an_apply_removes_what_the_manager_owned_alone(schema: Schema) -> None:
    def owned(manager: str, fields: Object) -> Object:
        return {"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": fields}}

    item = 'k:{"name":"%s"}'
    mine = {
        "f:gone": {},
        "f:shared": {},
        "f:map": {".": {}, "f:a": {}},
        "f:items": {item % "a": {".": {}, "f:name": {}, "f:v": {}}, item % "b": {".": {}, "f:name": {}}},
        "f:finalizers": {'v:"a"': {}},
    }
    theirs: Object = {"f:shared": {}, "f:map": {"f:b": {}}}
    before = {
        "metadata": {"managedFields": [owned("m", mine), owned("other", theirs)]},
        "spec": {
            "gone": 1,
            "shared": 1,
            "map": {"a": 1, "b": 1},
            "items": [{"name": "a", "v": 1}, {"name": "b"}, {"name": "c"}],
            "finalizers": ["a", "b"],
        },
    }
    applied = patches.server_side_apply(before, {"spec": {"items": [{"name": "a"}], "new": 1}}, "m", schema)
    assert applied["spec"] == {
        "shared": 1,
        "map": {"b": 1},
        "items": [{"name": "a"}, {"name": "c"}],
        "finalizers": ["b"],
        "new": 1,
    }
    assert before["spec"]["gone"] == 1  # type: ignore[index]
