"""What the tests of the control plane share: kubectl, waiting, and a look at processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.sdk.devcluster import DevCluster
from tests.kit.cluster import Kubectl, kubectl_of


@pytest.fixture
def kubectl(devcluster: DevCluster, namespace: str) -> Kubectl:
    """Run kubectl in the test's namespace."""
    return kubectl_of(devcluster, "--namespace", namespace)


@pytest.fixture(scope="session")
def processes_in() -> Callable[[Path], list[str]]:
    """Return the command lines of the processes whose working folder is in this folder."""

    def look(folder: Path) -> list[str]:
        return list(_commands(folder))

    return look


def _commands(folder: Path) -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            working = (process / "cwd").readlink()
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it ended meanwhile, or is another user's
        if str(working).startswith(str(folder)) or str(folder) in command:
            yield command


@pytest.fixture
def pod(kubectl: Kubectl) -> str:
    """Return the name of a running pod."""
    return kubectl.run_pod()


@pytest.fixture
def exec_pod(devcluster: DevCluster, kubectl: Kubectl) -> str:
    """Return the name of a running pod in which commands run."""
    return kubectl.run_pod(devcluster.exec_container)
