"""Schemas of the API server's OpenAPI v3 document of one group and version. Pure.

Owns: which operations support dry runs (query parameter `dryRun`), and how lists are merged. Source:
https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy and the extensions
`x-kubernetes-patch-merge-key` and `x-kubernetes-patch-strategy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.values.objects import GVK

_DRY_RUN = "dryRun"
_STRATEGIC = "application/strategic-merge-patch+json"
_TEXTS = frozenset({"description", "format"})
_MOST_REFERENCES = 20
"""References that are followed from one schema; a cycle of references alone is invalid."""


class ApiDocument:
    """OpenAPI document of one group and version, without the parts that plans do not use."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        paths = document.get("paths") or {}
        self._dry_run = frozenset(
            (path, method) for path, item in paths.items() for method in item if _takes_dry_run(item, method)
        )
        self._strategic = frozenset(path for path, item in paths.items() if _STRATEGIC in _patch_types(item))
        self.schemas: Mapping[str, Any] = _without_texts((document.get("components") or {}).get("schemas") or {})

    def can_dry_run(self, path: str, method: str) -> bool:
        """Return whether an operation has the parameter `dryRun`. `path` has placeholders, such as `{name}`."""
        return (path, method.lower()) in self._dry_run

    def takes_strategic(self, path: str) -> bool:
        """Return whether objects at a path accept strategic merge patches; custom resources do not."""
        return path in self._strategic

    def schema(self, gvk: GVK) -> Schema | None:
        """Return the schema of a kind."""
        entry = {"group": gvk.group, "version": gvk.version, "kind": gvk.kind}
        for schema in self.schemas.values():
            if entry in (schema.get("x-kubernetes-group-version-kind") or ()):
                return Schema(self.schemas, schema)
        return None


@dataclass(frozen=True, slots=True)
class Schema:
    """Schema of one field."""

    schemas: Mapping[str, Any] = field(repr=False)
    node: Mapping[str, Any] = field(repr=False)

    def child(self, name: str) -> Schema | None:
        """Return the schema of a field of an object or map."""
        resolved = self._resolved()
        node = (resolved.get("properties") or {}).get(name) or resolved.get("additionalProperties")
        return Schema(self.schemas, node) if isinstance(node, dict) else None

    def items(self) -> Schema | None:
        """Return the schema of a list's items."""
        node = self._resolved().get("items")
        return Schema(self.schemas, node) if isinstance(node, dict) else None

    @property
    def strategies(self) -> frozenset[str]:
        """Strategies of a strategic merge patch: `merge`, `replace`, `retainKeys`."""
        return frozenset(filter(None, str(self.node.get("x-kubernetes-patch-strategy") or "").split(",")))

    @property
    def merge_key(self) -> str:
        """Key of the list's items in a strategic merge patch; empty for lists of other values."""
        return str(self.node.get("x-kubernetes-patch-merge-key") or "")

    @property
    def list_type(self) -> str:
        """List type of server-side apply: `map`, `set` or `atomic`."""
        return str(self._resolved().get("x-kubernetes-list-type") or "atomic")

    @property
    def list_keys(self) -> tuple[str, ...]:
        """Keys of a list of type `map`."""
        return tuple(self._resolved().get("x-kubernetes-list-map-keys") or ())

    @property
    def is_atomic(self) -> bool:
        """True for an object or map that server-side apply replaces whole."""
        return self._resolved().get("x-kubernetes-map-type") == "atomic"

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Defaults of the fields of an object."""
        properties = self._resolved().get("properties") or {}
        return {name: node["default"] for name, node in properties.items() if "default" in node}

    def _resolved(self) -> Mapping[str, Any]:
        """Follow references, and merge `allOf`. Extensions beside a reference win."""
        node = dict(self.node)
        for _ in range(_MOST_REFERENCES):
            more = [*(node.pop("allOf", None) or ())]
            if "$ref" in node:
                more.append({"$ref": node.pop("$ref")})
            if not more:
                break
            for part in more:
                target = self.schemas.get(str(part["$ref"]).rpartition("/")[2], {}) if "$ref" in part else part
                node = {**target, **node}
        return node


def _takes_dry_run(item: Mapping[str, Any], method: str) -> bool:
    operation = item[method]
    own = operation.get("parameters") if isinstance(operation, dict) else None
    parameters = [*(item.get("parameters") or ()), *(own or ())] if isinstance(operation, dict) else []
    return any(parameter.get("name") == _DRY_RUN and parameter.get("in") == "query" for parameter in parameters)


def _patch_types(item: Mapping[str, Any]) -> Mapping[str, Any]:
    media_types: Mapping[str, Any] = ((item.get("patch") or {}).get("requestBody") or {}).get("content") or {}
    return media_types


def _without_texts(schema: Any) -> Any:
    """Return a schema without descriptions, which are most of a document."""
    if isinstance(schema, list):
        return [_without_texts(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_texts(item) for name, item in schema.items() if name not in _TEXTS or not isinstance(item, str)
    }
