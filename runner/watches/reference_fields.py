"""Reads the field `references` of a watch. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from runner.objects import GVK
from runner.watches import declared, field_selectors, label_selectors, selector_fields
from runner.watches.spec_paths import SpecPath
from runner.yamlfile.fields import Fields

_WAYS = ("path", "name", "selector")
ANY_NAMESPACE = "*"
"""Element of `namespaces` that allows all."""


@dataclass(frozen=True, slots=True)
class WatchReference:
    """Objects of one kind whose changes start runs of a watch. One of `path`, `name` and `selector` is set."""

    gvk: GVK
    path: SpecPath | None
    """Field of the spec that contains their names."""
    name: str
    selector: str
    """Label selector as the API writes it."""
    namespace: str
    """Their namespace; empty: that of the object, unless the spec contains another."""
    namespaces: frozenset[str] = frozenset()
    """Further namespaces that a spec may name."""

    def allows(self, namespace: str, own: str) -> bool:
        """Return True if an object in namespace `own` may reference objects in `namespace`.

        Cluster-scoped objects may reference all: no user of a single namespace can write them.
        """
        return (
            not own or namespace in {own, self.namespace} or not self.namespaces.isdisjoint({namespace, ANY_NAMESPACE})
        )


def read(fields: Fields) -> tuple[WatchReference, ...]:
    """Return the valid references; record errors of invalid ones."""
    found = (_reference(item) for item in fields.items("references", declared.names("references[]")))
    return tuple(reference for reference in found if reference is not None)


def _reference(item: Fields) -> WatchReference | None:
    item.require("version", "set the API version, such as v1")
    item.require("kind", "set a kind, such as Secret")
    gvk = GVK(item.text("group"), item.text("version"), item.text("kind"))
    given = [name for name in _WAYS if item.is_present(name)]
    if len(given) != 1:
        found = f"{' and '.join(given)} are mutually exclusive" if given else "selects no objects"
        item.error(
            "", f"{found}: set one of path (field of the spec with their names), name, and selector (their labels)"
        )
        return None
    path, name, selector = _path(item), item.text("name"), selector_fields.read(item)
    problem = field_selectors.name_problem(name) if "name" in given else ""
    if problem:
        item.error("name", problem)
    if "selector" in given and not selector and isinstance(item.node("selector"), yaml.MappingNode | None):
        item.error("selector", "selects all objects of the kind: set labels")
    if not (path or name or selector):
        return None
    return WatchReference(gvk, path, name, selector, _namespace(item), _namespaces(item))


def _path(item: Fields) -> SpecPath | None:
    if not item.is_present("path"):
        return None
    try:
        return SpecPath.parse(item.text("path"))
    except ValueError as error:
        item.error("path", str(error))
        return None


def _namespaces(item: Fields) -> frozenset[str]:
    texts = item.texts("namespaces")
    for text in texts:
        if text != ANY_NAMESPACE and not _is_namespace(text):
            item.error("namespaces", f"invalid namespace {text!r}: use names, or '*' for all namespaces")
    if texts and not item.is_present("path"):
        item.warn("namespaces", "no effect without path: only names in a spec can be in several namespaces")
    return frozenset(texts)


def _is_namespace(text: str) -> bool:
    return label_selectors.is_subdomain(text) and "." not in text


def _namespace(item: Fields) -> str:
    text = item.text("namespace")
    if text and not _is_namespace(text):
        item.error(
            "namespace", f"invalid namespace {text!r}: use a name, or remove the field for the namespace of the object"
        )
    return text
