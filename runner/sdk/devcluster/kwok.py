"""Configuration of kwok: its configuration file, its node, and objects for single pods. Pure.

kwok simulates the kubelet. Every pod becomes Running and Ready. kwok's objects define logs, commands and ports, for all
pods in the configuration file. For one pod, an object with the pod's name in its namespace (`Logs`, `Attach`,
`PortForward`) takes precedence. See kwok's API reference for the fields.

kwok authenticates no client of its port, and would execute commands on this machine for every local user. Therefore
commands run only in containers with a secret name, which the API server sends in the path of its request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from runner.sdk.devcluster import templates
from runner.sdk.devcluster.ports import LOOPBACK

GROUP_VERSION = "kwok.x-k8s.io/v1alpha1"
KINDS = {"Logs": "logs", "Attach": "attaches", "PortForward": "portforwards"}
"""Kinds of the objects for single pods, with their plurals."""
NODE, TYPE = "node-1", "kwok"
_VOLUMES = 50
NO_LOG = "This pod is simulated. A Logs object with the pod's name sets its log file."


def definitions() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the CRDs of the objects for single pods, with their paths in the API."""
    for kind, plural in KINDS.items():
        yield from templates.parsed("kwok-crd.yaml", kind=kind, plural=plural, singular=kind.lower()).items()


def volumes() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the volumes of claims and their class, with their paths in the API."""
    yield from templates.parsed("kwok-class.yaml").items()
    for number in range(_VOLUMES):
        yield from templates.parsed("kwok-volume.yaml", name=f"volume-{number:02}", type=TYPE).items()


def pod_logs(namespace: str, pod: str, file: Path) -> Mapping[str, Any]:
    """Return the object that sets the log file of a pod."""
    spec = {"logs": [{"logsFile": str(file.absolute()), "follow": True}]}
    return _for_pod("Logs", namespace, pod, spec)


def pod_attach(namespace: str, pod: str, file: Path) -> Mapping[str, Any]:
    """Return the object that sets the file whose new lines `kubectl attach` shows."""
    return _for_pod("Attach", namespace, pod, {"attaches": [{"logsFile": str(file.absolute())}]})


def pod_port(namespace: str, pod: str, port: int, target: int) -> Mapping[str, Any]:
    """Return the object that forwards a pod's port to a port on this machine."""
    spec = {"forwards": [{"ports": [port], "target": {"address": LOOPBACK, "port": target}}]}
    return _for_pod("PortForward", namespace, pod, spec)


def _for_pod(kind: str, namespace: str, pod: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "apiVersion": GROUP_VERSION,
        "kind": kind,
        "metadata": {"name": pod, "namespace": namespace},
        "spec": spec,
    }


def log_line(text: str, at: datetime) -> str:
    """Return a line of a log file in the CRI format (time, stream, tag, text)."""
    return f"{at.isoformat(timespec='microseconds').removesuffix('+00:00')}000Z stdout F {text}\n"
