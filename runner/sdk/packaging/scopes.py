"""Split of an operator's RBAC rules into namespaced and cluster-wide rules. Pure.

A Role grants nothing for a cluster-scoped kind. So the ClusterRole of an operator for single namespaces has two parts:
a Role in each namespace, and a remaining ClusterRole. The scopes of Kubernetes' own kinds and of the project's kinds
are known. Every other kind counts as namespaced, unless its ClusterRole has an annotation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]

MARK = "ansible.sdk.operatorframework.io/scope"
"""Annotation of a ClusterRole. With `Cluster`, all its rules are always granted cluster-wide."""
_CLUSTER = "Cluster"
_EVENTS = {("", "events"), ("events.k8s.io", "events")}
_OF_CLUSTER: dict[str, frozenset[str]] = {
    "": frozenset({"componentstatuses", "groups", "namespaces", "nodes", "persistentvolumes", "users"}),
    "networking.k8s.io": frozenset({"ingressclasses", "ipaddresses", "servicecidrs"}),
    "rbac.authorization.k8s.io": frozenset({"clusterrolebindings", "clusterroles"}),
    "resource.k8s.io": frozenset({"deviceclasses", "resourceslices"}),
}
"""Cluster-scoped kinds, in groups that also have namespaced kinds."""
_ALL_BUT: dict[str, frozenset[str]] = {
    "authorization.k8s.io": frozenset({"localsubjectaccessreviews"}),
    "storage.k8s.io": frozenset({"csistoragecapacities"}),
    **dict.fromkeys(
        (
            *("admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"),
            *("authentication.k8s.io", "certificates.k8s.io", "flowcontrol.apiserver.k8s.io"),
            *("node.k8s.io", "scheduling.k8s.io"),
        ),
        frozenset[str](),
    ),
}
"""Groups whose kinds are cluster-scoped, except for these kinds."""


def own(documents: Iterable[Json]) -> frozenset[tuple[str, str]]:
    """Return group and plural of each cluster-scoped kind that the documents define, and of Events if there is one.

    Events about cluster-scoped objects are in the namespace `default`, regardless of the watched namespaces.
    """
    specs = (document["spec"] for document in documents if document.get("kind") == "CustomResourceDefinition")
    kinds = {(spec["group"], spec["names"]["plural"]) for spec in specs if spec.get("scope") == _CLUSTER}
    return frozenset(kinds | _EVENTS if kinds else kinds)


def split(role: Json, of_cluster: frozenset[tuple[str, str]]) -> tuple[list[Json], list[Json]]:
    """Return the namespaced rules of a ClusterRole, and the cluster-wide ones. `of_cluster` is the result of `own`."""
    rules: list[Json] = list(role.get("rules") or ())
    if (role["metadata"].get("annotations") or {}).get(MARK) == _CLUSTER:
        return [], rules
    narrow: list[Json] = []
    wide: list[Json] = []
    for rule in rules:
        if "nonResourceURLs" in rule:
            wide.append(rule)
            continue
        groups, resources = rule.get("apiGroups") or [""], rule.get("resources") or []
        scoped = {(group, name): _is_of_cluster(group, name, of_cluster) for group in groups for name in resources}
        if len(set(scoped.values())) <= 1:
            (wide if any(scoped.values()) else narrow).append(rule)
            continue
        for group in groups:
            for is_wide, part in ((False, narrow), (True, wide)):
                if names := [name for name in resources if scoped[group, name] is is_wide]:
                    part.append({**rule, "apiGroups": [group], "resources": names})
    return narrow, wide


def _is_of_cluster(group: str, resource: str, own_kinds: frozenset[tuple[str, str]]) -> bool:
    plural = resource.partition("/")[0]
    if (group, plural) in own_kinds or plural in _OF_CLUSTER.get(group, ()):
        return True
    return group in _ALL_BUT and plural not in _ALL_BUT[group]


def namespaces(text: str) -> Sequence[str]:
    """Return the names in a comma-separated list, without duplicates."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
