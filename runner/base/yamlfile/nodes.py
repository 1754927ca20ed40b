"""Readers of YAML nodes that can have any shape. Pure."""

from __future__ import annotations

from typing import Any

import yaml


def pairs(node: yaml.Node | None) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """Return the pairs of a mapping whose keys are scalars; none for other nodes."""
    entries = node.value if isinstance(node, yaml.MappingNode) else ()
    return [(key, value) for key, value in entries if isinstance(key, yaml.ScalarNode)]


def at(node: yaml.Node | None, *path: str) -> yaml.Node | None:
    """Return the node at a path of mappings; None if there is none."""
    for name in path:
        node = next((value for key, value in pairs(node) if key.value == name), None)
    return node


def items(node: yaml.Node | None) -> list[Any]:
    """Return the nodes of the items of a list; none for other nodes."""
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def text(node: yaml.Node | None) -> str:
    """Return the text of a scalar; empty for other nodes."""
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""
