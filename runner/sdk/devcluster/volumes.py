"""Persistent volumes of a real node: a storage class, which is the default, and folders of the cluster. Pure.

A claim is bound to one of `COUNT` volumes when a pod on the real node uses it. The volumes are of the type `local`, so
that `fsGroup` of a pod has an effect. A volume is used once: its content remains if the claim is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runner.sdk.devcluster import node

COUNT = 50
_CLASS = "standard"
_SIZE = "1Ti"


def names() -> Iterator[str]:
    """Return the names of the volumes, and of their folders."""
    return (f"volume-{number:02}" for number in range(COUNT))


def objects() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the objects with their paths in the API."""
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
    for name in names():
        yield f"/api/v1/persistentvolumes/{name}", _volume(name)


def _volume(name: str) -> Mapping[str, Any]:
    is_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.NODE]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": _CLASS,
            "capacity": {"storage": _SIZE},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"{node.VOLUMES}/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [is_node]}]}},
        },
    }
