"""Configuration of the real node: containerd, kubelet, kube-proxy, network, volumes, and the pods that it runs. Pure.

All of them run in the cluster's own namespaces (`namespaces.py`), so that their paths and ports are the default ones.
See the references of the KubeletConfiguration and the KubeProxyConfiguration for the fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runner.sdk.devcluster import kwok, pause
from runner.sdk.devcluster.layout import Layout
from runner.sdk.devcluster.nodes import Nodes

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


COUNT = 50
_CLASS = "standard"
_SIZE = "1Ti"


def volume_names() -> Iterator[str]:
    """Return the names of the volumes, and of their folders."""
    return (f"volume-{number:02}" for number in range(COUNT))


def volume_objects() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the objects with their paths in the API.

    A claim is bound to one of `COUNT` volumes when a pod on the real node uses it. The volumes are of the type `local`,
    so that `fsGroup` of a pod has an effect. A volume is used once: its content remains if the claim is deleted.
    """
    yield (
        f"/apis/storage.k8s.io/v1/storageclasses/{_CLASS}",
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": _CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    for name in volume_names():
        yield f"/api/v1/persistentvolumes/{name}", _volume(name)


def _volume(name: str) -> Mapping[str, Any]:
    is_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": _CLASS,
            "capacity": {"storage": _SIZE},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"{VOLUMES}/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [is_node]}]}},
        },
    }


_GROUP = "admissionregistration.k8s.io"
API_VERSION = f"{_GROUP}/v1beta1"
APISERVER_FLAGS = (f"--runtime-config={API_VERSION}=true", "--feature-gates=MutatingAdmissionPolicy=true")
_NAME = "node-of-pods"
POLICY_PATH = f"/apis/{API_VERSION}/mutatingadmissionpolicies/{_NAME}"
BINDING_PATH = f"/apis/{API_VERSION}/mutatingadmissionpolicybindings/{_NAME}"
_NAMESPACE, _IMAGES = "kube-system", "node-images"
IMAGES_PATH = f"/api/v1/namespaces/{_NAMESPACE}/configmaps/{_IMAGES}"

_LOADED = "params.data.images.split('\\n')"
_CONTAINERS = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
_TARGET = f"({_CONTAINERS}.all(c, c.image in variables.loaded) ? '{TYPE}' : '{kwok.TYPE}')"


def loaded_images(names: Iterable[str]) -> Mapping[str, Any]:
    """Return the ConfigMap with all ways to write the names of images."""
    spellings = sorted({spelling for name in names for spelling in image_spellings(name)})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _IMAGES, "namespace": _NAMESPACE},
        "data": {"images": "\n".join(spellings)},
    }


def image_spellings(name: str) -> list[str]:
    """Return all ways to write the full name of an image: the registry, `library` and the tag `latest` are defaults."""
    bases = [name]
    if name.startswith("docker.io/"):
        bases.append(name.removeprefix("docker.io/"))
        if name.startswith("docker.io/library/"):
            bases.append(name.removeprefix("docker.io/library/"))
    return [*bases, *(base.removesuffix(":latest") for base in bases if base.endswith(":latest"))]


def placement_policy(nodes: Nodes) -> Mapping[str, Any]:
    """Return the policy.

    There is no registry, so the real node can only run the images that were loaded. The policy adds a node selector to
    each pod without one for `type`: `real` if the node has all its images, otherwise `kwok`. It leaves pods of
    DaemonSets and pods with a node name unchanged. Loaded images are never pulled, so the policy replaces the pull
    policy `Always`, which is the default for the tag `latest`, by `IfNotPresent`.

    See "Mutating Admission Policy" in the Kubernetes documentation.
    """
    mutations = [_pull("containers"), _pull("initContainers")]
    if nodes is Nodes.BOTH:
        mutations.insert(0, _select())
    return {
        "apiVersion": API_VERSION,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": _NAME},
        "spec": {
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "Never",
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "variables": [{"name": "loaded", "expression": _LOADED}],
            "mutations": mutations,
        },
    }


def _select() -> Mapping[str, Any]:
    chosen = (
        "object.spec.?nodeName.orValue('') != '' || 'type' in object.spec.?nodeSelector.orValue({})"
        " || object.metadata.?ownerReferences.orValue([]).exists(o, o.kind == 'DaemonSet')"
    )
    with_others = f"[JSONPatch{{op: 'add', path: '/spec/nodeSelector/type', value: {_TARGET}}}]"
    alone = f"[JSONPatch{{op: 'add', path: '/spec/nodeSelector', value: {{'type': {_TARGET}}}}}]"
    selected = f"has(object.spec.nodeSelector) ? {with_others} : {alone}"
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": f"({chosen}) ? [] : ({selected})"}}


def _pull(field: str) -> Mapping[str, Any]:
    always = f"object.spec.{field}.filter(c, c.imagePullPolicy == 'Always' && c.image in variables.loaded)"
    changed = f"{always}.map(c, Object.spec.{field}{{name: c.name, imagePullPolicy: 'IfNotPresent'}})"
    expression = f"has(object.spec.{field}) ? Object{{spec: Object.spec{{{field}: {changed}}}}} : Object{{}}"
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def placement_binding() -> Mapping[str, Any]:
    """Return the binding of the policy to the ConfigMap."""
    return {
        "apiVersion": API_VERSION,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": _NAME},
        "spec": {
            "policyName": _NAME,
            "paramRef": {"name": _IMAGES, "namespace": _NAMESPACE, "parameterNotFoundAction": "Deny"},
        },
    }
