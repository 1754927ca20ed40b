"""The collection's modules and the sample operator's roles, on a real control plane with real Ansible.

`module` runs one module as a process of its own, as Ansible does, and returns its result. `ansible` runs a command of
the installed ansible-core at the repository's top. `memcached` makes a Memcached; `kubectl` asks as administrator.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Protocol

import yaml

from runner.sdk.devcluster import DevCluster
from tests.kit.places import ROOT

MEMCACHED = {"api_version": "cache.example.com/v1alpha1", "kind": "Memcached"}


class Kubectl:
    """kubectl with the credentials of a user."""

    def __init__(self, cluster: DevCluster, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._command = [str(cluster.kubectl), "--kubeconfig", str(kubeconfig)]

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Run it; a failure fails the test with what it said."""
        done = subprocess.run([*self._command, *arguments], input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def get(self, *arguments: str) -> dict[str, Any]:
        """Read one object; empty when it is not there."""
        found = self("get", *arguments, "--ignore-not-found", "-o", "json")
        return dict(json.loads(found)) if found.strip() else {}

    def names(self, *arguments: str) -> list[str]:
        """Name the objects that there are."""
        return [line.partition("/")[2] for line in self("get", *arguments, "-o", "name").split()]

    def apply(self, *objects: dict[str, Any]) -> None:
        """Make objects so."""
        self("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def kustomized(self, folder: str) -> str:
        """Build a folder of config/."""
        return self("kustomize", str(ROOT / "config" / folder))


class StartModule(Protocol):
    """Starts a module; see `start_module`."""

    def __call__(
        self, name: str, /, *, check: bool = False, diff: bool = False, **arguments: Any
    ) -> subprocess.Popen[str]: ...


class Module(Protocol):
    """Runs a module; see `module`."""

    def __call__(
        self, name: str, /, *, check: bool = False, diff: bool = False, **arguments: Any
    ) -> dict[str, Any]: ...


class Ansible(Protocol):
    """Runs a command of ansible-core; see `ansible`."""

    def __call__(self, command: str, *arguments: str, kubeconfig: Path | None = None) -> str: ...
