"""An operator that is deployed on a real node, and the faults of a node. `suite.py` has an operator that is a process.

The pods mount the world's folder: it has the project, what runs write down, and the log of each container.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runner.sdk.devcluster import DevCluster, node
from runner.sdk.devcluster.layout import KUBELET
from tests.faults.world import NAMESPACE, Objects, install, write_project
from tests.kit.cluster import Kubectl, kubectl_of
from tests.kit.objects import Api, Things
from tests.kit.operator import ACCOUNT, Project, account_kubeconfig
from tests.kit.wait import patience, wait_until

OPERATOR = "operator"
MISSING = "example.com/missing:1"
_LABELS = {"app": OPERATOR}
_SCRIPT = 'log=$1/log-$POD_NAME-$(date +%s%N); shift; exec ansible-operator run "$@" >>"$log" 2>&1'
_FLAGS = (
    f"--namespace={NAMESPACE}",
    "--log-format=json",
    "--log-level=debug",
    "--ansible-log-events=nothing",
    "--max-concurrent-reconciles=2",
    "--metrics-bind-address=0",
    "--health-probe-bind-address=:6789",
)
_HOG = ("python3", "-c", "b'x' * (2 << 30)")
_RESOURCES = {"cpu": "800m", "memory": "768Mi"}
"""Limits and requests: with other requests, the kubelet leaves hardly any range of scores to choose a victim by."""
_PRESSURE = {
    "evictionSoft": {"memory.available": "99%"},
    "evictionSoftGracePeriod": {"memory.available": "1s"},
}
"""No machine has that much available. The threshold is a soft one, because hard ones reduce what pods may request."""
_CALM = {"evictionPressureTransitionPeriod": "0s"}
"""The kubelet reports that memory suffices as soon as it does, not after five minutes."""


@dataclass(slots=True, kw_only=True)
class Deployed(Objects):
    """Objects, and an operator in pods of the real node."""

    image: str

    def logs(self) -> Iterable[Path]:
        """Return the log of each container, in the order of their starts."""
        return sorted(self.folder.glob("log-*"), key=lambda log: log.name.rpartition("-")[2])

    @property
    def kubectl(self) -> Kubectl:
        """Run kubectl in the operator's namespace."""
        return kubectl_of(self.cluster, f"--namespace={NAMESPACE}")

    def deploy(self, *flags: str, replicas: int = 1) -> None:
        """Deploy the operator, and wait until it is ready."""
        deployment = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{OPERATOR}"
        self.api.apply(deployment, self._deployment([*_FLAGS, *flags], replicas))
        self.await_ready()

    def await_ready(self) -> None:
        """Wait until all replicas of the newest version are ready, and no others are left."""

        def is_ready() -> bool:
            deployment = self.kubectl.get("deployment", OPERATOR)
            status, replicas = deployment["status"], deployment["spec"]["replicas"]
            counts = [status.get(name) for name in ("replicas", "updatedReplicas", "readyReplicas")]
            current = status.get("observedGeneration") == deployment["metadata"]["generation"]
            return current and counts == [replicas] * 3 and len(self.pods()) == replicas

        wait_until(is_ready, lambda: f"the operator to be ready:\n{self.state()}")

    def pods(self) -> list[dict[str, Any]]:
        """Return the operator's pods that have not ended."""
        found = self.kubectl.get("pods", f"--selector=app={OPERATOR}")["items"]
        return [pod for pod in found if pod["status"].get("phase") not in {"Failed", "Succeeded"}]

    def names(self) -> list[str]:
        """Return the names of these pods, without those that are being deleted."""
        return [pod["metadata"]["name"] for pod in self.pods() if "deletionTimestamp" not in pod["metadata"]]

    def phases(self) -> list[str]:
        """Return the phases of the pods of `names`, in order."""
        return sorted(self.kubectl("get", "pod", pod, "--output=jsonpath={.status.phase}") for pod in self.names())

    def leader(self) -> str:
        """Return the pod of `names` that holds the Lease; empty if none does."""
        lease = self.api.call("GET", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{OPERATOR}") or {}
        holder = lease.get("spec", {}).get("holderIdentity") or ""
        return next((pod for pod in self.names() if holder.startswith(f"{pod}_")), "")

    def pod(self) -> dict[str, Any]:
        """Return the operator's only pod."""
        (pod,) = self.pods()
        return pod

    def first_process(self) -> int:
        """Return the process id of the first process of the operator's only pod; the operator is its child."""
        found = first_process(f"POD_NAME={self.pod()['metadata']['name']}")
        assert found is not None, f"no process:\n{self.state()}"
        return found

    def kill_container(self) -> None:
        """Kill the first process of the operator's only pod, and so all of its container."""
        os.kill(self.first_process(), signal.SIGKILL)

    def ended(self, count: int) -> str:
        """Wait until the operator's container has ended so many times; return the reason of the last end."""

        def reason() -> str:
            (status,) = self.pod()["status"].get("containerStatuses") or [{}]
            last = status.get("lastState", {}).get("terminated", {})
            return str(last.get("reason", "")) if status.get("restartCount", 0) >= count else ""

        return wait_until(reason, lambda: f"the restart of the container:\n{self.state()}")

    def restarts(self) -> int:
        """Return how many times the operator's container has ended."""
        (status,) = self.pod()["status"]["containerStatuses"]
        return int(status["restartCount"])

    def rest(self) -> None:
        """Wait until all objects are as wanted; AssertionError if not, or if something happened that must not."""
        self.await_ready()
        wait_until(lambda: not self.problems(), lambda: "\n".join([*self.problems(), self.state()]))
        found = self.violations()
        assert not found, "\n".join(found)

    def state(self) -> str:
        """Return pods, nodes, and the ends of the newest logs."""
        ends = [f"{log.name}:\n{log.read_text(errors='replace')[-1500:]}" for log in list(self.logs())[-2:]]
        return "\n".join([self.kubectl.run("describe", "pods,nodes", check=False).stdout, *ends])

    @contextmanager
    def kubelet(self, **settings: object) -> Iterator[None]:
        """Run the kubelet with other settings."""
        path = self.cluster.control.layout().run / "kubelet.yaml"
        before = path.read_text(encoding="utf-8")
        path.write_text(yaml.safe_dump({**yaml.safe_load(before), **settings}), encoding="utf-8")
        self._restart_kubelet()
        try:
            yield
        finally:
            path.write_text(before, encoding="utf-8")
            self._restart_kubelet()

    def _restart_kubelet(self) -> None:
        self.cluster.control.order("stop", KUBELET)
        self.cluster.control.order("start", KUBELET)

    def condition(self, kind: str) -> str:
        """Return the status of a condition of the node."""
        path = f'--output=jsonpath={{.status.conditions[?(@.type=="{kind}")].status}}'
        return self.kubectl("get", "node", node.NODE, path)

    def _deployment(self, flags: list[str], replicas: int) -> Mapping[str, Any]:
        container = {
            "name": OPERATOR,
            "image": self.image,
            "command": ["/tini", "--", "sh", "-c", _SCRIPT, "sh", str(self.folder)],
            "args": flags,
            "workingDir": f"{self.folder}/project",
            "env": [
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "ANSIBLE_GATHERING", "value": "explicit"},
            ],
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 6789}, "periodSeconds": 1},
            "resources": {"limits": _RESOURCES, "requests": _RESOURCES},
            "volumeMounts": [
                {"name": "world", "mountPath": str(self.folder)},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }
        # The world may be below /tmp: its mount is inside of that volume.
        volumes = [{"name": "world", "hostPath": {"path": str(self.folder)}}, {"name": "tmp", "emptyDir": {}}]
        pod = {"serviceAccountName": ACCOUNT, "containers": [container], "volumes": volumes}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": OPERATOR},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": _LABELS},
                # One operator at a time, because it has no lease.
                "strategy": {"type": "Recreate"},
                "template": {"metadata": {"labels": _LABELS}, "spec": pod},
            },
        }


def first_process(variable: str) -> int | None:
    """Return the process id of the first process of a container, which has this variable in its environment."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{variable}\0".encode() in (process / "environ").read_bytes() and _is_first(process):
                return int(process.name)
    return None


def _is_first(process: Path) -> bool:
    """Return whether a process is the first one in its namespace (proc_pid_status(5))."""
    lines = (process / "status").read_text(encoding="utf-8").splitlines()
    return next(line.split()[-1] for line in lines if line.startswith("NSpid:")) == "1"


@contextmanager
def deployed(cluster: DevCluster, folder: Path, chance: random.Random, image: str) -> Iterator[Deployed]:
    """Deploy an operator whose objects converge; remove it and them."""
    with ExitStack() as stack:
        api = Api(Path(cluster.kubeconfig))
        stack.callback(api.close)
        install(api)
        kubeconfig = account_kubeconfig(api, cluster.kubeconfig, NAMESPACE, folder)
        Project(folder, NAMESPACE, kubeconfig, api).allow_lease(OPERATOR)
        write_project(folder, "python3")
        folder.chmod(0o777)  # the operator has another user
        things = Things(api, NAMESPACE)
        made = Deployed(cluster=cluster, folder=folder, chance=chance, api=api, things=things, image=image)
        made.deploy()
        for _ in range(5):
            made.touch()
        made.rest()
        yield made
        made.kubectl("delete", "things", "--all", f"--timeout={patience():.0f}s")
        made.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@contextmanager
def killed(world: Deployed) -> Iterator[None]:
    """The container of the operator is killed."""
    before = world.restarts()
    world.kill_container()
    yield
    world.ended(before + 1)


@contextmanager
def out_of_memory(world: Deployed) -> Iterator[None]:
    """The operator's memory limit is exceeded, and the kernel kills the operator, not the process that needs memory."""
    before = world.restarts()
    first = world.first_process()
    (operator,) = Path(f"/proc/{first}/task/{first}/children").read_text(encoding="ascii").split()
    Path(f"/proc/{operator}/oom_score_adj").write_text("1000", encoding="ascii")
    world.kubectl.run("exec", world.pod()["metadata"]["name"], "--", *_HOG, check=False)
    yield
    assert world.ended(before + 1) == "OOMKilled"


@contextmanager
def evicted(world: Deployed) -> Iterator[None]:
    """The node has too little memory, by the kubelet's own threshold, and evicts the operator's pod."""
    before = world.pod()["metadata"]["name"]
    with world.kubelet(**_PRESSURE, **_CALM):
        wait_until(lambda: world.condition("MemoryPressure") == "True", "the pressure")
        yield
        # Not the pod's status: its phase is Succeeded, because the operator ends without an error.
        events = ("get", "events", f"--field-selector=reason=Evicted,involvedObject.name={before}", "--output=name")
        wait_until(lambda: world.kubectl(*events), lambda: f"the eviction:\n{world.state()}")
    with world.kubelet(**_CALM):
        wait_until(lambda: world.condition("MemoryPressure") == "False", "the end of the pressure")


@contextmanager
def without_kubelet(world: Deployed) -> Iterator[None]:
    """The kubelet is stopped when the container is killed, so that it is not started again."""
    before = world.restarts()
    world.cluster.control.order("stop", KUBELET)
    world.kill_container()
    yield
    world.cluster.control.order("start", KUBELET)
    world.ended(before + 1)


@contextmanager
def not_ready(world: Deployed) -> Iterator[None]:
    """The kubelet stands still until the node is NotReady; the operator goes on."""
    world.cluster.pause(KUBELET)
    wait_until(lambda: world.condition("Ready") == "Unknown", "the node to be NotReady")
    yield
    time.sleep(world.chance.uniform(0, 5))  # how long it stands still
    world.cluster.resume(KUBELET)
    wait_until(lambda: world.condition("Ready") == "True", "the node to be ready")


@contextmanager
def image_missing(world: Deployed) -> Iterator[None]:
    """The operator is replaced by one whose image is missing."""

    def waiting() -> str:
        statuses = [each for pod in world.pods() for each in pod["status"].get("containerStatuses", [])]
        return " ".join(each["state"].get("waiting", {}).get("reason", "") for each in statuses)

    world.kubectl("set", "image", f"deployment/{OPERATOR}", f"{OPERATOR}={MISSING}")
    wait_until(lambda: waiting() in {"ErrImagePull", "ImagePullBackOff"}, lambda: f"no image:\n{world.state()}")
    yield
    world.kubectl("set", "image", f"deployment/{OPERATOR}", f"{OPERATOR}={world.image}")


FAULTS: Mapping[str, Callable[[Deployed], AbstractContextManager[None]]] = {
    "container killed": killed,
    "operator out of memory": out_of_memory,
    "evicted by memory pressure": evicted,
    "container killed without kubelet": without_kubelet,
    "node not ready": not_ready,
    "image missing": image_missing,
}


def cause(world: Deployed, fault: str) -> None:
    """Change objects before, during and after a fault; then everything must come to rest."""
    for _ in range(2):
        world.touch()
    time.sleep(world.chance.uniform(0, 0.8))  # the fault comes at any moment of a run
    with FAULTS[fault](world):
        for _ in range(3):
            world.touch()
    world.touch()
    world.rest()
