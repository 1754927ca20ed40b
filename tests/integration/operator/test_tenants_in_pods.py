"""Runs in pods: a tenant whose pods Kubernetes does not admit does not delay the runs of others."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from typing import Any

    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

RULES: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "create", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "create", "patch"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "create", "delete"]},
]


@pytest.fixture
def without_quota(api: Api, neighbour: Things) -> Things:
    """The Things of a namespace whose quota admits no pod."""
    quota = f"/api/v1/namespaces/{neighbour.namespace}/resourcequotas"
    api.call("POST", quota, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    wait_until(lambda: api.call("GET", f"{quota}/none").get("status", {}).get("hard"), "the quota to be in force")
    return neighbour


def test_a_tenant_without_quota_for_pods_delays_no_other_and_sees_why_it_waits(
    project: Project, api: Api, things: Things, without_quota: Things
) -> None:
    project.permit(*RULES)
    project.bind_everywhere()
    project.role("thing", "    - ansible.builtin.debug: {msg: hello}\n")
    project.watch("thing", isolation="pod", maxPods=2, podTemplate={"image": "example.com/ee:1"})
    project.start(
        f"--namespace={without_quota.namespace},{things.namespace}",
        *("--pods-address=127.0.0.1:1", "--pods-bind-address=127.0.0.1:0"),
        f"--leader-election-namespace={project.namespace}",
    )
    for number in range(6):
        without_quota.create(f"blocked-{number}")
    message = without_quota.await_reason("blocked-0", "Running", "WaitingForPod")["message"]
    assert "exceeded quota: none" in message
    began = time.monotonic()
    things.create("other")
    pods = f"/api/v1/namespaces/{things.namespace}/pods"
    wait_until(lambda: api.call("GET", pods)["items"], "the pod of the other tenant")
    assert time.monotonic() - began < 15
