"""`watchDependentStatus: auto`: a role that reports what it reads runs again when the status of a dependent changes.

No node runs the pods: the tests are their kubelet, and the real controllers do the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from runner.features.loopguard.guard import ROLLOUT_WAITS
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Operator, Project

ROLE = """
    - kubernetes.core.k8s:
        definition:
          apiVersion: apps/v1
          kind: Deployment
          metadata: &meta
            name: "{{ ansible_operator_meta.name }}"
            namespace: "{{ ansible_operator_meta.namespace }}"
          spec:
            replicas: "{{ size | int }}"
            selector: {matchLabels: &labels {app: "{{ ansible_operator_meta.name }}"}}
            template:
              metadata: {labels: *labels}
              spec:
                nodeSelector: {only: nowhere}
                terminationGracePeriodSeconds: 0
                containers: [{name: main, image: "example.com/main:1"}]
    - kubernetes.core.k8s_info:
        api_version: apps/v1
        kind: Deployment
        name: "{{ ansible_operator_meta.name }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      register: found
    - operator_sdk.util.k8s_status:
        api_version: test.example.com/v1
        kind: Thing
        name: "{{ ansible_operator_meta.name }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
        status: {ready: "{{ found.resources[0].status.readyReplicas | default(0) | int }}"}
"""
SOON = 0.8 * ROLLOUT_WAITS[0]
"""Seconds in which the status of a role must follow: sooner than a rollout in progress triggers a run."""


@dataclass
class Bed:
    """A Thing with a Deployment, and the kubelet of its pods."""

    operator: Operator
    things: Things
    api: Api

    def __post_init__(self) -> None:
        self.pods = f"/api/v1/namespaces/{self.things.namespace}/pods"
        self.deployment = f"/apis/apps/v1/namespaces/{self.things.namespace}/deployments/one"

    def names(self, *, ready: bool) -> list[str]:
        """Return the pods that are ready, or those that are not."""
        found = self.api.call("GET", self.pods)["items"]
        return [each["metadata"]["name"] for each in found if (each["status"]["phase"] == "Running") == ready]

    def start_pods(self, count: int) -> None:
        """Make so many pods ready, as the kubelet does, each when the controllers have seen the one before."""
        for _ in range(count):
            (name, *_) = wait_until(lambda: self.names(ready=False), "a pod that is not ready")
            conditions = [{"type": each, "status": "True"} for each in ("Ready", "ContainersReady")]
            body = {"status": {"phase": "Running", "conditions": conditions}}
            self.api.call("PATCH", f"{self.pods}/{name}/status", body, "application/merge-patch+json")
            wanted = len(self.names(ready=True))
            wait_until(lambda wanted=wanted: self.ready_replicas() == wanted, "the controllers")  # type: ignore[misc]

    def ready_replicas(self) -> int:
        return int(self.api.call("GET", self.deployment)["status"].get("readyReplicas", 0))

    def reports(self, ready: int) -> None:
        """Assert that the status of the role is right soon."""
        began = time.monotonic()

        def is_reported() -> bool:
            return bool(self.things.get("one").get("status", {}).get("ready") == ready)

        wait_until(is_reported, lambda: f"the role to report {ready}: {self.operator.log[-4000:]}")
        took = time.monotonic() - began
        assert took < SOON

    def is_ready(self, status: str, message: str) -> None:
        """Wait until `Ready` is as its dependents are, without a run."""

        def ready() -> dict[str, str]:
            conditions = self.things.get("one").get("status", {}).get("conditions", ())
            return next((found for found in conditions if found["type"] == "Ready"), {})

        wait_until(lambda: ready().get("status") == status and message in ready()["message"], lambda: str(ready()))

    def runs_by(self, change: Callable[[], None]) -> list[str]:
        """Return the reasons of the runs that follow a change, until all that it triggered have ended."""
        before = len(self.operator.runs("one"))
        change()
        self.things.merge("one", {"spec": {"round": time.time()}})
        self.things.await_success("one")
        wait_until(lambda: self.operator.runs("one")[-1]["reason"] == "changed", "the last run")
        return [line["reason"] for line in self.operator.runs("one")[before:-1]]


@pytest.fixture
def bed(project: Project, things: Things, api: Api) -> Bed:
    project.role("reports", ROLE)
    project.watch("reports", ready="dependents")
    return Bed(project.start("--engine=warm"), things, api)


def test_the_status_of_a_role_follows_its_deployment_with_few_runs(bed: Bed) -> None:
    def create() -> None:
        bed.things.create("one", {"size": 1})
        bed.things.await_success("one")
        bed.is_ready("False", "Deployment one: 0 of 1 ready: Unschedulable: ")
        bed.start_pods(1)
        bed.is_ready("True", "")
        bed.reports(1)

    def scale() -> None:
        bed.things.merge("one", {"spec": {"size": 3}})
        bed.things.await_success("one")
        bed.start_pods(2)
        bed.reports(3)

    def lose() -> None:
        bed.api.call("DELETE", f"{bed.pods}/{bed.names(ready=True)[0]}")
        bed.is_ready("False", "Deployment one: 2 of 3 ready")
        bed.reports(2)
        bed.start_pods(1)
        bed.is_ready("True", "")
        bed.reports(3)

    assert bed.runs_by(create) == ["created", "dependent changed"]
    assert bed.runs_by(scale) == ["changed", "dependent changed"]
    assert bed.runs_by(lose) == ["dependent changed", "dependent changed"]
    assert bed.operator.stop() == 0
