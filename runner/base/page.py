"""Sections that features add to the status page, as plain values that the page renders.

A node is text, a list of nodes, or a map: `as` names the element of `page.js`, and `of` is its content.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from runner.values.objects import GVK, Object, ObjectKey

Node: TypeAlias = str | list[Any] | dict[str, Any]
Section: TypeAlias = dict[str, Any]
"""Made by `section`."""


@dataclass(frozen=True, slots=True)
class PageSections:
    """Sections of one feature. Each function returns None if there is nothing to show."""

    overview: Callable[[], Section | None] = lambda: None
    of_object: Callable[[GVK, Object], Section | None] = lambda _gvk, _obj: None
    revision: Callable[[], int] = lambda: 0
    """Number of changes that no watched object and no run shows."""


def section(title: str, *nodes: Node | None) -> Section:
    """Return a section with a heading."""
    return {"title": title, "nodes": [node for node in nodes if node is not None]}


def table(caption: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Node]], empty: str = "") -> Node:
    """Return a table. A column has a heading and a class of `page.css`; `empty` is the text without rows."""
    return {"as": "table", "of": {"caption": caption, "columns": columns, "rows": rows, "empty": empty}}


def note(*nodes: Node) -> Node:
    """Return a paragraph in a soft color."""
    return {"as": "note", "of": list(nodes)}


def command(text: str, line: str) -> Node:
    """Return a paragraph with a command to copy."""
    return {"as": "command", "of": {"text": text, "line": line}}


def element(name: str, of: Node) -> Node:
    """Return an element: `tag`, `soft`, `code`, `isolated`, `time`, `removed`, `added`, `line`, or `folded`.

    The content of `time` is a time in RFC 3339. That of `isolated` is text of users, with any direction of writing.
    """
    return {"as": name, "of": of}


def link(gvk: GVK, key: ObjectKey) -> Node:
    """Return a link to an object."""
    return {"as": "object", "of": names(gvk, key)}


def names(gvk: GVK, key: ObjectKey) -> dict[str, Any]:
    """Return what names an object on the page."""
    return {"kind": gvk.kind, "kind_id": kind_id(gvk), "namespace": key.namespace, "name": key.name}


def kind_id(gvk: GVK) -> str:
    """Return the name of a kind in URLs."""
    return ".".join(filter(None, (gvk.kind, gvk.version, gvk.group)))


def plural(number: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{number} {word}" + ("" if number == 1 else "s")
