"""Manifests of an operator for a few namespaces, from those of an operator for all namespaces. Pure.

Each ClusterRole becomes a Role in each of these namespaces, and a ClusterRole with the rules that no Role can grant.
The environment of the operator contains the namespaces. All other documents remain unchanged.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any

from runner.sdk.packaging import deployments, scopes
from runner.values.errors import ConfigError

Json = dict[str, Any]

WATCHED = "WATCH_NAMESPACE"
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def make(documents: Sequence[Json], namespaces: Sequence[str]) -> list[Json]:
    """Return the documents for these namespaces.

    Raises:
        ConfigError: a name is invalid, or the operator's Deployment is missing.
    """
    for name in namespaces:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"--namespaces: invalid namespace {name!r}; use a list such as team-a,team-b")
    if not namespaces:
        raise ConfigError("--namespaces: the list is empty; use a list such as team-a,team-b")
    manager = deployments.operators(documents)
    account = str(deployments.pod(manager).get("serviceAccountName") or "default")
    bindings = [
        document
        for document in documents
        if document.get("kind") == "ClusterRoleBinding" and _is_for(document, account)
    ]
    bound = {binding["roleRef"]["name"] for binding in bindings}
    made: list[Json] = []
    for document in documents:
        if document is manager:
            made.append(_watching(document, namespaces))
        elif document in bindings:
            made += _granted(document, documents, namespaces)
        elif document.get("kind") != "ClusterRole" or document["metadata"]["name"] not in bound:
            made.append(document)
    return made


def _is_for(binding: Json, account: str) -> bool:
    subjects = binding.get("subjects") or ()
    return any(subject.get("kind") == "ServiceAccount" and subject.get("name") == account for subject in subjects)


def _granted(binding: Json, documents: Sequence[Json], namespaces: Sequence[str]) -> Iterator[Json]:
    """Yield the roles and bindings that grant a binding's rules in these namespaces only, as far as possible."""
    name = binding["roleRef"]["name"]
    roles = (role for role in documents if role.get("kind") == "ClusterRole" and role["metadata"]["name"] == name)
    role = next(roles, None)
    narrow, wide = scopes.split(role, scopes.own(documents)) if role else ([], [])
    if role and wide:
        yield {**role, "rules": wide}
        yield binding
    for namespace in namespaces:
        if role and narrow:
            yield _in(namespace, {**role, "kind": "Role", "rules": narrow})
        if narrow or not role:
            # A binding of the cluster's own ClusterRole, such as `view`, still refers to it.
            reference = {**binding["roleRef"], "kind": "Role" if role else "ClusterRole"}
            yield _in(namespace, {**binding, "kind": "RoleBinding", "roleRef": reference})


def _in(namespace: str, document: Json) -> Json:
    return {**document, "metadata": {**document["metadata"], "namespace": namespace}}


def _watching(manager: Json, namespaces: Sequence[str]) -> Json:
    made = copy.deepcopy(manager)
    container = deployments.container(made)
    others = [variable for variable in container.get("env") or () if variable["name"] != WATCHED]
    container["env"] = [*others, {"name": WATCHED, "value": ",".join(namespaces)}]
    return made
