"""The collection's modules and the sample operator's roles, on a real control plane with real Ansible.

`module` runs one module as a process of its own, as Ansible does, and returns its result. `ansible` runs a command of
the installed ansible-core at the repository's top. `memcached` makes a Memcached; `kubectl` asks as administrator.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner import collections
from runner.sdk.devcluster import DevCluster
from tests.integration.collections.modules import MEMCACHED, Ansible, Module, StartModule
from tests.kit.cluster import Kubectl
from tests.kit.places import ROOT
from tests.kit.processes import captured


@pytest.fixture(scope="session")
def kubectl(devcluster: DevCluster, kubeconfig: Path) -> Kubectl:
    """kubectl of the administrator, with the sample operator's CRD installed."""
    found = Kubectl(devcluster.kubectl, kubeconfig)
    found("apply", "-k", str(ROOT / "config/crd"))
    found.wait("--for=condition=Established", "crd/memcacheds.cache.example.com")
    return found


@pytest.fixture
def start_module(kubeconfig: Path) -> StartModule:
    """Start a module as Ansible does: its arguments as JSON on standard input."""

    def start(name: str, /, *, check: bool = False, diff: bool = False, **arguments: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", f"ansible_collections.operator_sdk.util.plugins.modules.{name}"],
            env={**os.environ, "PYTHONPATH": str(collections.PATH), "K8S_AUTH_KUBECONFIG": str(kubeconfig)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        given = {**arguments, "_ansible_check_mode": check, "_ansible_diff": diff}
        assert process.stdin
        process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": given}))
        process.stdin.close()
        process.stdin = None
        return process

    return start


@pytest.fixture
def module(start_module: StartModule) -> Module:
    """Run a module of the collection; that it failed is in its result, under `failed`."""

    def run(name: str, /, *, check: bool = False, diff: bool = False, **arguments: Any) -> dict[str, Any]:
        out, err = start_module(name, check=check, diff=diff, **arguments).communicate()
        assert not err, err
        return dict(json.loads(out))

    return run


@pytest.fixture
def ansible(kubeconfig: Path, tmp_path: Path) -> Ansible:
    """Run ansible-playbook and its like, as a developer of an operator does; returns what it prints."""

    def run(command: str, *arguments: str, kubeconfig: Path | None = kubeconfig) -> str:
        done = captured(
            str(Path(sys.executable).with_name(command)),
            *arguments,
            cwd=ROOT,
            env={**os.environ, "KUBECONFIG": str(kubeconfig), "ANSIBLE_LOCAL_TEMP": str(tmp_path)},
        )
        assert done.returncode == 0, f"{command} {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def memcached(kubectl: Kubectl, namespace: str) -> dict[str, str]:
    """Make a Memcached of size 1; returns the options that name it."""
    kubectl.apply(
        {
            "apiVersion": MEMCACHED["api_version"],
            "kind": "Memcached",
            "metadata": {"name": "cache", "namespace": namespace},
            "spec": {"size": 1},
        }
    )
    return {**MEMCACHED, "name": "cache", "namespace": namespace}


@pytest.fixture
def status(kubectl: Kubectl, memcached: dict[str, str]) -> Callable[[], dict[str, Any]]:
    """Read the Memcached's status."""
    return lambda: kubectl.get("memcached", "cache", "-n", memcached["namespace"]).get("status", {})


@pytest.fixture
def login(kubectl: Kubectl, namespace: str, tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Return the authentication options that log in as a service account of the namespace."""

    def options(name: str) -> dict[str, str]:
        cluster = yaml.safe_load(kubectl.kubeconfig.read_text())["clusters"][0]["cluster"]
        authority = tmp_path / "ca.crt"
        authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        token = kubectl("create", "token", name, "-n", namespace).strip()
        return {"host": cluster["server"], "api_key": token, "ca_cert": str(authority)}

    return options
