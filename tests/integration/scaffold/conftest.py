"""A project as `init` and `create api` write it, installed on the real control plane."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner import devcluster as clusters
from runner.devcluster.cluster import outside

BIN = Path(sys.executable).parent

Sh = Callable[..., str]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A namespaced kind with finalizer and two versions, a cluster-scoped one with a playbook, and one named Secret."""
    folder = tmp_path_factory.mktemp("project") / "shop-operator"
    folder.mkdir()
    for line in (
        "init --domain example.org",
        "create api --group shop --kind Basket --finalizer --short-name bk",
        "create api --group shop --version v1 --kind Basket",
        "create api --group shop --kind Market --namespaced=false --generate-playbook --generate-role",
        "create api --group shop --kind Secret",
    ):
        subprocess.run([BIN / "ansible-operator", *line.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.DevCluster]:
    """A control plane of its own: kinds and ClusterRoles belong to no namespace."""
    given = os.environ.get("KUBECONFIG")
    if given:
        yield outside(given, tmp_path_factory.mktemp("devcluster"), sys.stderr)
        return
    with clusters.start(name="test-scaffold", logs=tmp_path_factory.mktemp("devcluster-logs")) as started:
        yield started


@pytest.fixture(scope="module")
def sh(project: Path, cluster: clusters.DevCluster) -> Sh:
    """Run a command in the project, as a user whose kubeconfig and PATH lead to the cluster and to us."""
    path = os.pathsep.join([str(BIN), str(cluster.kubectl.parent), os.environ["PATH"]])
    environ = {**os.environ, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}

    def run(*command: str, check: bool = True) -> str:
        done = subprocess.run(
            command, cwd=project, env=environ, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert not check or done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}"
        return done.stdout

    return run
