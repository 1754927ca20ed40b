"""Edits of requirements.yml that keep its comments. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from runner.compatibility import task_fields
from runner.yamlfile import edits

OLD, NEW = "community.kubernetes", "kubernetes.core"
PIN = ">=5.3.0,<7.0.0"
"""Versions of kubernetes.core that every supported ansible-core can use."""


def migrated(text: str, missing: Iterable[str], file: str) -> str:
    """Return the file with kubernetes.core for community.kubernetes, and with the missing collections.

    Raises ConfigError, with the lines to add by hand, if the file cannot be edited.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader) if text.strip() else None
    entries = task_fields.value_of(root, "collections")
    nodes = entries.value if isinstance(entries, yaml.SequenceNode) else []
    names = [_name(each) for each in nodes]
    lines = text.splitlines(keepends=True)
    for node, name in reversed(list(zip(nodes, names, strict=True))):
        if name == OLD:
            kept = [] if NEW in names else [f"{' ' * _indent(node)}{line}" for line in _entry(NEW)]
            lines[node.start_mark.line : edits.last_line(node)] = kept
    after = "".join(lines) or "---\n"
    for name in missing:
        after = edits.insert(after, ("collections",), "".join(_entry(name)), file=file)
    return after


def _name(node: yaml.Node) -> str:
    named = task_fields.value_of(node, "name") if isinstance(node, yaml.MappingNode) else node
    return str(named.value) if isinstance(named, yaml.ScalarNode) else ""


def _entry(name: str) -> list[str]:
    version = [f'  version: "{PIN}"\n'] if name == NEW else []
    return [f"- name: {name}\n", *version]


def _indent(node: yaml.Node) -> int:
    """Return the column of the dash before an item of a list in block style."""
    return max(int(node.start_mark.column) - 2, 0)
