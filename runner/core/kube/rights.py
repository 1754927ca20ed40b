"""Rights as values: those that the operator requires, those that a 403 of the API server names, and rules with them.

A right is a verb on a resource in a namespace, or on a non-resource path. Each part of the operator declares its own. A
rule helps only if RBAC denied the request. Admission also responds with 403 (quota, Pod Security, a webhook, privilege
escalation), in other words; such a message is not parsed. Source:
https://kubernetes.io/docs/reference/access-authn-authz/rbac/, and the API server's message for a request that no
authorizer allowed, which aggregated API servers share.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.base.config.settings import Settings
    from runner.base.credentials.auth import OwnNamespaces
    from runner.core.kube.client import Client
    from runner.core.kube.discovery import ApiResource
    from runner.core.watches.watch import Watch

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_MESSAGE = re.compile(
    # What it is about comes first, then the reason; a webhook's words are behind `admission webhook "..." denied`.
    rf"(?:forbidden|[^\s\"]+(?: {_QUOTED})? is forbidden): User {_QUOTED} cannot (\S+) (?:path {_QUOTED}|"
    rf"resource {_QUOTED} in API group {_QUOTED} (?:in the namespace {_QUOTED}|at the cluster scope))"
)
_PLAIN = re.compile(r"[A-Za-z/*][A-Za-z0-9./*_-]*")
"""Groups, resources and verbs that YAML reads as text without quotes."""
_BY_NAME = frozenset({"impersonate"})
"""Verbs that must not be granted for all objects of a kind at once."""

ADVICE = "; add to the operator's "
"""Beginning of the advice in an error, before the kind of role and the rule."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A verb on a resource, or on a path."""

    account: str
    """Service account, `namespace/name`; empty: the operator's own. Of a missing right: the user name."""
    namespace: str
    """Empty: cluster scope."""
    group: str
    resource: str
    """With its subresource, `pods/log`; empty for a right on `path`."""
    verb: str
    name: str = ""
    """Name of one object; empty: all."""
    path: str = ""

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


@dataclass(frozen=True, slots=True)
class Places:
    """Namespaces in which an operator works."""

    watched: Sequence[str]
    """Empty: all."""
    own: OwnNamespaces

    def of(self, resource: ApiResource) -> list[str]:
        """Return the namespaces of a watched kind's objects; one empty name for cluster scope."""
        return ([name for name in self.watched if name] if resource.namespaced else []) or [""]


def _none(*_: object) -> set[Right]:
    return set()


@dataclass(frozen=True, slots=True)
class RequiredRights:
    """Rights that a part of the operator requires."""

    of_watch: Callable[[Watch, ApiResource, Places], set[Right]] = _none
    """Returns those for a watch and its resource."""
    of_operator: Callable[[Settings, Sequence[Watch], OwnNamespaces], set[Right]] = _none
    """Returns those that depend on no resource of a watch."""


NO_RIGHTS = RequiredRights()


def granting(namespaces: Sequence[str], group: str, resource: str, *verbs: str, name: str = "") -> set[Right]:
    """Return rights of the operator for each of these namespaces and verbs."""
    return {Right("", namespace, group, resource, verb, name) for namespace in namespaces for verb in verbs}


def _of_watch(watch: Watch, resource: ApiResource, places: Places) -> set[Right]:
    """Return the rights to watch objects, to add finalizers, and to write the status.

    The service account of the watch is `namespace/name`.
    """
    group, plural, spaces = resource.gvk.group, resource.plural, places.of(resource)
    has_status = "status" in resource.subresources
    needed = granting(spaces, group, plural, "get", "list", "watch")
    if watch.finalizer or (watch.manage_status and not has_status):
        needed |= granting(spaces, group, plural, "patch")
    if watch.manage_status and has_status:
        needed |= granting(spaces, group, f"{plural}/status", "patch")
    if watch.service_account:
        space, _, name = watch.service_account.partition("/")
        needed |= granting([space], "", "serviceaccounts", "get", "impersonate", name=name)
    return needed


OF_WATCHES = RequiredRights(_of_watch)


def _of_metrics(settings: Settings, *_: object) -> set[Right]:
    """Return the rights to authorize readers of metrics."""
    if not settings.metrics_require_rbac:
        return set()
    reviews = {"authentication.k8s.io": "tokenreviews", "authorization.k8s.io": "subjectaccessreviews"}
    return {right for group, plural in reviews.items() for right in granting([""], group, plural, "create")}


OF_METRICS = RequiredRights(of_operator=_of_metrics)


def read(message: str) -> Right | None:
    """Parse the message of a 403; None if RBAC did not deny the request."""
    matched = _MESSAGE.match(message)
    if matched is None:
        return None
    name, user, verb, path, resource, group, namespace = (_text(part) for part in matched.groups())
    if not resource:
        return Right(user, "", "", "", verb, path=path)
    return Right(user, namespace, group, resource, verb, name if verb in _BY_NAME else "")


def rule(missing: Right, verbs: Iterable[str]) -> str:
    """Return the rule that allows these verbs, as YAML in one line."""
    listed = f"verbs: {_list(verbs)}"
    if not missing.resource:
        return f"{{nonResourceURLs: {_list([missing.path])}, {listed}}}"
    names = f"resourceNames: [{json.dumps(missing.name)}], " if missing.name else ""
    return f"{{apiGroups: {_list([missing.group])}, resources: {_list([missing.resource])}, {names}{listed}}}"


def where(missing: Right) -> str:
    """Return the kind of role to add the rule to."""
    return "Role" if missing.namespace else "ClusterRole"


def sentences(rights: Iterable[Right], absent_user: str = "") -> tuple[str, ...]:
    """Return a sentence per resource: the denied verbs, the user, and the rule to add. The order is deterministic.

    `absent_user` is the name of a service account that does not exist.
    """
    verbs: dict[Right, list[str]] = {}
    for right in sorted(set(rights)):
        verbs.setdefault(replace(right, verb=""), []).append(right.verb)
    targets = sorted(verbs, key=lambda right: (right.account, right.group, right.resource, right))
    return tuple(
        f"forbidden: {', '.join(verbs[target])} {_subject(target)} (as {target.account}); "
        + ("this service account does not exist: create it, and " if target.account == absent_user else "")
        + f"add to its {where(target)}: {rule(target, verbs[target])}"
        for target in targets
    )


def _subject(right: Right) -> str:
    if not right.resource:
        return right.path
    resource, slash, subresource = right.resource.partition("/")
    qualified = resource + (f".{right.group}" if right.group else "") + slash + subresource
    name = f" {right.name}" if right.name else ""
    return f"{qualified}{name} {f'in namespace {right.namespace}' if right.namespace else 'at the cluster scope'}"


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(text if _PLAIN.fullmatch(text) else json.dumps(text) for text in texts)}]"


def _text(quoted: str | None) -> str:
    """Undo the quoting of Go's `%q` and the HTML escapes of the API server."""
    return html.unescape(re.sub(r"\\(.)", r"\1", quoted or ""))


async def is_allowed(client: Client, right: Right) -> bool:
    """Return whether the operator has a right, by a review that every account may create. Raises ApiError."""
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": right.attributes()}
    answer = await client.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
    return bool((answer.get("status") or {}).get("allowed"))


async def own_user(client: Client, impersonated: str = "") -> str:
    """Return the operator's user name, or that of an impersonated user, as the API server has it. Raises ApiError."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.request(
        "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body, user=impersonated
    )
    return str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "")
