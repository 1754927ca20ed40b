"""The ways to a control plane: a client, a kubeconfig that differs from the administrator's, and kubectl."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from runner.kube.client import Client
from runner.kube.credentials import auth
from runner.kube.credentials.auth import HostEnvironment
from runner.sdk.devcluster import DevCluster


async def connect(path: Path) -> Client:
    """Make a client of a kubeconfig's cluster."""
    return Client(await auth.load(str(path), None, HostEnvironment({}, path.parent)))


def altered(kubeconfig: Path, to: Path, *, server: str = "", user: dict[str, Any] | None = None) -> Path:
    """Write a copy of a kubeconfig with another server, or with more in its user."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"].update(user or {})
    if server:
        document["clusters"][0]["cluster"]["server"] = server
    path = to / f"{uuid.uuid4().hex}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


def kubectl_of(cluster: DevCluster, *options: str) -> Kubectl:
    """Return what runs a cluster's kubectl; a failing command raises unless `check=False`."""

    def run(*arguments: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [cluster.kubectl, "--kubeconfig", cluster.kubeconfig, *options, *arguments],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=check,
            timeout=60,
        )

    return run
