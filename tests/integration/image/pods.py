"""Runs in pods on a real node. The operator is a process in the network of the node, so that pods reach it."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import urllib3
import yaml

from runner.sdk.devcluster import DevCluster, node
from runner.sdk.devcluster.layout import NAMESPACES
from tests.kit.objects import GROUP, THING_CRD, Api, Things, definition
from tests.kit.operator import Operator, Project, account_kubeconfig
from tests.kit.places import SAMPLE_CRD
from tests.kit.tasks import NAME, config_map
from tests.kit.wait import wait_until

T = TypeVar("T")

EE = "example.com/ee:1"
"""The image of operators with a collection, which is an execution environment too."""
_NEWNET = 0x40000000
"""CLONE_NEWNET of setns(2)."""
WAIT = """
- name: Wait for the gate
  kubernetes.core.k8s_info:
    kind: ConfigMap
    name: "{{ gate }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: found
  until: found.resources | length > 0
  retries: 600
  delay: 0.5
  when: gate is defined
- name: Take memory
  ansible.builtin.command: python3 -c "x = bytearray({{ mebibytes }} << 20)"
  when: mebibytes is defined
  changed_when: false
"""
RECORD = config_map(f"{NAME}-made", {"size": "{{ size | default(1) | string }}"}, task_name="Record")
ROLE = WAIT + RECORD


def in_network(process: int, call: Callable[[], T]) -> T:
    """Call a function in a thread that is in the network of a process."""

    def enter() -> T:
        with Path(f"/proc/{process}/ns/net").open("rb") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _NEWNET):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return call()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(enter).result()


class OperatorOnNode(Operator):
    """An operator in the network of the node."""

    def __init__(self, operator: Operator, network: int) -> None:
        super().__init__(operator.process, operator.path)
        self._network = network

    def fetch(self, port: int, path: str) -> urllib3.BaseHTTPResponse:
        return in_network(self._network, lambda: super(OperatorOnNode, self).fetch(port, path))


@dataclass
class ProjectInPods(Project):
    """A project whose runs are in pods, and whose operators are in the network of the node."""

    network: int = 0
    """Process whose network namespace is that of the node."""
    service: str = ""
    """Name of the Service by which pods reach all replicas; empty: they reach the node."""
    template: dict[str, Any] = field(default_factory=lambda: {"image": EE})
    """Template of the pods, to which a watch can add."""

    def watch(self, role: str, **options: Any) -> None:
        template = {**self.template, **options.pop("podTemplate", {})}
        super().watch(role, isolation="pod", podTemplate=template, **options)

    def start(self, *flags: str, host: str = node.ADDRESS, ready: bool = True, **options: Any) -> Operator:
        """Start an operator with a run folder of its own. `host` is where it listens for pods."""
        count = len(self.operators)
        started = super().start(
            f"--pods-address={self.service or node.ADDRESS}:8444",
            f"--pods-bind-address={host}:8444",
            f"--leader-election-namespace={self.namespace}",
            *([f"--runner-dir={self.folder}/runs-{count}"] if count else []),
            *flags,
            **options,
            within=("nsenter", f"--net=/proc/{self.network}/ns/net"),
            ready=False,
        )
        self.operators[-1] = operator = OperatorOnNode(started, self.network)
        operator.await_line("Watching")
        if ready:
            operator.await_ready()
        return operator


@dataclass
class PodProject:
    """A project whose runs are in pods, with the objects of its namespace."""

    project: ProjectInPods
    things: Things
    api: Api

    @property
    def namespace(self) -> str:
        return self.things.namespace

    def watch(self, role: str = ROLE, template: dict[str, Any] | None = None, **options: Any) -> None:
        self.project.role("thing", role)
        self.project.watch("thing", podTemplate=template or {}, **options)

    def start(self, *flags: str, host: str = node.ADDRESS) -> Operator:
        """Start the operator, and wait until it watches. `host` is where it listens for pods."""
        return self.project.start(*flags, host=host, ready=False)

    def other_kind(self) -> Things:
        """Install another kind, Neighbour, which a watch of its own can have."""
        self.api.install(definition(GROUP, "Neighbour"))
        self.project.grant_kind("neighbours")
        others = Things(self.api, self.namespace, "neighbours", "Neighbour")
        wait_until(lambda: self.api.call("GET", others.path), "the other kind to be served")
        return others

    def install_sample(self) -> None:
        """Install the kind of the sample, Memcached."""
        self.api.install(yaml.safe_load(SAMPLE_CRD.read_text(encoding="utf-8")))
        wait_until(lambda: self.api.call("GET", "/apis/cache.example.com/v1alpha1/memcacheds"), "it to be served")

    def serve(self, *addresses: str) -> None:
        """Make a headless Service of these addresses, which the node gets."""
        for address in addresses:
            command = [
                "nsenter",
                f"--net=/proc/{self.project.network}/ns/net",
                "ip",
                "addr",
                "replace",
                f"{address}/32",
            ]
            subprocess.run([*command, "dev", "lo"], check=True)
        base, meta = f"namespaces/{self.namespace}", {"name": "agents"}
        ports = [{"name": "agents", "port": 8444}]
        self.api.call(
            "POST", f"/api/v1/{base}/services", {"metadata": meta, "spec": {"clusterIP": "None", "ports": ports}}
        )
        labels = {"kubernetes.io/service-name": "agents"}
        endpoints = [{"addresses": [each], "conditions": {"ready": True}} for each in addresses]
        body = {"metadata": {**meta, "labels": labels}, "addressType": "IPv4", "endpoints": endpoints, "ports": ports}
        self.api.call("POST", f"/apis/discovery.k8s.io/v1/{base}/endpointslices", body)
        self.project.service = f"agents.{self.namespace}.svc"

    def objects(self, path: str) -> list[Any]:
        """Return the objects of runs: `jobs`, `pods` or `secrets`."""
        base = "/apis/batch/v1" if path == "jobs" else "/api/v1"
        selector = "labelSelector=app.kubernetes.io/component%3Drun"
        found = self.api.call("GET", f"{base}/namespaces/{self.namespace}/{path}?{selector}")
        items: list[Any] = found["items"]
        return items

    def config_map(self, name: str) -> Any:
        return self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/configmaps/{name}")

    def open_gate(self, name: str) -> None:
        body = {"metadata": {"name": name}}
        self.api.call("POST", f"/api/v1/namespaces/{self.namespace}/configmaps", body)

    def succeeds(self, name: str) -> None:
        """Wait for the success of an object; on failure show what its pods and the operator say."""
        try:
            self.things.await_success(name)
        except AssertionError as error:
            shown = [f"{pod['metadata']['name']}:\n{self.log(pod['metadata']['name'])}" for pod in self.objects("pods")]
            shown += [each.log[-4000:] for each in self.project.operators]
            raise AssertionError("\n\n".join([str(error), str(self.things.conditions(name)), *shown])) from None

    def warm(self) -> list[Any]:
        """Return the running warm pods without a run."""
        selector = "labelSelector=ansible.sdk.operatorframework.io/warm-pod-of,!ansible.sdk.operatorframework.io/run-of"
        found = self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/pods?{selector}")
        return [each for each in found["items"] if each["status"]["phase"] == "Running"]

    def log(self, pod: str) -> str:
        """Return the log of a pod."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        answer = self.api._pool.request("GET", self.api._client.configuration.host + path)
        return str(answer.data.decode())


RULES = yaml.safe_load("""
- {apiGroups: [""], resources: [secrets], verbs: [get, list, create, delete]}
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch, patch]}
- {apiGroups: [batch], resources: [jobs], verbs: [get, list, create, delete]}
- {apiGroups: [""], resources: [events], verbs: [list]}
""")


@contextmanager
def pod_project(cluster: DevCluster, folder: Path, namespace: str) -> Iterator[PodProject]:
    """A project in a namespace of its own, whose operator may do what `RULES` allow."""
    api = Api(Path(cluster.kubeconfig))
    api.install(THING_CRD)
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    kubeconfig = account_kubeconfig(api, Path(cluster.kubeconfig), namespace, folder)
    network = cluster.pid(NAMESPACES)
    assert network is not None
    project = ProjectInPods(folder / "project", namespace, kubeconfig, api, network=network)
    project.folder.mkdir()
    project.permit(*RULES)
    yield PodProject(project, Things(api, namespace), api)
    project.close()
    api.call("DELETE", f"/api/v1/namespaces/{namespace}")
    api.close()
