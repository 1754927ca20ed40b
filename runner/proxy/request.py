"""What a request asks for, read from its method and target as the API server reads it.

The API server decides by this which object is meant and which right is needed, so the proxy must come to the same
result from the same bytes (https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb).
Pure; imports nothing of this package.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote

_VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_NAMESPACE_SUBRESOURCES = {"status", "finalize"}
_OLD_VERBS = {"proxy", "watch"}
"""Verbs that old paths carry, as in `/api/v1/watch/pods`."""


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A request in the terms of the API."""

    verb: str
    """get, list, watch, create, update, patch, delete, deletecollection; without resource the method in lower case."""
    path: str
    """Decoded, without the query."""
    query: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    resource: str = ""
    """The plural that stands in the path."""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def qualified(self) -> str:
        """The resource as RBAC writes it, `deployments.apps/scale`; the path where there is none."""
        if not self.is_resource:
            return self.path
        group = f".{self.group}" if self.group else ""
        return f"{self.resource}{group}" + (f"/{self.subresource}" if self.subresource else "")

    @property
    def is_endless(self) -> bool:
        """Whether an answer may take as long as its client likes: watches, followed logs, sessions."""
        if self.verb == "watch" or self.subresource in {"exec", "attach", "portforward", "proxy"}:
            return True
        return self.subresource == "log" and _flag(self.query, "follow")

    @property
    def is_dry_run(self) -> bool:
        """Whether nothing is to be stored (`dryRun=All`)."""
        return "dryRun=" in self.query and bool(parse_qs(self.query).get("dryRun"))


def parse(method: str, target: str) -> RequestInfo:
    """Read a request's method and target (`/path?query`)."""
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


def _namespace(parts: list[str]) -> tuple[str, list[str]]:
    """Split `namespaces/NAME/...` off; a namespace itself lies in itself."""
    if parts[0] != "namespaces" or len(parts) == 1:
        return "", parts
    if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:  # noqa: PLR2004 - something within the namespace
        return parts[1], parts[2:]
    return parts[1], parts


def _of_collection(verb: str, query: str) -> tuple[str, str]:
    """The verb where no object is named, and the object that a field selector names after all."""
    if verb == "delete":
        return "deletecollection", ""
    if verb != "get":
        return verb, ""
    return "watch" if _flag(query, "watch") else "list", _selected_name(query)


def _flag(query: str, name: str) -> bool:
    """Read a boolean as the API server does: it is set when there, unless it says otherwise."""
    if name not in query:
        return False
    values = parse_qs(query, keep_blank_values=True).get(name, ["false"])
    return values[0].lower() not in {"false", "0"}


def _selected_name(query: str) -> str:
    """The name in `fieldSelector=metadata.name=NAME`; rights on one object by name cover such a list too."""
    if "fieldSelector" not in query:
        return ""
    for selector in parse_qs(query).get("fieldSelector", [])[:1]:
        for term in selector.split(","):
            field, equals, value = term.partition("=")
            name = value.removeprefix("=")
            if equals and field == "metadata.name" and name and name not in {".", ".."} and not set(name) & set("/%"):
                return name
    return ""
