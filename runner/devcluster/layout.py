"""Where everything of one cluster lies in its folder.

    FOLDER/lock          held by the supervisor as long as the cluster runs
    FOLDER/logs/         a file per component; outlives the cluster, until the next one of that name
    FOLDER/run/          keys, kubeconfig, sockets, data: gone when the cluster is

Pure: names only, nothing is read or made here.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one cluster. Components run in `run`, so that file names in their flags are relative to it."""

    folder: Path

    @property
    def lock(self) -> Path:
        """Locked while the cluster runs; holds the supervisor's process id."""
        return self.folder / "lock"

    @property
    def logs(self) -> Path:
        """The folder of log files."""
        return self.folder / "logs"

    @property
    def run(self) -> Path:
        """The folder that goes with the cluster."""
        return self.folder / "run"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.run / "kubeconfig"

    @property
    def facts(self) -> Path:
        """What `status` shows, written once the cluster is ready."""
        return self.run / "cluster.json"

    @property
    def env(self) -> Path:
        """What a shell reads to be led to the cluster, written once it is ready."""
        return self.run / "env"

    @property
    def exported(self) -> Path:
        """Holds the path of the kubeconfig's copy that the user asked for."""
        return self.run / "exported"

    @property
    def exec_folder(self) -> Path:
        """Where commands of `kubectl exec` run."""
        return self.run / "exec"

    @property
    def pod_log(self) -> Path:
        """What `kubectl logs` shows of a pod that has no file of its own."""
        return self.run / "pod.log"

    def log(self, component: str) -> Path:
        """Where a component's output goes."""
        return self.logs / f"{component}.log"
