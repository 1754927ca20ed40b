from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.objects import definition

GROUP = "collections.test.example.com"


def strict_kind() -> dict[str, Any]:
    """A kind whose v1 keeps only `status.known`, and whose v1beta1 has no status subresource."""

    known = {"type": "object", "properties": {"known": {"type": "string"}}}
    schema = {"type": "object", "properties": {"status": known}}
    crd = definition(GROUP, "Strict", scope="Cluster", versions=("v1beta1", "v1"), schema=schema)
    crd["spec"]["names"]["shortNames"] = ["str"]
    crd["spec"]["versions"][0]["subresources"] = {}
    return crd


@pytest.fixture
def strict(kubectl: Any, namespace: str) -> dict[str, str]:
    kubectl.apply(strict_kind())
    kubectl.wait("--for=condition=Established", f"crd/stricts.{GROUP}")
    kubectl.apply({"apiVersion": f"{GROUP}/v1", "kind": "Strict", "metadata": {"name": namespace}})
    return {"api_version": f"{GROUP}/v1", "kind": "Strict", "name": namespace}


def test_fields_are_merged_and_the_second_time_nothing_changes(
    module: Any, memcached: dict[str, str], status: Callable[[], dict[str, Any]], kubectl: Any
) -> None:
    first = module("k8s_status", **memcached, status={"nodes": ["a", "b"], "odd": {"x": 1, "y": [{"z": None}]}})
    again = module("k8s_status", **memcached, status={"nodes": ["a", "b"], "odd": {"x": 1, "y": [{"z": None}]}})
    more = module("k8s_status", **memcached, status={"odd": {"x": None, "w": 2}}, diff=True)
    assert [first["changed"], again["changed"], more["changed"]] == [True, False, True]
    assert status() == {"nodes": ["a", "b"], "odd": {"y": [{}], "w": 2}}
    assert more["result"]["status"] == status()
    assert more["diff"]["before"]["status"]["odd"] == {"x": 1, "y": [{}]}
    assert more["diff"]["after"]["status"]["odd"] == {"y": [{}], "w": 2}
    resource = kubectl.get("memcached", "cache", "-n", memcached["namespace"])
    assert resource["metadata"]["generation"] == 1


def test_replacing_leaves_nothing_else(
    module: Any, memcached: dict[str, str], status: Callable[[], dict[str, Any]]
) -> None:
    module("k8s_status", **memcached, status={"nodes": ["a"]}, conditions=[{"type": "Ready", "status": "True"}])
    first = module("k8s_status", **memcached, status={"phase": "Done"}, force=True)
    again = module("k8s_status", **memcached, status={"phase": "Done"}, replace=True)
    assert status() == {"phase": "Done"}
    assert [first["changed"], again["changed"]] == [True, False]


def test_check_mode_returns_the_resulting_status_and_stores_nothing(
    module: Any, memcached: dict[str, str], status: Callable[[], dict[str, Any]]
) -> None:
    would = module("k8s_status", **memcached, status={"nodes": ["a"]}, check=True, diff=True)
    assert would["changed"]
    assert would["result"]["status"] == {"nodes": ["a"]}
    assert would["diff"] == {"before": {"status": {}}, "after": {"status": {"nodes": ["a"]}}}
    refused = module("k8s_status", **memcached, status={"nodes": "no list"}, check=True)
    assert refused["error"]["status"] == 422
    assert status() == {}


def test_writers_at_the_same_time_lose_nothing(
    start_module: Any, memcached: dict[str, str], status: Callable[[], dict[str, Any]], kubectl: Any
) -> None:
    kinds = [f"Kind{number}" for number in range(5)]
    started = [
        start_module("k8s_status", **memcached, conditions=[{"type": kind, "status": "True"}], status={kind: kind})
        for kind in kinds
    ]
    path = ("memcached/cache", "-n", memcached["namespace"], "--subresource=status", "--type=merge", "-p")
    written = 0
    while any(process.poll() is None for process in started):
        written += 1
        kubectl("patch", *path, json.dumps({"status": {"other": written}}))
    results = [json.loads(process.communicate()[0]) for process in started]
    assert [result.get("msg", "") for result in results] == [""] * len(kinds)
    final = status()
    assert sorted(entry["type"] for entry in final["conditions"]) == kinds
    assert {kind: final[kind] for kind in kinds} == {kind: kind for kind in kinds}
    assert final["other"] == written


def test_fields_that_the_schema_drops_are_named_and_are_not_a_change(module: Any, strict: dict[str, str]) -> None:
    wanted = {"known": "kept", "unknown": {"field": 1}}
    first = module("k8s_status", **strict, status=wanted)
    again = module("k8s_status", **strict, status=wanted)
    assert [first["changed"], again["changed"]] == [True, False]
    assert "Strict does not keep status.unknown" in json.dumps(first["warnings"])
    assert "x-kubernetes-preserve-unknown-fields" in json.dumps(again["warnings"])


def test_a_kind_is_found_by_its_other_names(module: Any, strict: dict[str, str]) -> None:
    results = [
        module("k8s_status", **{**strict, "kind": name}, status={"known": name})
        for name in ("stricts", "strict", "str")
    ]
    assert [result["result"]["status"]["known"] for result in results] == ["stricts", "strict", "str"]


def test_a_kind_without_status_subresource_is_refused(module: Any, strict: dict[str, str]) -> None:
    result = module("k8s_status", **{**strict, "api_version": f"{GROUP}/v1beta1"}, status={"known": "x"})
    assert "does not support the status subresource" in result["msg"]
    assert "subresources" in result["msg"]


def test_a_missing_object_or_kind_is_an_error_with_its_name(module: Any, memcached: dict[str, str]) -> None:
    object_missing = module("k8s_status", **{**memcached, "name": "gone"}, status={"nodes": []})
    assert object_missing["msg"] == "Failed to retrieve requested object"
    assert 'memcacheds.cache.example.com "gone" not found' in object_missing["details"]
    assert object_missing["error"]["status"] == 404
    for absent in ({"kind": "Nothing"}, {"api_version": "nothing.example.com/v1"}):
        kind_missing = module("k8s_status", **{**memcached, **absent}, status={"nodes": []})
        assert kind_missing["msg"].startswith("Failed to find exact match for")


def test_an_api_server_that_does_not_answer_is_an_error_of_one_sentence(module: Any, memcached: dict[str, str]) -> None:
    nowhere = {"host": "https://127.0.0.1:1", "api_key": "secret-token"}
    result = module("k8s_status", **memcached, **nowhere, status={"nodes": []})
    assert result["failed"]
    assert "127.0.0.1" in result["msg"]
    assert "secret-token" not in json.dumps(result)
