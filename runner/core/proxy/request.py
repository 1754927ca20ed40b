"""Request attributes (verb, resource, namespace, name), parsed from method and target like in the API server.

The API server derives the object and the required right from these attributes, so the proxy must derive the same
(https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb).

Pure; imports nothing of this package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import parse_qs, unquote, unquote_plus

from runner.values.objects import ObjectKey

_VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_NAMESPACE_SUBRESOURCES = {"status", "finalize"}
_HEX = frozenset("0123456789abcdefABCDEF")
_OLD_VERBS = {"proxy", "watch"}
"""Verbs in deprecated paths such as `/api/v1/watch/pods`."""

Params: TypeAlias = list[tuple[str, str]]
"""Query parameters."""


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """Attributes of a request."""

    verb: str
    """get, list, watch, create, update, patch, delete, deletecollection; the method for non-resource requests."""
    path: str
    """Decoded, without the query."""
    query: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    resource: str = ""
    """Plural, as in the path."""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def qualified(self) -> str:
        """The resource, such as `deployments.apps/scale`; the path of a non-resource request."""
        if not self.is_resource:
            return self.path
        group = f".{self.group}" if self.group else ""
        return f"{self.resource}{group}" + (f"/{self.subresource}" if self.subresource else "")

    @property
    def key(self) -> ObjectKey:
        """Namespace and name; both can be empty. The path of a namespace contains it as its own namespace."""
        is_namespace = self.resource == "namespaces" and not self.group
        return ObjectKey("" if is_namespace else self.namespace, self.name)

    @property
    def is_endless(self) -> bool:
        """True for requests without a bounded duration: watches, followed logs, exec and its like."""
        if self.verb == "watch" or self.subresource in {"exec", "attach", "portforward", "proxy"}:
            return True
        return self.subresource == "log" and _flag(self.query, "follow")

    @property
    def is_dry_run(self) -> bool:
        """True if the API server does not persist the change (`dryRun=All`)."""
        return "dryRun=" in self.query and bool(parse_qs(self.query).get("dryRun"))


def parse(method: str, target: str) -> RequestInfo:
    """Parse the method and target (`/path?query`) of a request."""
    raw_path, _, query = target.partition("?")
    path = unquote(raw_path, errors="replace")
    plain = RequestInfo(method.lower(), path, query)
    parts = path.strip("/").split("/")
    if len(parts) < 3 or parts[0] not in {"api", "apis"}:  # noqa: PLR2004 - root, version, resource
        return plain
    group = ""
    if parts.pop(0) == "apis":
        if len(parts) < 3:  # noqa: PLR2004 - group, version, resource
            return plain
        group = parts.pop(0)
    version = parts.pop(0)
    verb = _VERBS.get(method, method.lower())
    if parts[0] in _OLD_VERBS:
        if len(parts) == 1:
            return plain
        verb = parts.pop(0)
    namespace, parts = _namespace(parts)
    resource, name, subresource = (*parts, "", "")[:3] if verb != "proxy" else (*parts[:2], "", "")[:3]
    if not name:
        verb, name = _of_collection(verb, query)
    return RequestInfo(verb, path, query, True, group, version, resource, namespace, name, subresource)  # noqa: FBT003 - is_resource, by its place


def parse_query(query: str) -> Params:
    """Parse a query like Go: pairs with a semicolon or an invalid escape are dropped."""
    params: Params = []
    for pair in query.split("&"):
        if not pair or ";" in pair or not _is_escaped(pair):
            continue
        name, _, value = pair.partition("=")
        params.append((unquote_plus(name), unquote_plus(value)))
    return params


def _namespace(parts: list[str]) -> tuple[str, list[str]]:
    """Split off `namespaces/NAME/...`; the namespace of a Namespace is its own name."""
    if parts[0] != "namespaces" or len(parts) == 1:
        return "", parts
    if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:  # noqa: PLR2004 - something within the namespace
        return parts[1], parts[2:]
    return parts[1], parts


def _of_collection(verb: str, query: str) -> tuple[str, str]:
    """Return the verb of a collection request, and the name in its field selector."""
    if verb == "delete":
        return "deletecollection", ""
    if verb != "get":
        return verb, ""
    return "watch" if _flag(query, "watch") else "list", _selected_name(query)


def _flag(query: str, name: str) -> bool:
    """Parse a boolean like the API server: true if present, unless its value is false or 0."""
    if name not in query:
        return False
    values = parse_qs(query, keep_blank_values=True).get(name, ["false"])
    return values[0].lower() not in {"false", "0"}


def _selected_name(query: str) -> str:
    """Return the name in `fieldSelector=metadata.name=NAME`: RBAC rules with resourceNames allow such a list."""
    if "fieldSelector" not in query:
        return ""
    for selector in parse_qs(query).get("fieldSelector", [])[:1]:
        for term in selector.split(","):
            field, equals, value = term.partition("=")
            name = value.removeprefix("=")
            if equals and field == "metadata.name" and name and name not in {".", ".."} and not set(name) & set("/%"):
                return name
    return ""


def _is_escaped(text: str) -> bool:
    """Return whether every percent sign begins an escape."""
    return all(len(part) > 1 and set(part[:2]) <= _HEX for part in text.split("%")[1:])
