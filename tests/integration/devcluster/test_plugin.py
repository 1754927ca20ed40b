"""The fixtures, in a pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from runner.devcluster import DevCluster

_TESTS = """
import os, subprocess, pytest
from runner.devcluster import ClusterError

def test_first(devcluster, namespace, kubeconfig):
    subprocess.run([devcluster.kubectl, "--kubeconfig", kubeconfig, "get", "namespace", namespace], check=True)
    with pytest.raises(ClusterError):
        devcluster.stop_apiserver()
    open(os.environ["SEEN"], "a").write(namespace + "\\n")

def test_second(namespace):
    open(os.environ["SEEN"], "a").write(namespace + "\\n")
"""


def test_the_cluster_of_the_environment_is_used_and_cleaned(devcluster: DevCluster, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(_TESTS)
    seen = tmp_path / "seen"
    environ = {**os.environ, "KUBECONFIG": str(devcluster.kubeconfig), "SEEN": str(seen)}
    subprocess.run([sys.executable, "-m", "pytest", "-q", tmp_path], env=environ, cwd=tmp_path, check=True)
    first, second = seen.read_text().split()
    assert first != second
    for namespace in (first, second):
        command = [str(devcluster.kubectl), f"--kubeconfig={devcluster.kubeconfig}"]
        subprocess.run([*command, "wait", f"namespace/{namespace}", "--for=delete", "--timeout=120s"], check=True)


def test_a_pytest_that_needs_no_cluster_starts_none_and_loads_little() -> None:
    script = "import sys, runner.devcluster.pytest_plugin; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    assert not {"cryptography", "asyncio", "aiohttp", "kubernetes", "ansible"} & {name.split(".")[0] for name in loaded}
