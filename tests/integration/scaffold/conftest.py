"""A project as `init` and `create api` write it, installed on the real control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.sdk import devcluster as clusters
from tests.kit.shell import Sh, generate, shell


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A namespaced kind with finalizer and two versions, a cluster-scoped one with a playbook, and one named Secret."""
    return generate(
        tmp_path_factory.mktemp("project") / "shop-operator",
        "init --domain example.org",
        "create api --group shop --kind Basket --finalizer --short-name bk",
        "create api --group shop --version v1 --kind Basket",
        "create api --group shop --kind Market --namespaced=false --generate-playbook --generate-role",
        "create api --group shop --kind Secret",
    )


@pytest.fixture(scope="module")
def sh(project: Path, devcluster: clusters.DevCluster) -> Sh:
    """Run a command in the project, as a user whose kubeconfig and PATH lead to the cluster and to us."""
    return shell(project, devcluster, {})
