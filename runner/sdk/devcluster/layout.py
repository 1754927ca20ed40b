"""Paths of a cluster. Pure.

- FOLDER/lock: locked by the supervisor while the cluster runs
- FOLDER/logs/: a file per component; kept until the next start of a cluster with this name
- FOLDER/run/: keys, kubeconfig, sockets, data; deleted with the cluster
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

ETCD, APISERVER, CONTROLLERS, SCHEDULER, KWOK = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
)
COMPONENTS = (ETCD, APISERVER, CONTROLLERS, SCHEDULER, KWOK)
NAMESPACES, RELAY, CONTAINERD, KUBELET, PROXY, DNS = (
    "namespaces",
    "relay",
    "containerd",
    "kubelet",
    "kube-proxy",
    "dns",
)
NODE_COMPONENTS = (NAMESPACES, RELAY, CONTAINERD, KUBELET, PROXY, DNS)
"""Components of a real node, beside `COMPONENTS`."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one cluster. Components run in `run`, so that file names in their flags are relative to it."""

    folder: Path

    @property
    def lock(self) -> Path:
        """Locked while the cluster runs; contains the supervisor's process id."""
        return self.folder / "lock"

    @property
    def logs(self) -> Path:
        """The folder of log files."""
        return self.folder / "logs"

    @property
    def run(self) -> Path:
        """The folder that is deleted with the cluster."""
        return self.folder / "run"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.run / "kubeconfig"

    @property
    def facts(self) -> Path:
        """Data for `status`, written when the cluster is ready."""
        return self.run / "cluster.json"

    @property
    def env(self) -> Path:
        """Shell script that sets KUBECONFIG and PATH, written when the cluster is ready."""
        return self.run / "env"

    @property
    def exported(self) -> Path:
        """Contains the path of the user's copy of the kubeconfig."""
        return self.run / "exported"

    @property
    def namespaces(self) -> Path:
        """Exists when the namespaces of a real node are prepared."""
        return self.run / "namespaces"

    @property
    def pod_logs(self) -> Path:
        """Logs of pods on a real node."""
        return self.logs / "pods"

    @property
    def cgroup(self) -> str:
        """Name of the cgroup of pods on a real node."""
        return f"ansible-operator-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:12]}"

    @property
    def exec_folder(self) -> Path:
        """Working directory of commands of `kubectl exec`."""
        return self.run / "exec"

    @property
    def exec_container(self) -> Path:
        """File with the name of containers on the fake node in which `kubectl exec` runs commands; a secret."""
        return self.run / "exec-container"

    @property
    def pod_log(self) -> Path:
        """Log of pods without a separate log file."""
        return self.run / "pod.log"

    def log(self, component: str) -> Path:
        """Log file of a component."""
        return self.logs / f"{component}.log"
