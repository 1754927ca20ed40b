"""The command line of each component.

Pure: values in, values out. Flags stand here with the reason for each that is not plain. Everything listens on the
loopback interface alone; etcd on a socket in the cluster's folder, so that nobody else on the machine can reach it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.devcluster import kwok
from runner.devcluster.layout import APISERVER, CONTROLLERS, ETCD, KWOK, SCHEDULER
from runner.devcluster.ports import LOOPBACK

SERVER_NAMES = (
    LOOPBACK,
    "localhost",
    "10.96.0.1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
# etcd wants `host:port` in a socket's URL and takes both for the file's name
ETCD_SOCKET = "etcd.sock:0"
_PEER_SOCKET = "peer.sock:0"

# What has no counterpart here (clouds, volumes, swept tokens) would only hold memory.
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
        """Where the API server is."""
        return f"https://{LOOPBACK}:{self.apiserver}"


def arguments(ports: Ports, apiserver_args: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the arguments of each component, which runs in `Layout.run`."""
    return {
        ETCD: _etcd(),
        APISERVER: (*_apiserver(ports), *apiserver_args),
        CONTROLLERS: _controllers(),
        SCHEDULER: ("--kubeconfig=scheduler.kubeconfig", "--leader-elect=false", "--secure-port=0"),
        KWOK: _kwok(ports),
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


def _apiserver(ports: Ports) -> tuple[str, ...]:
    return (
        f"--etcd-servers=unix://{ETCD_SOCKET}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={ports.apiserver}",
        "--permit-port-sharing",  # with the socket that keeps the port for it
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
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        "--endpoint-reconciler-type=none",  # nothing in the cluster could reach a loopback address
        "--profiling=false",
    )


def _controllers() -> tuple[str, ...]:
    return (
        "--kubeconfig=controllers.kubeconfig",
        "--leader-elect=false",
        "--secure-port=0",
        f"--controllers=*,{','.join(f'-{name}' for name in _UNUSED_CONTROLLERS)}",
        "--root-ca-file=ca.crt",
        "--service-account-private-key-file=sa.key",
        "--cluster-signing-cert-file=ca.crt",
        "--cluster-signing-key-file=ca.key",
        # Tests delete namespaces and thousands of objects; 20 requests a second would make them wait.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        # The node cannot be lost: kwok says each 600 to 610 s that it is there, and no oftener. Were it taken for lost
        # in between, or while a test stops the API server, its pods would become unready, which kwok does not mend.
        "--node-monitor-grace-period=24h",
        "--profiling=false",
    )


def _kwok(ports: Ports) -> tuple[str, ...]:
    return (
        "--kubeconfig=kwok.kubeconfig",
        "--config=kwok.yaml",
        "--manage-all-nodes=true",
        f"--enable-crds={','.join(kwok.KINDS)}",
        f"--server-address={LOOPBACK}:{ports.kwok}",
        f"--node-ip={LOOPBACK}",
        f"--node-port={ports.kwok}",
        "--tls-cert-file=kubelet.crt",
        "--tls-private-key-file=kubelet.key",
    )
