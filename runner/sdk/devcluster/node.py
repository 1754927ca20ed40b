"""Configuration of the real node: containerd, kubelet, kube-proxy, network, volumes, and the pods that it runs.

All of them run in the cluster's own namespaces (`namespaces.py`), so that their paths and ports are the default ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runner.sdk.devcluster import kwok, pause, templates
from runner.sdk.devcluster.layout import Layout
from runner.sdk.devcluster.nodes import Nodes

NODE, TYPE = "node-real", "real"
ADDRESS = "10.95.0.1"
"""Address of the node and of the API server in the cluster."""
DOMAIN = "cluster.local"
SOCKET = "/run/containerd/containerd.sock"
CNI_PROGRAMS = "/usr/lib/cni"
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
VOLUMES = tuple(f"volume-{number:02}" for number in range(50))
"""Names of the volumes, and of their folders."""
_VOLUMES = "/var/lib/volumes"
_PODS = "10.244.0.0/16"
POLICIES = "admissionregistration.k8s.io/v1beta1"
_NAMESPACE, _IMAGES = "kube-system", "node-images"
IMAGES_PATH = f"/api/v1/namespaces/{_NAMESPACE}/configmaps/{_IMAGES}"


def binds(layout: Layout) -> tuple[str, ...]:
    """Return the folders that are mounted in the mount namespace."""
    return (
        f"{layout.run}/containerd=/var/lib/containerd",
        f"{layout.run}/kubelet=/var/lib/kubelet",
        f"{layout.run}/volumes={_VOLUMES}",
        f"{layout.logs}/pods=/var/log/pods",
    )


def configuration(layout: Layout) -> Mapping[str, str]:
    """Return the configuration files in `Layout.run`, by their names.

    Each pod has its own link to the node, so that Services are routed there.
    """
    run = layout.run
    return {
        "containerd.toml": templates.text(
            "containerd.toml", run=run, socket=SOCKET, pause=pause.IMAGE, cni=CNI_PROGRAMS
        ),
        "cni/pods.conflist": templates.text("pods.conflist", pods=_PODS),
        "kubelet.yaml": templates.text(
            "kubelet.yaml", run=run, socket=SOCKET, address=ADDRESS, domain=DOMAIN, cgroup=layout.cgroup
        ),
        "proxy.yaml": templates.text("proxy.yaml", pods=_PODS, node=NODE),
    }


def objects(nodes: Nodes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects with their paths in the API: volumes, and the policy that selects the node of each pod."""
    for name in VOLUMES:
        yield from templates.parsed("volume.yaml", name=name, folder=_VOLUMES, node=NODE).items()
    for path, obj in templates.parsed("node-objects.yaml", policies=POLICIES, real=TYPE, fake=kwok.TYPE).items():
        if obj["kind"] == "MutatingAdmissionPolicy" and nodes is not Nodes.BOTH:
            del obj["spec"]["mutations"][0]  # the choice between two nodes
        yield path, obj


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
