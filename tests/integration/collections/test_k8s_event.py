from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.rights import granted


@pytest.fixture
def about(memcached: dict[str, str]) -> dict[str, Any]:
    """The involved object, and what happened to it."""
    involved = {"apiVersion": memcached["api_version"], "kind": "Memcached", "name": "cache"}
    return {
        "involvedObject": {**involved, "namespace": memcached["namespace"]},
        "type": "Warning",
        "reason": "MemoryTooSmall",
        "message": "There is not enough memory",
        "source": {"component": "memcached-operator"},
    }


def events(kubectl: Any, namespace: str, reason: str = "MemoryTooSmall") -> list[dict[str, Any]]:
    return list(kubectl.get("events", "-n", namespace, f"--field-selector=reason={reason}").get("items", []))


def test_an_event_is_counted_up_when_it_happens_again(
    module: Any, about: dict[str, Any], kubectl: Any, namespace: str
) -> None:
    results = [module("k8s_event", **about) for _ in range(2)]
    assert [result["result"]["count"] for result in results] == [1, 2]
    (event,) = events(kubectl, namespace)
    assert event["firstTimestamp"] <= event["lastTimestamp"]
    described = kubectl("describe", "memcached", "cache", "-n", namespace)
    assert "MemoryTooSmall" in described
    assert "memcached-operator" in described


def test_check_mode_records_nothing(module: Any, about: dict[str, Any], kubectl: Any, namespace: str) -> None:
    would = module("k8s_event", **about, check=True)
    assert would["changed"]
    assert would["result"]["count"] == 1
    assert events(kubectl, namespace) == []


def test_an_event_can_be_deleted_once(module: Any, about: dict[str, Any], kubectl: Any, namespace: str) -> None:
    module("k8s_event", **about)
    deleted = [module("k8s_event", **about, state="absent")["changed"] for _ in range(2)]
    assert deleted == [True, False]
    assert events(kubectl, namespace) == []


def test_without_rights_on_core_events_the_other_group_is_used(
    module: Any, about: dict[str, Any], kubectl: Any, namespace: str, login: Callable[[str], dict[str, str]]
) -> None:
    rule = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["get", "create", "patch"]}
    grant(kubectl, namespace, rule)
    results = [module("k8s_event", **about, **login("worker")) for _ in range(2)]
    assert [result.get("msg") for result in results] == [None, None]
    (event,) = events(kubectl, namespace)
    assert (event["message"], event["series"]["count"]) == ("There is not enough memory", 2)


def test_without_any_right_the_rule_to_add_is_named(
    module: Any, about: dict[str, Any], kubectl: Any, namespace: str, login: Callable[[str], dict[str, str]]
) -> None:
    grant(kubectl, namespace, {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})
    result = module("k8s_event", **about, **login("worker"))
    assert result["error"]["status"] == 403
    assert result["msg"].startswith("Unable to record the event")
    assert "apiGroups [''] resources [events] verbs [get, create, patch]" in result["msg"]


def test_an_event_in_the_wrong_namespace_is_refused_by_the_api_server(module: Any, about: dict[str, Any]) -> None:
    result = module("k8s_event", **about, name="cache-event", namespace="default")
    assert result["error"]["status"] == 422
    assert "involvedObject.namespace" in result["msg"]


def grant(kubectl: Any, namespace: str, rule: dict[str, list[str]]) -> None:
    """Make the service account `worker`, which may do just this."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "worker", "namespace": namespace}}
    kubectl.apply(account, *granted("worker", [rule], namespace=namespace, account=(namespace, "worker")))
