"""Which of an operator's rights are about single namespaces, and which about what there is in the whole cluster. Pure.

A Role grants nothing about a kind that belongs to no namespace. So an operator of single namespaces has two parts of
its ClusterRole: one as a Role in each namespace, one that stays a ClusterRole. What is known: Kubernetes' own kinds and
the project's. Every other kind is taken for one of namespaces, unless its ClusterRole is marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]

MARK = "ansible.sdk.operatorframework.io/scope"
"""An annotation of a ClusterRole; `Cluster`: all that it grants is granted in the whole cluster in any case."""
_CLUSTER = "Cluster"
_EVENTS = {("", "events"), ("events.k8s.io", "events")}
_OF_CLUSTER: dict[str, frozenset[str]] = {
    "": frozenset({"componentstatuses", "groups", "namespaces", "nodes", "persistentvolumes", "users"}),
    "networking.k8s.io": frozenset({"ingressclasses", "ipaddresses", "servicecidrs"}),
    "rbac.authorization.k8s.io": frozenset({"clusterrolebindings", "clusterroles"}),
    "resource.k8s.io": frozenset({"deviceclasses", "resourceslices"}),
}
"""Kinds without a namespace, of groups that have others as well."""
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
"""Groups whose kinds have no namespace, but for these."""


def own(documents: Iterable[Json]) -> frozenset[tuple[str, str]]:
    """Group and plural of each kind without a namespace that the documents define; with one of these, Events as well.

    Events about what has no namespace stand in the namespace `default`, whatever is watched.
    """
    specs = (each["spec"] for each in documents if each.get("kind") == "CustomResourceDefinition")
    found = {(spec["group"], spec["names"]["plural"]) for spec in specs if spec.get("scope") == _CLUSTER}
    return frozenset(found | _EVENTS if found else found)


def split(role: Json, of_cluster: frozenset[tuple[str, str]]) -> tuple[list[Json], list[Json]]:
    """The rules of a ClusterRole about namespaces, and those about the cluster; `of_cluster` is what `own` found."""
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
            for is_wide, found in ((False, narrow), (True, wide)):
                if names := [name for name in resources if scoped[group, name] is is_wide]:
                    found.append({**rule, "apiGroups": [group], "resources": names})
    return narrow, wide


def _is_of_cluster(group: str, resource: str, own_kinds: frozenset[tuple[str, str]]) -> bool:
    plural = resource.partition("/")[0]
    if (group, plural) in own_kinds or plural in _OF_CLUSTER.get(group, ()):
        return True
    return group in _ALL_BUT and plural not in _ALL_BUT[group]


def namespaces(text: str) -> Sequence[str]:
    """Take a comma list apart; names that are given twice count once."""
    return tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
