"""Roles with their bindings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runner.values.objects import Object

GROUP = "rbac.authorization.k8s.io"
PATH = f"/apis/{GROUP}/v1"


def granted(
    name: str, rules: Iterable[Any], *, namespace: str = "", user: str = "", account: tuple[str, str] = ("", "")
) -> tuple[Object, Object]:
    """Return a role and its binding, in a namespace, or in the whole cluster without one.

    The rules are granted to a user, or to a service account, which is given with its namespace.
    """
    kind = "Role" if namespace else "ClusterRole"
    head = {"apiVersion": f"{GROUP}/v1", "metadata": {"name": name} | ({"namespace": namespace} if namespace else {})}
    subject = {"apiGroup": GROUP, "kind": "User", "name": user}
    if not user:
        subject = {"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}
    binding = {"roleRef": {"apiGroup": GROUP, "kind": kind, "name": name}, "subjects": [subject]}
    return {**head, "kind": kind, "rules": [*rules]}, {**head, "kind": f"{kind}Binding", **binding}
