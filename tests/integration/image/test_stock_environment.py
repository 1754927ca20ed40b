"""The sample's roles, unchanged, in an execution environment that contains nothing of the operator."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.sdk.devcluster import DevCluster
from tests.integration.image.pods import PodProject, pod_project
from tests.kit.galaxy import installed
from tests.kit.images import DEBIAN, build_store, needs_images_on_a_node
from tests.kit.objects import MEMCACHED, Objects, memcacheds
from tests.kit.places import ROOT
from tests.kit.wait import wait_until

pytestmark = [
    pytest.mark.nightly,  # it builds an image of its own; CI has runs in pods of the image of operators
    pytest.mark.xdist_group("pods"),
    needs_images_on_a_node(),
]

STOCK = "example.com/stock-ee:1"
DOCKERFILE = f"""
FROM {DEBIAN}
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/ee
ENV PATH=/opt/ee/bin:/usr/bin:/bin
COPY constraints.txt /
RUN pip install --no-cache-dir --constraint=/constraints.txt ansible-core ansible-runner kubernetes
COPY core /usr/share/ansible/collections/ansible_collections/kubernetes/core
"""
"""The role of the sample requires the collection kubernetes.core, and this the Python package `kubernetes`."""


@pytest.fixture(scope="module")
def stock_cluster(node_cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> DevCluster:
    """The cluster with the image STOCK, built of Debian's and Python's packages in the locked versions."""
    folder = tmp_path_factory.mktemp("stock")
    shutil.copytree(installed("kubernetes.core"), folder / "core")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    lock = (ROOT / "requirements/image-2.21.txt").read_text(encoding="utf-8")
    (folder / "constraints.txt").write_text("\n".join(re.findall(r"^[\w.-]+==[\w.]+", lock, re.MULTILINE)))
    with build_store() as store:
        store.build(folder, STOCK)
        store.save(STOCK, folder / "stock.tar")
    assert STOCK in node_cluster.load(folder / "stock.tar")
    return node_cluster


@pytest.fixture
def pods(stock_cluster: DevCluster, tmp_path: Path) -> Iterator[PodProject]:
    with pod_project(stock_cluster, tmp_path, "stock") as pods:
        pods.install_sample()
        pods.project.template = {"image": STOCK}
        yield pods


def test_the_roles_of_the_sample_run_and_its_finalizer_removes_what_they_made(pods: PodProject) -> None:
    shutil.copytree(ROOT / "roles", pods.project.folder / "roles")
    finalizer = {"name": "cache.example.com/finalizer", "role": "memcached_finalizer"}
    pods.project.watch("memcached", **MEMCACHED, finalizer=finalizer)
    pods.project.bind_everywhere()  # the directory of all caches is in another namespace
    operator = pods.project.start("--namespace=default")
    caches = memcacheds(pods.api, pods.namespace)
    deployments = Objects(pods.api, f"/apis/apps/v1/namespaces/{pods.namespace}/deployments")
    directory, entry = Objects(pods.api, "/api/v1/namespaces/default/configmaps"), f"memcached.{pods.namespace}.mc"
    caches.create("mc", {"size": 2})
    assert operator.await_line("Run ended", name="mc")["outcome"] == "succeeded"
    assert deployments.get("mc-memcached")["spec"]["replicas"] == 2
    wait_until(lambda: len(caches.get("mc")["status"].get("nodes", [])) == 2, "the status of the role")
    assert directory.get(entry)["data"]["size"] == "2"
    caches.delete("mc")
    caches.await_gone("mc")
    deployments.await_gone("mc-memcached")
    directory.await_gone(entry)
    assert operator.stop() == 0
