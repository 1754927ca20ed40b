"""The Restarter: pods are replaced once for each change of a Secret's content, and for nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.integration.examples.deployed import Example, Install

# Many runs of Ansible a test: on a machine with much to do they take their time.
pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("examples-restarter")]

NAMES = ("web", "worker")
BOTH = {"secret": {"name": "db", "fields": ["password"]}, "deployments": list(NAMES)}
MARK = "rollout.example.com/shop"


@dataclass
class Shop:
    """A namespace with a Secret and Deployments, and the operator."""

    example: Example
    namespace: str

    def __post_init__(self) -> None:
        self.restarters = self.example.resources("Restarter", self.namespace)
        self.secrets = self.example.objects("v1", "secrets", self.namespace)
        self.deployments = self.example.objects("apps/v1", "deployments", self.namespace)
        self.pods = self.example.objects("v1", "pods", self.namespace)
        self.events = self.example.objects("v1", "events", self.namespace)

    def make_secret(self, **fields: str) -> None:
        self.secrets.post({"metadata": {"name": "db"}, "stringData": {"user": "shop", "password": "one", **fields}})

    def make_deployment(self, name: str) -> None:
        pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "example"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": pod}
        self.deployments.post({"metadata": {"name": name}, "spec": spec})

    def rolled_out(self, name: str) -> int:
        """How often the Deployment was rolled out; 0 while its controller is at it."""
        found = self.deployments.get(name)
        status = found.get("status", {})
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return 0
        counts = {status.get(each) for each in ("replicas", "updatedReplicas", "readyReplicas")}
        return int(found["metadata"]["annotations"]["deployment.kubernetes.io/revision"]) if counts == {2} else 0

    def await_rollouts(self, *times: int) -> None:
        """Hold that the Deployments were rolled out so often, once they stand still."""

        def seen() -> list[int]:
            found = [self.rolled_out(name) for name in NAMES]
            return found if all(found) else []

        assert wait_until(seen, "the Deployments to stand still") == list(times)

    def await_rollout(self, *times: int) -> None:
        """Wait until the Deployments were rolled out so often."""
        wait_until(lambda: [self.rolled_out(name) for name in NAMES] == list(times), f"rollouts {times}")
        self.await_rollouts(*times)

    def uids(self) -> set[str]:
        """The pods that are not on their way out."""
        return {each["metadata"]["uid"] for each in self.pods.all() if "deletionTimestamp" not in each["metadata"]}

    def runs(self, reason: str = "reference changed") -> int:
        """How many runs have ended that began for this reason; of the operator that runs now."""
        assert self.example.operator is not None
        return len(self.example.operator.lines(msg="Run ended", reason=reason, namespace=self.namespace))

    def owners(self) -> list[str]:
        found = self.secrets.get("db").get("metadata", {})
        return [each["name"] for each in found.get("ownerReferences", [])]

    def restarts_told(self, name: str) -> int:
        """Return the number of restarts in the Events of a Deployment."""
        found = [each for each in self.events.all() if each["reason"] == "Restarted"]
        return sum(each.get("count") or 1 for each in found if each["involvedObject"]["name"] == name)


@pytest.fixture
def shop(install: Install, namespace: str) -> Shop:
    shop = Shop(install("restarter"), namespace)
    shop.make_secret()
    for name in NAMES:
        shop.make_deployment(name)
    shop.await_rollout(1, 1)
    shop.example.start()
    return shop


def test_pods_are_replaced_once_for_each_change_of_the_content_and_for_nothing_else(shop: Shop) -> None:
    shop.restarters.create("shop", BOTH)
    assert shop.restarters.result("shop")["failures"] == 0
    assert shop.restarters.get("shop")["status"]["secrets"] == ["db"]
    first = shop.uids()

    # Labels start no run, a field that does not count does: what it finds is the outcome of both.
    shop.secrets.merge("db", {"metadata": {"labels": {"seen": "yes"}, "annotations": {"seen": "yes"}}})
    shop.secrets.merge("db", {"stringData": {"user": "other"}})
    wait_until(lambda: shop.runs() >= 1, "the run for a field that does not count")
    shop.await_rollouts(1, 1)
    assert shop.uids() == first
    assert "lastRestart" not in shop.restarters.get("shop")["status"]

    shop.secrets.merge("db", {"stringData": {"password": "two"}})
    shop.await_rollout(2, 2)
    assert shop.uids() & first == set()
    wait_until(lambda: "lastRestart" in shop.restarters.get("shop")["status"], "the time in the status")
    wait_until(lambda: [shop.restarts_told(name) for name in NAMES] == [1, 1], "an Event of each")

    _is_missed_and_comes_back(shop)
    _changes_while_nobody_looks(shop)
    shop.restarters.delete("shop")
    shop.restarters.await_gone("shop")
    shop.await_rollouts(3, 2)
    assert shop.secrets.get("db")["metadata"]["name"] == "db"
    shop.example.remove()


def _is_missed_and_comes_back(shop: Shop) -> None:
    shop.secrets.delete("db")
    shop.restarters.await_condition("shop", "Failure", saying="There is no Secret db in namespace")
    shop.restarters.await_condition("shop", "Stalled")
    shop.secrets.post({"metadata": {"name": "db"}, "stringData": {"user": "other"}})
    shop.restarters.await_condition("shop", "Failure", saying="Secret db has no field password")
    shop.secrets.merge("db", {"stringData": {"password": "two"}})
    shop.restarters.await_success("shop")

    shop.deployments.delete("worker")
    shop.restarters.await_condition("shop", "Failure", saying="There is no Deployment worker")
    shop.deployments.await_gone("worker")
    wait_until(lambda: len(shop.uids()) == 2, "the pods to go")
    shop.make_deployment("worker")
    shop.restarters.await_success("shop")
    # The content is what it was: no pod is replaced, and the Deployment that was made anew is looked after again.
    shop.await_rollout(2, 1)
    assert MARK in shop.deployments.get("worker")["metadata"]["annotations"]


def _changes_while_nobody_looks(shop: Shop) -> None:
    """The operator is upgraded meanwhile."""
    before = shop.restarters.result("shop")["completion"]
    shop.example.stop()
    shop.secrets.merge("db", {"stringData": {"password": "three"}})
    shop.example.upgrade("IMG=example.com/restarter-operator:v0.0.2")
    shop.example.start()
    shop.await_rollout(3, 2)
    wait_until(lambda: shop.restarters.result("shop")["completion"] != before, "the run to end")
    shop.example.settles(shop.restarters, "shop")
    shop.await_rollouts(3, 2)


def test_a_secret_that_is_adopted_goes_with_the_restarter_and_one_that_is_given_up_stays(shop: Shop) -> None:
    def says(*, adopt: bool) -> dict[str, Any]:
        return {"secret": {"name": "db", "adopt": adopt}}

    shop.restarters.create("shop", {**BOTH, **says(adopt=True)})
    shop.restarters.await_success("shop")
    assert shop.owners() == ["shop"]

    shop.secrets.merge("db", {"metadata": {"ownerReferences": None}})
    wait_until(lambda: shop.owners() == ["shop"], "the Secret to be adopted again")

    shop.restarters.change("shop", **says(adopt=False))
    shop.restarters.await_success("shop")
    assert shop.owners() == []
    shop.restarters.change("shop", **says(adopt=True))
    shop.restarters.await_success("shop")
    assert shop.owners() == ["shop"]
    shop.example.settles(shop.restarters, "shop")

    shop.restarters.delete("shop")
    shop.restarters.await_gone("shop")
    shop.secrets.await_gone("db")
    shop.await_rollouts(1, 1)
    shop.example.remove()


def test_secrets_may_be_chosen_by_labels_and_several_restarters_share_a_deployment(shop: Shop) -> None:
    labels = {"rollout.example.com/watched": "true", "app.kubernetes.io/part-of": "shop"}
    spec = {"secret": {"selector": {"app.kubernetes.io/part-of": "shop"}}, "deployments": ["web"]}
    shop.restarters.create("shop", BOTH)
    shop.restarters.create("all", spec)
    shop.restarters.await_condition("all", "Failure", saying="app.kubernetes.io/part-of=shop")
    shop.secrets.post({"metadata": {"name": "keys", "labels": labels}, "stringData": {"key": "one"}})
    shop.restarters.await_success("all")
    shop.restarters.await_success("shop")
    shop.secrets.merge("keys", {"stringData": {"key": "two"}})
    shop.await_rollout(2, 1)
    shop.secrets.post({"metadata": {"name": "more", "labels": labels}})
    wait_until(lambda: shop.restarters.get("all")["status"]["secrets"] == ["keys", "more"], "the second Secret")
    shop.await_rollout(3, 1)
    shop.secrets.merge("db", {"stringData": {"password": "two"}})
    shop.await_rollout(4, 2)
    for name in ("all", "shop"):
        shop.restarters.delete(name)
        shop.restarters.await_gone(name)
    shop.example.remove()
