"""The fixtures, in a pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.sdk.devcluster import DevCluster
from tests.kit.cluster import kubectl_of
from tests.kit.places import ROOT
from tests.kit.processes import captured

_TESTS = """
import os, subprocess, pytest
from runner.sdk.devcluster import ClusterError

def test_first(devcluster, namespace, kubeconfig):
    subprocess.run([devcluster.kubectl, "--kubeconfig", kubeconfig, "get", "namespace", namespace], check=True)
    with pytest.raises(ClusterError):
        devcluster.stop_apiserver()
    open(os.environ["SEEN"], "a").write(namespace + "\\n")

def test_second(namespace):
    open(os.environ["SEEN"], "a").write(namespace + "\\n")
"""


def test_a_selected_cluster_is_named_used_and_cleaned(devcluster: DevCluster, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(_TESTS)
    seen = tmp_path / "seen"
    command = [sys.executable, "-m", "pytest", f"--devcluster-kubeconfig={devcluster.kubeconfig}", str(tmp_path)]
    environ = {**os.environ, "KUBECONFIG": str(tmp_path / "another"), "SEEN": str(seen)}
    done = subprocess.run(command, env=environ, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert f"devcluster: context ansible-operator-test, {devcluster.url}\n" in done.stdout
    first, second = seen.read_text().split()
    assert first != second
    for namespace in (first, second):
        kubectl_of(devcluster).wait(f"namespace/{namespace}", "--for=delete")


def test_the_fixtures_ignore_the_kubeconfig_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    environ = {**os.environ, "KUBECONFIG": "another"}
    command = [sys.executable, "-m", "pytest", str(tmp_path)]
    done = subprocess.run(command, env=environ, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "devcluster: KUBECONFIG=another is ignored; --devcluster-kubeconfig selects a cluster\n" in done.stdout


_OUTAGES = """
import pytest

@pytest.mark.parametrize("outage", ["stop_apiserver", "pause"])
def test_that_fails(devcluster, outage):
    getattr(devcluster, outage)(*(["kube-apiserver"] if outage == "pause" else []))
    assert False

def test_that_passes(namespace):
    pass
"""


@pytest.mark.nightly
def test_a_test_that_fails_during_an_outage_does_not_fail_the_tests_after_it(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(_OUTAGES)
    environ = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", f"--rootdir={tmp_path}"]
    done = captured(*command, tmp_path, env=environ, cwd=ROOT)
    assert "2 failed, 1 passed" in done.stdout, done.stdout


def test_a_pytest_that_needs_no_cluster_starts_none_and_loads_little() -> None:
    script = "import sys, runner.sdk.devcluster.pytest_plugin; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    assert not {"cryptography", "asyncio", "aiohttp", "kubernetes", "ansible"} & {name.split(".")[0] for name in loaded}
