"""Fixtures for tests against a real control plane; pytest finds them by the installed package's entry point.

`devcluster` (one for the session, and one per worker of pytest-xdist), `kubeconfig` (its file) and `namespace` (a new
one for each test). A cluster starts when a test first uses a fixture. KUBECONFIG is ignored.

The option `--devcluster-kubeconfig` selects an existing cluster. It remains unchanged, except for the namespaces and
for what the tests do.

The option `--devcluster-node` selects the nodes: `fake`, `real` or `both`, as `ansible-operator cluster up --node`. The
default is `fake`, or DEVCLUSTER_NODE. `devcluster.load` imports images for the real node.

    def test_something(kubeconfig: Path, namespace: str) -> None: ...
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.sdk import devcluster as clusters
from runner.sdk.devcluster import kubeconfig as kubeconfigs
from runner.sdk.devcluster.api import Api
from runner.sdk.devcluster.cluster import outside
from runner.sdk.devcluster.nodes import VARIABLE
from runner.values.errors import ClusterError


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--devcluster-node` and `--devcluster-kubeconfig`."""
    parser.addoption(
        "--devcluster-node",
        choices=["real", "fake", "both"],
        default=os.environ.get(VARIABLE, "fake"),
        help="nodes of the control plane that the fixtures start: a real one runs pods [fake]",
    )
    parser.addoption(
        "--devcluster-kubeconfig",
        default="",
        metavar="FILE",
        help="use the cluster of this file, and start no control plane; KUBECONFIG is ignored",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the cluster that the fixtures use, unless they start one."""
    if given := config.getoption("devcluster_kubeconfig"):
        return "devcluster: context {}, {}".format(*kubeconfigs.current(Path(given)))
    if given := os.environ.get("KUBECONFIG"):
        return f"devcluster: KUBECONFIG={given} is ignored; --devcluster-kubeconfig selects a cluster"
    return None


@pytest.fixture(scope="session")
def devcluster(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[clusters.DevCluster]:
    """Return a running control plane; its logs are copied to pytest's temporary folder at the end."""
    given = pytestconfig.getoption("devcluster_kubeconfig")
    if given:
        yield outside(Path(given), tmp_path_factory.mktemp("devcluster"), sys.stderr)
        return
    nodes, logs = pytestconfig.getoption("devcluster_node"), tmp_path_factory.mktemp("devcluster-logs")
    with clusters.start(name="test", nodes=nodes, logs=logs) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kubeconfig(devcluster: clusters.DevCluster) -> Path:
    """Return the administrator's kubeconfig."""
    return devcluster.kubeconfig


@pytest.fixture
def namespace(devcluster: clusters.DevCluster) -> Iterator[str]:
    """Return a new namespace; it is deleted at the end, without waiting for that."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    try:
        api = devcluster.control.api()
    except ClusterError:  # another cluster: only kubectl has its credentials
        _kubectl(devcluster, "create", "namespace", name)
        yield name
        _kubectl(devcluster, "delete", "namespace", name, "--wait=false", "--ignore-not-found")
        return
    _call(api, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    _call(api, "DELETE", f"/api/v1/namespaces/{name}")


def _kubectl(cluster: clusters.DevCluster, *arguments: str) -> None:
    subprocess.run(
        [cluster.kubectl, "--kubeconfig", cluster.kubeconfig, *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _call(api: Api, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
    """Send a request, which takes much less time than kubectl. An object to delete may be missing."""
    status, answer = api.call(method, path, body)
    if status >= http.client.BAD_REQUEST and (method, status) != ("DELETE", http.client.NOT_FOUND):
        raise ClusterError(f"the API server rejected {method} {path} with status {status}: {answer}")
