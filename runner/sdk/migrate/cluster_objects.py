"""Objects of a namespace in a form that two trial runs can compare. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Leaves: TypeAlias = Mapping[str, Any]
"""Values of an object by path."""
Objects: TypeAlias = Mapping[str, Leaves]
"""Objects by `Kind/name`."""

_OF_THE_CLUSTER = {
    *("Endpoints", "EndpointSlice", "Event", "Lease", "ReplicaSet", "ControllerRevision", "PodMetrics"),
}
"""Kinds that controllers of the cluster write."""
_CONTROLLERS = {"apps", "batch"}
"""API groups whose objects own objects that controllers of the cluster create."""
_DEFAULTS = {"ServiceAccount/default", "ConfigMap/kube-root-ca.crt"}
_METADATA = {"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink", "namespace"}
_ASSIGNED = {"clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort", "volumeName", "nodeName"}
"""Fields of a spec with values that the cluster chooses."""


def normalised(objects: Iterable[Mapping[str, Any]]) -> Objects:
    """Return the objects without what differs from run to run: status, identities, chosen values, data of Secrets."""
    found: dict[str, Leaves] = {}
    for each in objects:
        metadata = each.get("metadata", {})
        name = f"{each.get('kind')}/{metadata.get('name')}"
        groups = {str(owner.get("apiVersion")).partition("/")[0] for owner in metadata.get("ownerReferences", ())}
        if each.get("kind") in _OF_THE_CLUSTER or name in _DEFAULTS or groups & _CONTROLLERS:
            continue
        content = {key: value for key, value in each.items() if key != "status"}
        content["metadata"] = {key: value for key, value in metadata.items() if key not in _METADATA}
        if each.get("kind") == "Secret":
            content["data"] = dict.fromkeys(each.get("data") or {}, "…")
        found[name] = dict(_leaves(content, ""))
    return found


def differences(first: Objects, second: Objects) -> list[str]:
    """Return the paths at which two sets of objects differ, as `Kind/name: path`; without a path, the whole object."""
    found = sorted(first.keys() ^ second.keys())
    for name in sorted(first.keys() & second.keys()):
        paths = first[name].keys() | second[name].keys()
        found += [f"{name}: {path}" for path in sorted(paths) if first[name].get(path) != second[name].get(path)]
    return found


def _leaves(value: Any, path: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            if key not in _ASSIGNED and not (path.endswith("ownerReferences[0]") and key == "uid"):
                yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, value
