"""Rights that the operator requires, as values. Each part of the operator declares its own.

A right is a verb on a resource in a namespace, or on a non-resource path. Source:
https://kubernetes.io/docs/reference/access-authn-authz/rbac/.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.core.kube.forbidden import MissingRight

if TYPE_CHECKING:
    from runner.base.config.settings import Settings
    from runner.base.credentials.auth import OwnNamespaces
    from runner.core.kube.discovery import ApiResource
    from runner.core.watches.watch import Watch


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
