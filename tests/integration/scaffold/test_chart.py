"""The Helm chart of a project: packed, served, installed and upgraded on the real control plane."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from runner.sdk import devcluster as clusters
from tests.kit.go_programs import get_helm
from tests.kit.registry import serving
from tests.kit.shell import Sh, generate, shell
from tests.kit.wait import patience

SPECS = Path("roles/pallet/meta/argument_specs.yml")
KIND = "pallets.depot.example.org"
NAMESPACES = ("depot-system", "depot-a", "depot-b")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address that it is served at."""
    folder = tmp_path / "served"
    folder.mkdir()
    with serving(folder) as address:
        yield folder, address


@pytest.fixture
def sh(tmp_path: Path, devcluster: clusters.DevCluster) -> Sh:
    """Run a command in a new project's folder, as a user with the cluster's kubeconfig and with helm."""
    folder = tmp_path / "depot-operator"
    generate(folder, "init --domain=example.org", "create api --group=depot --kind=Pallet --version=v1")
    own = {f"HELM_{each}_HOME": str(tmp_path / each) for each in ("CACHE", "CONFIG", "DATA")}
    return shell(folder, devcluster, own, get_helm(os.environ, sys.stderr))


@pytest.fixture
def namespaces(sh: Sh) -> Iterator[None]:
    """The namespaces of the release; what it left in the cluster goes with them."""
    for each in NAMESPACES:
        sh("kubectl", "create", "namespace", each)
    yield
    sh("helm", "uninstall", "depot", "--namespace=depot-system", "--ignore-not-found", check=False)
    sh("kubectl", "delete", "crd", KIND, "--ignore-not-found")
    sh("kubectl", "delete", "namespace", *NAMESPACES, "--wait=false")


def publish(sh: Sh, folder: Path, url: str, version: str, size: str) -> None:
    """Give the role an option, and put the chart of that version into the served index."""
    project = folder.parent / "depot-operator"
    entry = {"main": {"options": {size: {"type": "int", "default": 1}}}}
    (project / SPECS).write_text(yaml.safe_dump({"argument_specs": entry}))
    sh("ansible-operator", "generate", "crds")
    sh("ansible-operator", "generate", "chart", f"--chart-version={version}")
    sh("helm", "lint", "--strict", "--kube-version=1.35.0", "dist/chart/depot-operator")
    sh("helm", "package", "dist/chart/depot-operator", f"--destination={folder}")
    sh("helm", "repo", "index", str(folder), f"--url={url}")


def can(sh: Sh, namespace: str) -> bool:
    """Whether the operator's account may patch the status of its kind."""
    account = "system:serviceaccount:depot-system:depot-depot-operator-controller-manager"
    asked = ("patch", f"{KIND}/status", f"--namespace={namespace}", f"--as={account}")
    return sh("kubectl", "auth", "can-i", *asked, check=False).strip().splitlines()[-1] == "yes"


def fields(sh: Sh) -> list[str]:
    schema = sh.get("crd", KIND)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return list(schema["properties"]["spec"]["properties"])


@pytest.mark.usefixtures("namespaces")
def test_a_chart_is_installed_and_upgraded_from_a_served_index_and_its_crds_with_it(
    sh: Sh, served: tuple[Path, str]
) -> None:
    folder, url = served
    publish(sh, folder, url, "0.1.0", "size")
    sh("helm", "repo", "add", "ours", url)
    release = ("depot", "ours/depot-operator", "--namespace=depot-system")
    told = sh("helm", "install", *release, "--set=replicas=2", "--wait", f"--timeout={patience():.0f}s")
    assert "Pallet (pallets.depot.example.org)" in told
    assert "all namespaces" in told
    assert fields(sh) == ["size"]
    assert can(sh, "depot-a")
    ready = "--for=jsonpath={.status.readyReplicas}=2"
    sh.wait(ready, "deployment", "--all", "--namespace=depot-system")
    (deployment,) = sh.get("deployment", "--namespace=depot-system")["items"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "example.org/depot-operator:v0.1.0"
    assert "--metrics-bind-address=:8443" in container["args"]
    assert deployment["status"]["readyReplicas"] == 2
    sh("kubectl", "apply", "--namespace=depot-a", "--kustomize=config/samples")

    publish(sh, folder, url, "0.2.0", "height")
    sh("helm", "repo", "update", "ours")
    narrow = ("--set=rbac.scope=Namespaced", "--set=watchNamespaces={depot-a,depot-system}")
    more = ("--set=metrics.enabled=false", "--set=extraArgs={--max-concurrent-runs=3}", "--set=podLabels.team=a")
    told = sh("helm", "upgrade", *release, *narrow, *more, "--wait", f"--timeout={patience():.0f}s")
    assert "depot-a,depot-system" in told
    assert fields(sh) == ["height"]
    assert (can(sh, "depot-a"), can(sh, "depot-b")) == (True, False)
    (deployment,) = sh.get("deployment", "--namespace=depot-system")["items"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert {"--metrics-bind-address=0", "--max-concurrent-runs=3"} <= set(container["args"])
    assert {"name": "WATCH_NAMESPACE", "value": "depot-a,depot-system"} in container["env"]
    assert deployment["spec"]["template"]["metadata"]["labels"]["team"] == "a"
    assert sh.get("service", "--namespace=depot-system")["items"] == []

    refused = sh("helm", "upgrade", *release, "--set=replicas=-1", "--set=rbac.scope=Everywhere", check=False)
    assert "minimum" in refused
    assert "rbac" in refused

    sh("helm", "uninstall", *release[:1], release[2], "--wait")
    assert "depot-a" in sh("kubectl", "get", KIND, "--all-namespaces", "--no-headers")
