"""Rights that are missing: read from what the API server says of them, and written as the rule that gives them. Pure.

Only a refusal for want of a right has a rule that mends it. Admission answers 403 too (a quota, Pod Security, a
webhook's verdict, an attempt to grant more than one has), in words of its own: such a message is none of these.
Source: the API server's words for a request that no authorizer allowed, which all authorizers and aggregated API
servers share, and the fields of a rule (https://kubernetes.io/docs/reference/access-authn-authz/rbac/).
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_MESSAGE = re.compile(
    # What it is about comes first, then the reason; a webhook's words are behind `admission webhook "..." denied`.
    rf"(?:forbidden|[^\s\"]+(?: {_QUOTED})? is forbidden): User {_QUOTED} cannot (\S+) (?:path {_QUOTED}|"
    rf"resource {_QUOTED} in API group {_QUOTED} (?:in the namespace {_QUOTED}|at the cluster scope))"
)
_PLAIN = re.compile(r"[A-Za-z/*][A-Za-z0-9./*_-]*")
"""What YAML takes for text without quotes, as far as groups, resources and verbs go."""
_BY_NAME = frozenset({"impersonate"})
"""Verbs that should not be granted for all objects of a kind at once."""


@dataclass(frozen=True, slots=True, order=True)
class MissingRight:
    """A right that somebody would have needed."""

    user: str
    verb: str
    group: str
    resource: str
    """With its subresource, as in a rule: `pods/log`. Empty: the request was for a path that is no resource."""
    namespace: str
    """Empty: at the cluster scope."""
    name: str
    """The one object that the right should be for; empty where a rule is for all objects of a kind."""
    path: str


def read(message: str) -> MissingRight | None:
    """Read the message of a 403; None when it is not for want of a right."""
    found = _MESSAGE.match(message)
    if found is None:
        return None
    name, user, verb, path, resource, group, namespace = (_text(each) for each in found.groups())
    if not resource:
        return MissingRight(user, verb, "", "", "", "", path)
    return MissingRight(user, verb, group, resource, namespace, name if verb in _BY_NAME else "", "")


def terminating(status: Mapping[str, Any]) -> bool:
    """Whether a refusal is because the namespace is being deleted, so that nothing can be created in it any more.

    Source: the cause that the API server's admission names
    (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#namespacelifecycle).
    """
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, Mapping) else None
    return any(isinstance(cause, Mapping) and cause.get("reason") == "NamespaceTerminating" for cause in causes or ())


def rule(missing: MissingRight, verbs: Iterable[str]) -> str:
    """Write the rule that allows these verbs on what the right is about, as YAML in one line."""
    listed = f"verbs: {_list(verbs)}"
    if not missing.resource:
        return f"{{nonResourceURLs: {_list([missing.path])}, {listed}}}"
    names = f"resourceNames: [{json.dumps(missing.name)}], " if missing.name else ""
    return f"{{apiGroups: {_list([missing.group])}, resources: {_list([missing.resource])}, {names}{listed}}}"


def where(missing: MissingRight) -> str:
    """Say what kind of role the rule is to be added to."""
    return "Role" if missing.namespace else "ClusterRole"


def sentences(rights: Iterable[MissingRight]) -> tuple[str, ...]:
    """Say of each resource what was refused to whom, and the rule to add. The order depends on the rights alone."""
    verbs: dict[MissingRight, list[str]] = {}
    for right in sorted(set(rights)):
        verbs.setdefault(replace(right, verb=""), []).append(right.verb)
    return tuple(
        f"forbidden: {', '.join(asked)} {_subject(target)} (as {target.user}); "
        f"add to its {where(target)}: {rule(target, asked)}"
        for target, asked in sorted(verbs.items())
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
    """Undo the quoting of Go's `%q`, and what the API server replaces for the sake of browsers."""
    return html.unescape(re.sub(r"\\(.)", r"\1", quoted or ""))
