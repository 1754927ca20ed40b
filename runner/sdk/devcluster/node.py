"""Configuration of the real node: containerd, kubelet, kube-proxy and the network of pods. Pure.

All of them run in the cluster's own namespaces (`namespaces.py`), so that their paths and ports are the default ones.
See the references of the KubeletConfiguration and the KubeProxyConfiguration for the fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from runner.sdk.devcluster import pause
from runner.sdk.devcluster.layout import Layout

NODE, TYPE = "node-real", "real"
ADDRESS = "10.95.0.1"
"""Address of the node and of the API server in the cluster."""
DOMAIN = "cluster.local"
SOCKET = "/run/containerd/containerd.sock"
VOLUMES = "/var/lib/volumes"
CNI_PROGRAMS = "/usr/lib/cni"
_PODS = "10.244.0.0/16"
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


def binds(layout: Layout) -> tuple[str, ...]:
    """Return the folders that are mounted in the mount namespace."""
    return (
        f"{layout.run}/containerd=/var/lib/containerd",
        f"{layout.run}/kubelet=/var/lib/kubelet",
        f"{layout.run}/volumes={VOLUMES}",
        f"{layout.logs}/pods=/var/log/pods",
    )


def containerd_configuration(layout: Layout) -> str:
    """Return containerd's configuration file."""
    unused = [f"io.containerd.snapshotter.v1.{name}" for name in ("aufs", "btrfs", "devmapper", "zfs")]
    cri = '[plugins."io.containerd.grpc.v1.cri"'
    return f"""\
version = 2
disabled_plugins = {json.dumps(unused)}
oom_score = 0
[grpc]
address = "{SOCKET}"
{cri}]
sandbox_image = "{pause.IMAGE}"
# Without the right to lower it, a container with a negative value does not start.
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"
netns_mounts_under_state_dir = true
{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
{cri}.cni]
bin_dir = "{CNI_PROGRAMS}"
conf_dir = {json.dumps(str(layout.run / "cni"))}
"""


def pod_network() -> Mapping[str, Any]:
    """Return the CNI configuration: each pod has its own link to the node, so that Services are routed there."""
    addresses = {
        "type": "host-local",
        "dataDir": "/run/cni-addresses",
        "ranges": [[{"subnet": _PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet_configuration(layout: Layout) -> Mapping[str, Any]:
    """Return the kubelet's configuration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(layout.run / "ca.crt")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "tlsCertFile": str(layout.run / "kubelet.crt"),
        "tlsPrivateKeyFile": str(layout.run / "kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "clusterDNS": [ADDRESS],
        "clusterDomain": DOMAIN,
        "resolvConf": "",
        # Images come from no registry, so they must stay; a full disk of the developer is no reason to evict pods.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
    }


def proxy_configuration() -> Mapping[str, Any]:
    """Return the configuration of kube-proxy."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": "proxy.kubeconfig"},
        "mode": "iptables",
        "clusterCIDR": _PODS,
        "hostnameOverride": NODE,
        "oomScoreAdj": 0,
        "iptables": {"minSyncPeriod": "100ms"},
        # These values are settings of the machine, not of the namespace.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
