"""A project as `init` and `create api` write it, installed on the real control plane."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from runner.sdk import devcluster as clusters

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
def sh(project: Path, devcluster: clusters.DevCluster) -> Sh:
    """Run a command in the project, as a user whose kubeconfig and PATH lead to the cluster and to us."""
    return shell(project, devcluster, {})


def shell(folder: Path, devcluster: clusters.DevCluster, own: Mapping[str, str], *programs: Path) -> Sh:
    """Return what runs commands in `folder` with variables of its `own`; PATH leads to us, kubectl and `programs`."""
    folders = [BIN, *(program.parent for program in (devcluster.kubectl, *programs)), os.environ["PATH"]]
    # The make that runs these tests is none of the user's.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    path = os.pathsep.join(map(str, folders))
    environ = {**kept, **own, "PATH": path, "KUBECONFIG": str(devcluster.kubeconfig)}

    def run(*command: str, check: bool = True) -> str:
        done = subprocess.run(
            command, cwd=folder, env=environ, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert not check or done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}"
        return done.stdout

    return run
