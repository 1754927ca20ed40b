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
    bindings = [each for each in documents if each.get("kind") == "ClusterRoleBinding" and _is_for(each, account)]
    bound = {each["roleRef"]["name"] for each in bindings}
    made: list[Json] = []
    for each in documents:
        if each is manager:
            made.append(_watching(each, namespaces))
        elif each in bindings:
            made += _granted(each, documents, namespaces)
        elif each.get("kind") != "ClusterRole" or each["metadata"]["name"] not in bound:
            made.append(each)
    return made


def _is_for(binding: Json, account: str) -> bool:
    subjects = binding.get("subjects") or ()
    return any(each.get("kind") == "ServiceAccount" and each.get("name") == account for each in subjects)


def _granted(binding: Json, documents: Sequence[Json], namespaces: Sequence[str]) -> Iterator[Json]:
    """Yield the roles and bindings that grant a binding's rules in these namespaces only, as far as possible."""
    name = binding["roleRef"]["name"]
    found = (each for each in documents if each.get("kind") == "ClusterRole" and each["metadata"]["name"] == name)
    role = next(found, None)
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
    others = [each for each in container.get("env") or () if each["name"] != WATCHED]
    container["env"] = [*others, {"name": WATCHED, "value": ",".join(namespaces)}]
    return made
