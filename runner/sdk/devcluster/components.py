"""Command lines of the components. Pure.

All components listen on the loopback interface; etcd on a socket in the cluster's folder, which only its user can
access. With a real node they run in the cluster's network namespace, and the API server listens for pods too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.sdk.devcluster import kwok, node
from runner.sdk.devcluster.layout import (
    APISERVER,
    CONTAINERD,
    CONTROLLERS,
    DNS,
    ETCD,
    KUBELET,
    KWOK,
    PROXY,
    SCHEDULER,
)
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
# etcd requires `host:port` in a socket's URL and uses both as the file's name
ETCD_SOCKET = "etcd.sock:0"
_PEER_SOCKET = "peer.sock:0"

# Controllers for clouds, volumes and legacy tokens, which would only use memory.
_UNUSED_CONTROLLERS = (
    "cloud-node-lifecycle-controller",
    "device-taint-eviction-controller",
    "ephemeral-volume-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "node-ipam-controller",
    "node-route-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
    "resourceclaim-controller",
    "service-lb-controller",
    "storage-version-migrator-controller",
    "storageversion-garbage-collector-controller",
    "ttl-controller",
    "volumeattributesclass-protection-controller",
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


def arguments(ports: Ports, apiserver_args: Sequence[str], nodes: Nodes = Nodes.FAKE) -> Mapping[str, tuple[str, ...]]:
    """Return the arguments of each component of the control plane, and of kwok, which run in `Layout.run`."""
    arguments_of = {
        ETCD: _etcd(),
        APISERVER: (*_apiserver(ports, nodes), *apiserver_args),
        CONTROLLERS: _controllers(nodes),
        SCHEDULER: ("--kubeconfig=scheduler.kubeconfig", "--leader-elect=false", "--secure-port=0"),
    }
    return {**arguments_of, KWOK: _kwok(ports)} if nodes.has_fake else arguments_of


def node_arguments(ports: Ports) -> Mapping[str, tuple[str, ...]]:
    """Return the arguments of the components of a real node, which run in `Layout.run`."""
    return {
        CONTAINERD: ("--config=containerd.toml",),
        KUBELET: (
            "--config=kubelet.yaml",
            "--kubeconfig=kubelet.kubeconfig",
            f"--hostname-override={node.NODE}",
            f"--node-ip={node.ADDRESS}",
            f"--node-labels=type={node.TYPE}",
        ),
        PROXY: ("--config=proxy.yaml",),
        DNS: (node.ADDRESS, str(ports.apiserver)),
    }


def _etcd() -> tuple[str, ...]:
    return (
        "--name=devcluster",
        "--data-dir=etcd",
        f"--listen-client-urls=unix://{ETCD_SOCKET}",
        f"--advertise-client-urls=unix://{ETCD_SOCKET}",
        f"--listen-peer-urls=unix://{_PEER_SOCKET}",
        # The member's address of record; as the only member it is never dialled.
        "--initial-advertise-peer-urls=http://localhost:2380",
        "--initial-cluster=devcluster=http://localhost:2380",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )


def _apiserver(ports: Ports, nodes: Nodes) -> tuple[str, ...]:
    if nodes.has_real:
        reachable: tuple[str, ...] = (
            "--bind-address=0.0.0.0",
            f"--advertise-address={node.ADDRESS}",
            "--authorization-mode=Node,RBAC",
            *node.APISERVER_FLAGS,
        )
    else:
        reachable = (
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            "--permit-port-sharing",  # with the socket that reserves the port
            "--endpoint-reconciler-type=none",  # nothing in the cluster could reach a loopback address
            "--authorization-mode=RBAC",
        )
    return (
        f"--etcd-servers=unix://{ETCD_SOCKET}",
        *reachable,
        f"--secure-port={ports.apiserver}",
        "--tls-cert-file=apiserver.crt",
        "--tls-private-key-file=apiserver.key",
        "--client-ca-file=ca.crt",
        "--kubelet-certificate-authority=ca.crt",
        "--kubelet-client-certificate=kubelet-client.crt",
        "--kubelet-client-key=kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-account-key-file=sa.pub",
        "--service-account-signing-key-file=sa.key",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged=true",
        "--profiling=false",
    )


def _controllers(nodes: Nodes) -> tuple[str, ...]:
    return (
        "--kubeconfig=controllers.kubeconfig",
        "--leader-elect=false",
        "--secure-port=0",
        f"--controllers=*,{','.join(f'-{name}' for name in _UNUSED_CONTROLLERS)}",
        "--root-ca-file=ca.crt",
        "--service-account-private-key-file=sa.key",
        "--cluster-signing-cert-file=ca.crt",
        "--cluster-signing-key-file=ca.key",
        # Tests delete namespaces and thousands of objects; the default of 20 requests per second is too slow.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        # kwok renews the node's status only every 600 to 610 s. If the node became unknown in between, or while a test
        # stops the API server, its pods would become unready, which kwok does not revert.
        *(("--node-monitor-grace-period=24h",) if nodes.has_fake else ()),
        "--profiling=false",
    )


def _kwok(ports: Ports) -> tuple[str, ...]:
    return (
        "--kubeconfig=kwok.kubeconfig",
        "--config=kwok.yaml",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--enable-crds={','.join(kwok.KINDS)}",
        f"--server-address={LOOPBACK}:{ports.kwok}",
        f"--node-ip={LOOPBACK}",
        f"--node-port={ports.kwok}",
        "--tls-cert-file=kubelet.crt",
        "--tls-private-key-file=kubelet.key",
    )
