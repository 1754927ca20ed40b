"""Missing permissions, parsed from messages of the API server, and the RBAC rules that grant them. Pure.

A rule helps only if RBAC denied the request. Admission also responds with 403 (quota, Pod Security, a webhook,
privilege escalation), in other words; such a message is not parsed. Source: the API server's message for a request that
no authorizer allowed, which aggregated API servers share, and the fields of a rule
(https://kubernetes.io/docs/reference/access-authn-authz/rbac/).
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.values.objects import mapping, maps

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
class MissingRight:
    """A permission that a user lacks."""

    user: str
    verb: str
    group: str
    resource: str
    """Resource and subresource as in a rule: `pods/log`. Empty for a non-resource path."""
    namespace: str
    """Empty for the cluster scope."""
    name: str
    """The only object to grant; empty for all objects of a kind."""
    path: str


def read(message: str) -> MissingRight | None:
    """Parse the message of a 403; None if RBAC did not deny the request."""
    matched = _MESSAGE.match(message)
    if matched is None:
        return None
    name, user, verb, path, resource, group, namespace = (_text(part) for part in matched.groups())
    if not resource:
        return MissingRight(user, verb, "", "", "", "", path)
    return MissingRight(user, verb, group, resource, namespace, name if verb in _BY_NAME else "", "")


def terminating(status: Mapping[str, Any]) -> bool:
    """Return True if a request was refused because its namespace is being deleted.

    Source: the cause in the response of the admission plugin
    (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#namespacelifecycle).
    """
    causes = maps(mapping(status.get("details")).get("causes"))
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


def rule(missing: MissingRight, verbs: Iterable[str]) -> str:
    """Return the rule that allows these verbs, as YAML in one line."""
    listed = f"verbs: {_list(verbs)}"
    if not missing.resource:
        return f"{{nonResourceURLs: {_list([missing.path])}, {listed}}}"
    names = f"resourceNames: [{json.dumps(missing.name)}], " if missing.name else ""
    return f"{{apiGroups: {_list([missing.group])}, resources: {_list([missing.resource])}, {names}{listed}}}"


def rule_for(group: str, resource: str, verbs: Iterable[str]) -> str:
    """Return the rule that allows verbs on all objects of a resource."""
    return rule(MissingRight("", "", group, resource, "", "", ""), verbs)


def where(missing: MissingRight) -> str:
    """Return the kind of role to add the rule to."""
    return "Role" if missing.namespace else "ClusterRole"


def sentences(rights: Iterable[MissingRight], absent_user: str = "") -> tuple[str, ...]:
    """Return a sentence per resource: the denied verbs, the user, and the rule to add. The order is deterministic.

    `absent_user` is the name of a service account that does not exist.
    """
    verbs: dict[MissingRight, list[str]] = {}
    for right in sorted(set(rights)):
        verbs.setdefault(replace(right, verb=""), []).append(right.verb)
    return tuple(
        f"forbidden: {', '.join(denied)} {_subject(target)} (as {target.user}); "
        + ("this service account does not exist: create it, and " if target.user == absent_user else "")
        + f"add to its {where(target)}: {rule(target, denied)}"
        for target, denied in sorted(verbs.items())
    )


def _subject(right: MissingRight) -> str:
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
