"""The sample operator as it stands in the repository: its children are owned, cached, put right and collected."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.places import ROOT
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api
    from tests.kit.operator import Operator, Project

KIND = {"apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached"}


@dataclass
class Sample:
    """The operator with the repository's own roles, and one Memcached."""

    operator: Operator
    api: Api
    namespace: str

    def __post_init__(self) -> None:
        self.memcached = f"/apis/cache.example.com/v1alpha1/namespaces/{self.namespace}/memcacheds/mc"
        self.deployment = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/mc-memcached"
        self.entry = f"/api/v1/namespaces/default/configmaps/memcached.{self.namespace}.mc"

    def get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.call("GET", path) or {}
        return found

    def uid(self, path: str) -> str:
        return str(self.get(path).get("metadata", {}).get("uid", ""))

    def create(self, size: int) -> None:
        body = {**KIND, "metadata": {"name": "mc"}, "spec": {"size": size}}
        self.api.call("POST", self.memcached.rpartition("/")[0], body)

    def merge(self, path: str, body: dict[str, Any]) -> None:
        self.api.call("PATCH", path, body, "application/merge-patch+json")

    def resize(self, size: int) -> dict[str, Any]:
        """Change the size; return the log line of the run."""
        earlier = len(self.operator.runs("mc"))
        self.merge(self.memcached, {"spec": {"size": size}})
        wait_until(lambda: len(self.operator.runs("mc")) > earlier, f"the run for the size {size}")
        return self.operator.runs("mc")[-1]

    def replicas(self) -> int | None:
        found: int | None = self.get(self.deployment).get("spec", {}).get("replicas")
        return found


@pytest.fixture
def sample(project: Project, api: Api, namespace: str) -> Sample:
    """A Memcached's entry in the directory of all caches is in another namespace, hence the wide rights."""
    shutil.copytree(ROOT / "roles", project.folder / "roles")
    finalizer = {"name": "cache.example.com/finalizer", "role": "memcached_finalizer"}
    group, _, version = KIND["apiVersion"].partition("/")
    # A run for a changed status of the Deployment could take the place of the run that a test waits for.
    project.watch(
        "memcached", group=group, version=version, kind=KIND["kind"], finalizer=finalizer, watchDependentStatus=False
    )
    project.bind_everywhere()
    return Sample(project.start("--namespace=default", "--log-level=debug"), api, namespace)


def test_the_sample_reads_what_its_last_run_wrote_from_memory(sample: Sample) -> None:
    operator = sample.operator
    sample.create(2)
    operator.await_line("Run ended", name="mc")
    sample.resize(3)  # the kinds are watched since the first run
    third = sample.resize(4)
    assert third["outcome"] == "succeeded"
    assert third["cache_hits"] > 0, "of the entry, which only runs write"
    assert sample.replicas() == 4
    assert sample.get(sample.entry)["data"]["size"] == "4"
    assert operator.stop() == 0
