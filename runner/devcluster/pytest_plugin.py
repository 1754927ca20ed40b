"""Fixtures for tests against a real control plane; pytest finds them by the installed package's entry point.

`devcluster` (one for the session, and one per worker of pytest-xdist), `kubeconfig` (its file) and `namespace` (a new
one for each test). A cluster starts when a test first uses a fixture. If KUBECONFIG is set, that cluster is used. It
remains unchanged, except for the namespaces.

    def test_something(kubeconfig: Path, namespace: str) -> None: ...
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner import devcluster as clusters
from runner.devcluster.cluster import outside


@pytest.fixture(scope="session")
def devcluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.DevCluster]:
    """Return a running control plane; its logs are copied to pytest's temporary folder at the end."""
    given = os.environ.get("KUBECONFIG")
    if given:
        yield outside(given, tmp_path_factory.mktemp("devcluster"), sys.stderr)
        return
    with clusters.start(name="test", logs=tmp_path_factory.mktemp("devcluster-logs")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kubeconfig(devcluster: clusters.DevCluster) -> Path:
    """Return the administrator's kubeconfig."""
    return devcluster.kubeconfig


@pytest.fixture
def namespace(devcluster: clusters.DevCluster) -> Iterator[str]:
    """Return a new namespace; it is deleted at the end, without waiting for that."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    _kubectl(devcluster, "create", "namespace", name)
    yield name
    _kubectl(devcluster, "delete", "namespace", name, "--wait=false", "--ignore-not-found")


def _kubectl(cluster: clusters.DevCluster, *arguments: str) -> None:
    subprocess.run(
        [cluster.kubectl, "--kubeconfig", cluster.kubeconfig, *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
    )
