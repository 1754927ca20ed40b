"""The field `references` of a watch: what its objects name without owning it.

Pure: nodes in, values and problems out.
"""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from runner.objects import GVK
from runner.watches import field_selectors, label_selectors, selector_fields
from runner.watches.spec_paths import SpecPath
from runner.yamlfile.fields import Fields

_FIELDS = ("group", "version", "kind", "path", "name", "selector", "namespace")
_WAYS = ("path", "name", "selector")


@dataclass(frozen=True, slots=True)
class Reference:
    """Objects of one kind whose change runs the objects of a watch. One of `path`, `name` and `selector` is set."""

    gvk: GVK
    path: SpecPath | None
    """Where the spec names them."""
    name: str
    selector: str
    """Label selector in the API's own spelling."""
    namespace: str
    """Where they are; empty: where the object is, unless that says otherwise."""


def read(fields: Fields) -> tuple[Reference, ...]:
    """Read all of them; what cannot be used is left out, with errors."""
    found = (_reference(item) for item in fields.items("references", _FIELDS))
    return tuple(reference for reference in found if reference is not None)


def _reference(item: Fields) -> Reference | None:
    item.require("version", "write the API's version, such as v1")
    item.require("kind", "write a kind, such as Secret")
    gvk = GVK(item.text("group"), item.text("version"), item.text("kind"))
    given = [name for name in _WAYS if item.is_written(name)]
    if len(given) != 1:
        what = f"has {' and '.join(given)}" if given else "does not say which objects"
        item.error("", f"{what}; write one of path (where the spec names them), name, and selector (their labels)")
        return None
    path, name, selector = _path(item), item.text("name"), selector_fields.read(item)
    problem = field_selectors.name_problem(name) if "name" in given else ""
    if problem:
        item.error("name", problem)
    if "selector" in given and not selector and isinstance(item.given("selector"), yaml.MappingNode | None):
        item.error("selector", "selects every object of the kind; name labels")
    return Reference(gvk, path, name, selector, _namespace(item)) if path or name or selector else None


def _path(item: Fields) -> SpecPath | None:
    if not item.is_written("path"):
        return None
    try:
        return SpecPath.parse(item.text("path"))
    except ValueError as error:
        item.error("path", str(error))
        return None


def _namespace(item: Fields) -> str:
    text = item.text("namespace")
    if text and (not label_selectors.is_subdomain(text) or "." in text):
        item.error("namespace", f"{text!r} is no namespace; write its name, or leave it out for the object's own")
    return text
