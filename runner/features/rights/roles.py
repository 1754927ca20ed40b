"""Rights that calls require, and Roles with rights. Pure.

Rights that every authenticated user has by Kubernetes' default roles (discovery, self-reviews) are omitted. Source:
https://kubernetes.io/docs/reference/access-authn-authz/rbac/.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from runner.core.kube.rights import Right
from runner.core.proxy.request import RequestInfo

NAME = "ansible-operator-recorded"
RECORDED_FOR = "ansible.sdk.operatorframework.io/recorded-for"
"""Annotation of each recorded role: the account whose calls it allows."""
INFERRED = "ansible.sdk.operatorframework.io/inferred"
"""Annotation of each role with verbs that no call used, for kinds that runs write."""
OPERATOR = "the operator's own service account"
_API = "rbac.authorization.k8s.io/v1"
_GRANTED_TO_ALL_PATHS = ("/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz")
_GRANTED_TO_ALL = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"})
_CONNECTS = frozenset({"exec", "attach", "portforward"})
_APPLY = "application/apply-patch"
_WRITES = frozenset({"create", "patch", "update", "delete"})
_WRITTEN = ("create", "delete", "get", "list", "patch", "update", "watch")
"""Verbs for a kind that a run writes: the next run can update or delete what this one created."""
_WITHOUT_OBJECTS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups whose objects are only created, as requests."""
_LEASES = ("coordination.k8s.io", "leases")
_CONFIG_MAPS = ("", "configmaps")


def of_call(info: RequestInfo, status: int, content_type: str, account: str) -> set[Right]:
    """Return the rights that a call required, even if it was refused."""
    if status == HTTPStatus.UNAUTHORIZED:
        return set()
    if not info.is_resource:
        granted_to_all = any(
            info.path.rstrip("/") == root or info.path.startswith(f"{root}/") for root in _GRANTED_TO_ALL_PATHS
        )
        return set() if granted_to_all else {Right(account, "", "", "", info.verb, path=info.path)}
    if info.resource in _GRANTED_TO_ALL:
        return set()
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    right = Right(account, info.namespace, info.group, resource, info.verb)
    makes = info.verb == "update" or (info.verb == "patch" and content_type.startswith(_APPLY))
    if (makes and status == HTTPStatus.CREATED) or (info.verb == "get" and info.subresource in _CONNECTS):
        # A write that created its object, and an exec by websocket, require the right to create as well.
        return {right, replace(right, verb="create")}
    return {right}


def inferred(rights: Iterable[Right]) -> set[Right]:
    """Return the rights that later runs will require for the kinds that these calls of a run wrote."""
    return {
        replace(right, verb=verb)
        for right in rights
        if right.verb in _WRITES and "/" not in right.resource and right.group not in _WITHOUT_OBJECTS
        for verb in _WRITTEN
    }


def spread(rights: Iterable[Right]) -> set[Right]:
    """Extend the rights of runs in single namespaces to all, for an operator that watches all namespaces."""
    return {right if right.verb == "impersonate" else replace(right, namespace="") for right in rights}


def spread_own(rights: Iterable[Right], own_namespace: str) -> set[Right]:
    """Extend the rights of the operator's own calls, except those on objects that only the operator itself uses.

    These are its Leases, and the ConfigMap in its own namespace.
    """
    required = set(rights)
    stay = {
        right
        for right in required
        if (right.group, right.resource) == _LEASES
        or ((right.group, right.resource) == _CONFIG_MAPS and own_namespace and right.namespace == own_namespace)
    }
    return stay | spread(required - stay)


def documents(rights: Iterable[Right], more: Iterable[Right] = ()) -> list[dict[str, Any]]:
    """Return Roles and ClusterRoles with these rights, in a stable order. `more` are those that are only inferred."""
    by_role: dict[tuple[str, str, bool], list[Right]] = {}
    used = set(rights)
    for right in sorted(used | set(more)):
        by_role.setdefault((right.account, right.namespace, right not in used), []).append(right)
    return [_role(*head, of_role) for head, of_role in sorted(by_role.items())]


def _role(account: str, namespace: str, is_inferred: bool, rights: Sequence[Right]) -> dict[str, Any]:  # noqa: FBT001 - a part of the key
    meta = {"name": "-".join((NAME, *filter(None, (account.replace("/", "-"), "inferred" if is_inferred else ""))))}
    if namespace:
        meta["namespace"] = namespace
    notes = {RECORDED_FOR: account or OPERATOR, **({INFERRED: "true"} if is_inferred else {})}
    return {
        "apiVersion": _API,
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": {**meta, "annotations": notes},
        "rules": rules(rights),
    }


def rules(rights: Iterable[Right]) -> list[dict[str, Any]]:
    """Return rules with these rights, whatever their accounts and namespaces, in a stable order."""
    verbs: dict[tuple[str, str, str, str], set[str]] = {}
    for right in rights:
        verbs.setdefault((right.group, right.name, right.resource, right.path), set()).add(right.verb)
    alike: dict[tuple[str, str, bool, tuple[str, ...]], list[str]] = {}
    for (group, name, resource, path), granted in sorted(verbs.items()):
        alike.setdefault((group, name, bool(resource), tuple(sorted(granted))), []).append(resource or path)
    return [
        _rule(*head, sorted(about)) for head, about in sorted(alike.items(), key=lambda item: (item[0][:3], item[1]))
    ]


def _rule(group: str, name: str, is_resource: bool, verbs: Sequence[str], about: list[str]) -> dict[str, Any]:  # noqa: FBT001 - a part of the key
    if not is_resource:
        return {"nonResourceURLs": about, "verbs": list(verbs)}
    named = {"resourceNames": [name]} if name else {}
    return {"apiGroups": [group], "resources": about, **named, "verbs": list(verbs)}


def read(documents: Collection[Any]) -> tuple[set[Right], set[Right]]:
    """Return the rights of recorded roles: those that calls used, and those that are only inferred.

    Raises:
        ValueError: a document is not a recorded role.
    """
    used: set[Right] = set()
    more: set[Right] = set()
    for document in documents:
        meta = document.get("metadata") if isinstance(document, Mapping) else None
        notes = (meta or {}).get("annotations", {})
        owner = notes.get(RECORDED_FOR)
        if owner is None:
            raise ValueError(f"it contains a document that is not a role with the annotation {RECORDED_FOR}")
        account = "" if owner == OPERATOR else str(owner)
        for rule in document.get("rules") or []:
            (more if INFERRED in notes else used).update(_read_rule(rule, account, (meta or {}).get("namespace", "")))
    return used, more


def _read_rule(rule: Mapping[str, Any], account: str, namespace: str) -> set[Right]:
    if "nonResourceURLs" in rule:
        return {
            Right(account, "", "", "", verb, path=path) for path in rule["nonResourceURLs"] for verb in rule["verbs"]
        }
    return {
        Right(account, namespace, group, resource, verb, name)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }
