"""Rights as values: those that watches and calls require, and their Roles. Pure.

A right is a verb on a resource in a namespace, or on a non-resource path. Rights that every authenticated user has by
Kubernetes' default roles (discovery, self-reviews) are omitted. Source:
https://kubernetes.io/docs/reference/access-authn-authz/rbac/.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from runner.kube.discovery import ApiResource
from runner.kube.forbidden import MissingRight
from runner.proxy.request import RequestInfo
from runner.watches.watch import Watch

NAME = "ansible-operator-recorded"
RECORDED_FOR = "ansible.sdk.operatorframework.io/recorded-for"
"""Annotation of each recorded role: the account whose calls it allows."""
OPERATOR = "the operator's own service account"
_API = "rbac.authorization.k8s.io/v1"
_GRANTED_TO_ALL_PATHS = ("/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz")
_GRANTED_TO_ALL = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"})
_SESSIONS = frozenset({"exec", "attach", "portforward"})
_APPLY = "application/apply-patch"
_LEASES = ("coordination.k8s.io", "leases")
_CONFIG_MAPS = ("", "configmaps")


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A verb on a resource, or on a path."""

    account: str
    """Service account, `namespace/name`; empty: the operator's own."""
    namespace: str
    """Empty: cluster scope."""
    group: str
    resource: str
    """With its subresource, `pods/log`; empty for a right on `path`."""
    verb: str
    name: str = ""
    """Name of one object; empty: all."""
    path: str = ""

    def missing(self, user: str) -> MissingRight:
        """Return the right as one that a user lacks."""
        return MissingRight(user, self.verb, self.group, self.resource, self.namespace, self.name, self.path)

    def attributes(self) -> dict[str, Any]:
        """Return the spec of a SelfSubjectAccessReview."""
        if not self.resource:
            return {"nonResourceAttributes": {"path": self.path, "verb": self.verb}}
        resource, _, subresource = self.resource.partition("/")
        fields = {
            "namespace": self.namespace,
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "name": self.name,
        }
        return {"resourceAttributes": {name: value for name, value in fields.items() if value}}


def of_watch(watch: Watch, resource: ApiResource, namespaces: Sequence[str]) -> set[Right]:
    """Return the operator's rights for a watch. Its service account is `namespace/name`."""
    group, plural = resource.gvk.group, resource.plural
    has_status = "status" in resource.subresources
    verbs = {"get", "list", "watch"}
    if watch.finalizer or watch.skip_unchanged or (watch.manage_status and not has_status):
        verbs.add("patch")
    within = [name for name in namespaces if name] if resource.namespaced else []
    found = {Right("", space, group, plural, verb) for space in within or [""] for verb in verbs}
    if watch.manage_status and has_status:
        found |= {Right("", space, group, f"{plural}/status", "patch") for space in within or [""]}
    if watch.inventory is not None and watch.inventory.credentials is not None:
        found |= {Right("", space, "", "secrets", "get") for space in within or [""]}
    if watch.mode != "apply":
        plans = ("create", "delete", "get", "patch")
        found |= {Right("", space, "", "configmaps", verb) for space in within or [""] for verb in plans}
    if watch.service_account:
        space, _, name = watch.service_account.partition("/")
        found |= {Right("", space, "", "serviceaccounts", verb, name) for verb in ("get", "impersonate")}
    return found


def of_lease(namespace: str, name: str) -> set[Right]:
    """Return the rights for leader election with the Lease `name`."""
    named = {Right("", namespace, "coordination.k8s.io", "leases", verb, name) for verb in ("get", "update")}
    # The authorizer does not know the name of an object that is created.
    return named | {Right("", namespace, "coordination.k8s.io", "leases", "create")}


def of_rollouts(namespace: str) -> set[Right]:
    """Return the rights to store the state of rollouts."""
    return {Right("", namespace, "", "configmaps", verb) for verb in ("create", "get", "update")}


def of_records(namespace: str) -> set[Right]:
    """Return the rights to record the objects that runs create, for watches with `prune`."""
    verbs = ("create", "get", "list", "update", "delete")
    return {Right("", namespace, "", "configmaps", verb) for verb in verbs}


def of_pods(resource: ApiResource, namespaces: Sequence[str], own: str, *, finalizes: bool) -> set[Right]:
    """Return the rights for runs in pods of a watched kind. `own`: the operator's namespace.

    `finalizes`: the watch has a finalizer, which runs there if the namespace of its object is being deleted.
    """
    spaces = [*namespaces] or [""]
    homes = {*(spaces if resource.namespaced else [own]), *([own] if namespaces and finalizes and own else [])}
    found = {
        Right("", space, group, plural, verb)
        for space in homes
        for group, plural in (("", "secrets"), ("batch", "jobs"))
        for verb in ("create", "delete", "list")
    }
    found |= {Right("", space, "", "events", "list") for space in homes}
    watched = [*spaces, own] if namespaces and own else spaces
    return found | {Right("", space, "", "pods", verb) for space in watched for verb in ("list", "watch")}


def of_warm_pods(namespace: str) -> set[Right]:
    """Return the rights for warm pods in the operator's namespace."""
    objects = (("", "secrets", ("create",)), ("batch", "jobs", ("create", "delete")), ("", "pods", ("get", "patch")))
    return {Right("", namespace, group, plural, verb) for group, plural, verbs in objects for verb in verbs}


def of_pods_authority(namespace: str, name: str) -> set[Right]:
    """Return the rights for the Secret with the authority of the certificates that agents trust."""
    return {Right("", namespace, "", "secrets", "create"), Right("", namespace, "", "secrets", "get", name)}


def of_reviews() -> set[Right]:
    """Return the rights to authorize readers of metrics."""
    return {
        Right("", "", "authentication.k8s.io", "tokenreviews", "create"),
        Right("", "", "authorization.k8s.io", "subjectaccessreviews", "create"),
    }


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
    if (makes and status == HTTPStatus.CREATED) or (info.verb == "get" and info.subresource in _SESSIONS):
        # A write that created its object, and a session by websocket, require the right to create as well.
        return {right, replace(right, verb="create")}
    return {right}


def spread(rights: Iterable[Right]) -> set[Right]:
    """Extend the rights of runs in single namespaces to all, for an operator that watches all namespaces."""
    return {right if right.verb == "impersonate" else replace(right, namespace="") for right in rights}


def spread_own(rights: Iterable[Right], own_namespace: str) -> set[Right]:
    """Extend the rights of the operator's own calls, except those on objects that only the operator itself uses.

    These are its Leases, and the ConfigMap in its own namespace.
    """
    found = set(rights)
    stay = {
        each
        for each in found
        if (each.group, each.resource) == _LEASES
        or ((each.group, each.resource) == _CONFIG_MAPS and own_namespace and each.namespace == own_namespace)
    }
    return stay | spread(found - stay)


def roles(rights: Iterable[Right]) -> list[dict[str, Any]]:
    """Return Roles and ClusterRoles with these rights, in a stable order."""
    by_role: dict[tuple[str, str], list[Right]] = {}
    for right in sorted(set(rights)):
        by_role.setdefault((right.account, right.namespace), []).append(right)
    return [_role(account, namespace, found) for (account, namespace), found in sorted(by_role.items())]


def _role(account: str, namespace: str, rights: Sequence[Right]) -> dict[str, Any]:
    meta = {"name": f"{NAME}-{account.replace('/', '-')}" if account else NAME}
    if namespace:
        meta["namespace"] = namespace
    return {
        "apiVersion": _API,
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": {**meta, "annotations": {RECORDED_FOR: account or OPERATOR}},
        "rules": rules(rights),
    }


def rules(rights: Iterable[Right]) -> list[dict[str, Any]]:
    """Return rules with these rights, whatever their accounts and namespaces, in a stable order."""
    verbs: dict[tuple[str, str, str, str], set[str]] = {}
    for right in rights:
        verbs.setdefault((right.group, right.name, right.resource, right.path), set()).add(right.verb)
    alike: dict[tuple[str, str, bool, tuple[str, ...]], list[str]] = {}
    for (group, name, resource, path), found in sorted(verbs.items()):
        alike.setdefault((group, name, bool(resource), tuple(sorted(found))), []).append(resource or path)
    return [
        _rule(*head, sorted(about)) for head, about in sorted(alike.items(), key=lambda each: (each[0][:3], each[1]))
    ]


def _rule(group: str, name: str, is_resource: bool, verbs: Sequence[str], about: list[str]) -> dict[str, Any]:  # noqa: FBT001 - a part of the key
    if not is_resource:
        return {"nonResourceURLs": about, "verbs": list(verbs)}
    named = {"resourceNames": [name]} if name else {}
    return {"apiGroups": [group], "resources": about, **named, "verbs": list(verbs)}


def read(documents: Collection[Any]) -> set[Right]:
    """Read recorded roles.

    Raises:
        ValueError: a document is not a recorded role.
    """
    found: set[Right] = set()
    for document in documents:
        meta = document.get("metadata") if isinstance(document, Mapping) else None
        owner = (meta or {}).get("annotations", {}).get(RECORDED_FOR)
        if owner is None:
            raise ValueError(f"it contains a document that is not a role with the annotation {RECORDED_FOR}")
        account = "" if owner == OPERATOR else str(owner)
        for rule in document.get("rules") or []:
            found |= _read_rule(rule, account, (meta or {}).get("namespace", ""))
    return found


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
