"""Configuration of kwok: its configuration file, its node, and objects for single pods. Pure.

kwok simulates the kubelet. Every pod becomes Running and Ready. kwok's objects define logs, commands and ports, for all
pods in the configuration file. For one pod, an object with the pod's name in its namespace (`Logs`, `Attach`,
`PortForward`) takes precedence. See kwok's API reference for the fields.

kwok authenticates no client of its port, and would execute commands on this machine for every local user. Therefore
commands run only in containers with a secret name, which the API server sends in the path of its request.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from runner.sdk.devcluster.layout import Layout
from runner.sdk.devcluster.ports import LOOPBACK

GROUP_VERSION = "kwok.x-k8s.io/v1alpha1"
KINDS = {"Logs": "logs", "Attach": "attaches", "PortForward": "portforwards"}
"""Kinds of the objects for single pods, with their plurals."""
NODE, TYPE = "node-1", "kwok"
ANNOTATION, FAKE = "kwok.x-k8s.io/node", "fake"
NO_LOG = "This pod is simulated. A Logs object with the pod's name sets its log file."
# Response on every port of every pod. It needs a Content-Length, because kwok closes the connection after the client.
_NO_TARGET = "This pod is simulated. A PortForward object with its name sets the target of its ports.\n"
_ANSWER = f"""
while read -r line; do [ "${{#line}}" -le 1 ] && break; done
printf 'HTTP/1.1 200 OK\\r\\nContent-Type: text/plain\\r\\nContent-Length: {len(_NO_TARGET)}\\r\\n\\r\\n'
printf '{_NO_TARGET}'
"""


def new_exec_container() -> str:
    """Return a name that cannot be guessed, for the containers in which commands run."""
    return f"exec-{secrets.token_hex(16)}"


def configuration(layout: Layout, exec_container: str) -> str:
    """Return kwok's configuration file. JSON is YAML, and a YAML file may hold several documents."""
    local = {"workDir": str(layout.exec_folder)}
    documents = (
        _document("ClusterLogs", {"logs": [{"logsFile": str(layout.pod_log), "follow": True}]}),
        _document("ClusterAttach", {"attaches": [{"logsFile": str(layout.pod_log)}]}),
        _document("ClusterExec", {"execs": [{"containers": [exec_container], "local": local}]}),
        _document("ClusterPortForward", {"forwards": [{"command": ["/bin/sh", "-c", _ANSWER]}]}),
    )
    return "\n---\n".join(json.dumps(document) for document in documents) + "\n"


def _document(kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"apiVersion": GROUP_VERSION, "kind": kind, "metadata": {"name": "default"}, "spec": spec}


def node() -> Mapping[str, Any]:
    """Return the node, without status: otherwise kwok sets no address, and logs are not available."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": NODE,
            "annotations": {ANNOTATION: FAKE},
            "labels": {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux", "type": TYPE},
        },
    }


def definitions() -> tuple[Mapping[str, Any], ...]:
    """Return the CRDs of the objects for single pods."""
    return tuple(_definition(kind, plural) for kind, plural in KINDS.items())


def _definition(kind: str, plural: str) -> Mapping[str, Any]:
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.kwok.x-k8s.io"},
        "spec": {
            "group": "kwok.x-k8s.io",
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }


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
