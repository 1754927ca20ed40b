"""No command that starts its own control plane changes an object of the cluster that KUBECONFIG names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.sdk import devcluster as clusters
from runner.sdk.devcluster import DevCluster
from tests.integration.scaffold.developer import STEPS, copy_sample, of_a_developer
from tests.kit.cluster import kubectl_of
from tests.kit.places import BIN, ROOT
from tests.kit.processes import captured

pytestmark = [pytest.mark.full]
_KIND = "cache.example.com"
_TEST = "def test_it(namespace, kubeconfig): assert kubeconfig.exists()\n"


@pytest.fixture(scope="module")
def other() -> Iterator[DevCluster]:
    """A cluster that has the sample's CRD and a sample, as one in production would."""
    with clusters.start(name="other") as cluster:
        kubectl = kubectl_of(cluster)
        kubectl("apply", "-k", str(ROOT / "config/crd"))
        kubectl.wait("--for=condition=Established", "crd", "--all")
        kubectl("apply", "-f", str(ROOT / "config/samples/cache_v1alpha1_memcached.yaml"))
        kubectl.wait("--for=create", "configmap/kube-root-ca.crt")
        kubectl.wait("--for=create", "serviceaccount/default")
        yield cluster


def dump(cluster: DevCluster) -> dict[str, str]:
    """Return each object by its place, without what the control plane itself renews: status, heartbeats and Events."""
    kubectl = kubectl_of(cluster)
    kinds = kubectl("api-resources", "--verbs=list", "--output=name").split()
    kept = ",".join(kind for kind in kinds if not kind.startswith("events"))
    found = json.loads(kubectl("get", kept, "--all-namespaces", "--output=json"))["items"]
    return {_place(obj): json.dumps(_lasting(obj), sort_keys=True) for obj in found}


def _place(obj: Mapping[str, Any]) -> str:
    meta = obj["metadata"]
    return f"{obj['apiVersion']} {obj['kind']} {meta.get('namespace', '')}/{meta['name']}"


def _lasting(obj: dict[str, Any]) -> dict[str, Any]:
    if obj["apiVersion"].startswith(_KIND):
        return obj
    if obj["kind"] in {"Lease", "Node"}:
        return {"uid": obj["metadata"]["uid"]}
    return {
        **{key: value for key, value in obj.items() if key not in {"status", "metadata"}},
        "metadata": {**obj["metadata"], "resourceVersion": "", "managedFields": ""},
    }


@pytest.fixture
def unchanged(other: DevCluster, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield an environment that names the other cluster; its objects must be the same at the end."""
    before = dump(other)
    assert any(place.endswith("Memcached default/memcached-sample") for place in before)
    assert len(before) > 100
    yield {**os.environ, "KUBECONFIG": str(other.kubeconfig), "XDG_STATE_HOME": str(tmp_path / "state")}
    assert dump(other) == before


def _run(environ: Mapping[str, str], folder: Path, *command: str | Path) -> str:
    done = captured(*command, cwd=folder, env=environ, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_dev_changes_no_object_there(unchanged: dict[str, str], tmp_path: Path) -> None:
    command = [str(BIN / "ansible-operator"), "dev"]
    with subprocess.Popen(
        command, cwd=copy_sample(tmp_path), env=unchanged, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:  # ends with the process, which pytest's limit stops at the latest
            lines.append(line)
            if "watching cache.example.com" in line:
                process.send_signal(signal.SIGINT)
    assert lines[0].startswith(f"KUBECONFIG={unchanged['KUBECONFIG']} is ignored")
    assert any("watching cache.example.com" in line for line in lines), lines


@pytest.mark.nightly
def test_the_demo_shows_each_status_and_the_operators_log_and_changes_no_object_there(
    unchanged: dict[str, str],
) -> None:
    output = _run(unchanged, ROOT, sys.executable, "-m", "hack.demo")
    assert f"KUBECONFIG={unchanged['KUBECONFIG']} is ignored" in output
    assert "\033[" not in output
    for part in (
        "memcached-sample   3",
        "memcached-sample   4",
        "Memcached default/memcached-sample: task 1: ",
        "Memcached default/memcached-sample: succeeded in",
        "its Deployment are gone",
    ):
        assert part in output


@pytest.mark.nightly
def test_the_plugin_of_pytest_changes_no_object_there(unchanged: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(_TEST)
    output = _run(unchanged, tmp_path, sys.executable, "-m", "pytest", tmp_path)
    assert f"KUBECONFIG={unchanged['KUBECONFIG']} is ignored" in output
    assert "1 passed" in output


@pytest.mark.nightly
@pytest.mark.xdist_group("molecule")
def test_the_scenario_of_molecule_changes_no_object_there(unchanged: dict[str, str], tmp_path: Path) -> None:
    with of_a_developer(copy_sample(tmp_path)) as project:
        project.environ["KUBECONFIG"] = unchanged["KUBECONFIG"]
        assert project.molecule("test") == dict.fromkeys(STEPS, True)
