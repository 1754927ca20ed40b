"""Readers of roles, plays and tasks as YAML nodes. Pure."""

from __future__ import annotations

import yaml


def pairs(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    """Return the pairs of a mapping whose key is a scalar; none for other nodes."""
    entries = node.value if isinstance(node, yaml.MappingNode) else ()
    return [(key.value, value) for key, value in entries if isinstance(key, yaml.ScalarNode)]


def action(name: str) -> str:
    """Return the name of an action without the collection of Ansible itself."""
    return name.removeprefix("ansible.builtin.").removeprefix("ansible.legacy.")


def argument(node: yaml.Node, name: str) -> str:
    """Return an argument of an action, also as `name=value`; text without a name is the file of an include."""
    if isinstance(node, yaml.MappingNode):
        value = dict(pairs(node)).get(name)
        return str(value.value) if isinstance(value, yaml.ScalarNode) else ""
    text = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
    if "=" not in text:
        return text if name == "file" else ""
    arguments = dict(word.split("=", 1) for word in text.split() if "=" in word)
    return arguments.get(name, text.split()[0] if name == "file" and "=" not in text.split()[0] else "")


def texts(node: yaml.Node | None) -> tuple[str, ...]:
    """Return the texts in a list."""
    items = node.value if isinstance(node, yaml.SequenceNode) else ()
    return tuple(str(item.value) for item in items if isinstance(item, yaml.ScalarNode))


def role_name(node: yaml.Node) -> str:
    """Return the role name of an entry of a play's `roles`; empty if it has none."""
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    if isinstance(node, yaml.MappingNode):
        values = dict(pairs(node))
        named = values.get("role") or values.get("name")
        return str(named.value) if isinstance(named, yaml.ScalarNode) else ""
    return ""
