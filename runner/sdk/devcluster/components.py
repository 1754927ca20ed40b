"""Command lines of the components, from `templates/flags.yaml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.sdk.devcluster import kwok, node, templates
from runner.sdk.devcluster.layout import APISERVER, CONTAINERD, CONTROLLERS, DNS, ETCD, KUBELET, KWOK, PROXY, SCHEDULER
from runner.sdk.devcluster.nodes import Nodes
from runner.sdk.devcluster.ports import LOOPBACK

SERVER_NAMES = (
    LOOPBACK,
    "localhost",
    "10.96.0.1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    node.ADDRESS,
)


@dataclass(frozen=True, slots=True)
class Ports:
    """The TCP ports of a cluster."""

    apiserver: int
    kwok: int

    @property
    def url(self) -> str:
        """URL of the API server."""
        return f"https://{LOOPBACK}:{self.apiserver}"


def arguments(ports: Ports, apiserver_args: Sequence[str], nodes: Nodes = Nodes.FAKE) -> Mapping[str, Sequence[str]]:
    """Return the arguments of each component of the control plane, and of kwok, which run in `Layout.run`."""
    flags = _flags(ports)
    unused = ",".join(f"-{name}" for name in flags["unused controllers"])
    of_node = "with" if nodes.has_real else "without"
    of_fake_node = flags[f"{CONTROLLERS} with a fake node"] if nodes.has_fake else []
    return {
        ETCD: flags[ETCD],
        APISERVER: [*flags[APISERVER], *flags[f"{APISERVER} {of_node} a real node"], *apiserver_args],
        CONTROLLERS: [*flags[CONTROLLERS], f"--controllers=*,{unused}", *of_fake_node],
        SCHEDULER: flags[SCHEDULER],
        **({KWOK: flags[KWOK]} if nodes.has_fake else {}),
    }


def node_arguments(ports: Ports) -> Mapping[str, Sequence[str]]:
    """Return the arguments of the components of a real node, which run in `Layout.run`."""
    flags = _flags(ports)
    return {**{name: flags[name] for name in (CONTAINERD, KUBELET, PROXY)}, DNS: [node.ADDRESS, str(ports.apiserver)]}


def _flags(ports: Ports) -> Any:
    return templates.parsed(
        "flags.yaml",
        apiserver=ports.apiserver,
        kwok=ports.kwok,
        loopback=LOOPBACK,
        address=node.ADDRESS,
        node=node.NODE,
        type=node.TYPE,
        policies=node.POLICIES,
        kwok_kinds=",".join(kwok.KINDS),
    )
