"""Field `references` of a watch. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from runner.base.yamlfile.fields import Fields
from runner.core.watches import field, selectors
from runner.core.watches.field import Entry, FeatureFields
from runner.core.watches.spec_paths import SpecPath
from runner.core.watches.watch import INPUTS, NEXT_CHANGE
from runner.values.objects import GVK
from runner.values.slots import EMPTY, Slot, Slots

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


REFERENCES: Slot[tuple[WatchReference, ...]] = Slot("references", ())
"""Slot of a watch: objects that the watched objects refer to; their changes start runs."""


def referring(references: tuple[WatchReference, ...], more: Slots = EMPTY) -> Slots:
    """Return the values of a watch whose objects have references."""
    inputs: Mapping[str, Any] = more.get(INPUTS)
    more = more.having(INPUTS, {**inputs, "references": references}).having(REFERENCES, references)
    return more.having(NEXT_CHANGE, "the object, or an object that it references, changes")


_REFERENCE = "references: [{version: v1, kind: Secret, %s}]"
_ENTRY = field.section(
    "",
    "%s",
    field.listing(
        "references",
        "objects that the spec names and whose change runs the object ([References](#references))",
        "[{version: v1, kind: Secret, path: spec.passwordSecret}]",
        "[]",
    ),
)
_FIELDS = field.section(
    "references[]",
    "references: [{version: v1, kind: Secret, path: spec.passwordSecret, %s}]",
    field.text(
        "group",
        "the kind's group; empty for the core group",
        "example.com",
        frame="references: [{%s, version: v1, kind: Plan, name: default}]",
    ),
    field.text(
        "version",
        "the kind's version",
        "v1",
        required=True,
        frame="references: [{%s, kind: Secret, path: spec.passwordSecret}]",
    ),
    field.text(
        "kind", "the kind", "Secret", required=True, frame="references: [{version: v1, %s, path: spec.passwordSecret}]"
    ),
    field.text("path", "path of the names in the spec", "spec.passwordSecret", frame=_REFERENCE),
    field.text("name", "one name for all objects of the entry", "defaults", frame=_REFERENCE),
    field.mapping(
        "selector",
        "label selector; one of `path`, `name` and `selector` is required",
        "{matchLabels: {part: shop}}",
        frame=_REFERENCE,
    ),
    field.text(
        "namespace", "namespace of the objects; default: the value in the spec, or the namespace of the object", "vault"
    ),
    field.listing(
        "namespaces", "further namespaces that a spec may name; `*`: all ([References](#references))", "[vault]"
    ),
)


def _read(entry: Entry, values: Slots) -> Slots:
    """Add the valid references; report invalid ones."""
    read = (_reference(item) for item in entry.fields.items("references", field.names(_FIELDS)))
    references = tuple(reference for reference in read if reference is not None)
    return referring(references, values) if references else values


def _reference(item: Fields) -> WatchReference | None:
    item.require("version", "set the API version, such as v1")
    item.require("kind", "set a kind, such as Secret")
    gvk = GVK(item.text("group"), item.text("version"), item.text("kind"))
    ways = [name for name in _WAYS if item.is_present(name)]
    if len(ways) != 1:
        problem = f"{' and '.join(ways)} are mutually exclusive" if ways else "selects no objects"
        item.error(
            "", f"{problem}: set one of path (field of the spec with their names), name, and selector (their labels)"
        )
        return None
    path, name, selector = _path(item), item.text("name"), selectors.read_labels(item)
    problem = selectors.name_problem(name) if "name" in ways else ""
    if problem:
        item.error("name", problem)
    if "selector" in ways and not selector and isinstance(item.node("selector"), yaml.MappingNode | None):
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
    return selectors.is_subdomain(text) and "." not in text


def _namespace(item: Fields) -> str:
    text = item.text("namespace")
    if text and not _is_namespace(text):
        item.error(
            "namespace", f"invalid namespace {text!r}: use a name, or remove the field for the namespace of the object"
        )
    return text


FIELDS = FeatureFields((_ENTRY, _FIELDS), _read)
