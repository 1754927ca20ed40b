"""Reads the fields of a mapping in a YAML file by type.

Field names match without regard to case. An absent or null field has its default. An invalid field adds one error to
`Problems` and has its default. Types are as strict as in Go: text accepts any scalar, other types only their own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from runner.base.yamlfile import tree
from runner.base.yamlfile.tree import Problem, Problems, SourceText


@dataclass(frozen=True, slots=True)
class FieldContext:
    """Context of a mapping for its problems: file, subject, and path of fields to it."""

    source: SourceText
    problems: Problems
    subject: str
    path: str = ""
    removed: Mapping[str, str] = field(default_factory=dict)
    """Removed fields by path in lower case, with `[]` for each item of a list, and the advice what to do instead."""

    def below(self, name: str) -> FieldContext:
        """Return the context of the mapping in a field."""
        return replace(self, path=self._full(name))

    def error(self, node: yaml.Node, name: str, message: str) -> None:
        """Record an error of the field `name` (empty: of the whole mapping) at the node's line."""
        self.problems.errors.append(self._problem(node, name, message + self._unset(node)))

    def warn(self, node: yaml.Node, name: str, message: str) -> None:
        """Record a warning."""
        self.problems.warnings.append(self._problem(node, name, message))

    def advice(self, key: yaml.Node) -> str:
        """Return the advice about a removed field; empty for other keys."""
        return self.removed.get(re.sub(r"\[\d+\]", "[]", self._full(str(key.value))).lower(), "")

    def _problem(self, node: yaml.Node, name: str, message: str) -> Problem:
        subject = ": ".join(part for part in (self.subject, self._full(name)) if part)
        return Problem(self.source.file, self.source.line(node.start_mark), subject, message)

    def _full(self, name: str) -> str:
        if not name:
            return self.path
        return f"{self.path}.{name}" if self.path and not name.startswith("[") else self.path + name

    @staticmethod
    def _unset(node: yaml.Node) -> str:
        names = tree.variables(node.value) if isinstance(node, yaml.ScalarNode) else []
        return f" (not set in the environment: {', '.join(names)})" if names else ""


class Fields:
    """Fields of one mapping."""

    def __init__(self, node: yaml.MappingNode, context: FieldContext, known: Sequence[str]) -> None:
        self.context = context
        self._mapping = node
        self._values: dict[str, yaml.Node] = {}
        spelling = {name.lower(): name for name in known}
        for key, value in self._pairs(node):
            name = spelling.get(str(key.value).lower())
            if name is None:
                advice = context.advice(key)
                if advice:
                    context.error(key, str(key.value), f"was removed: {advice}")
                else:
                    context.warn(key, "", _unknown(key, known))
                continue
            if name in self._values and key.value != name:
                context.warn(key, name, f"duplicate field in different case; the value of {key.value!r} is used")
            self._values[name] = value

    def _pairs(self, node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
        try:
            return tree.merged(node)
        except ValueError as error:
            self.context.error(node, "", str(error))
            return []

    def node(self, name: str) -> yaml.Node | None:
        """Return the field's node; None if it is absent or null."""
        node = self._values.get(name)
        return None if node is None or tree.is_null(node) else node

    def is_present(self, name: str) -> bool:
        """Return whether the field is present; it can be null."""
        return name in self._values

    def error(self, name: str, message: str) -> None:
        """Record an error at the field, or at the mapping if the field is absent."""
        self.context.error(self._values.get(name, self._mapping), name, message)

    def warn(self, name: str, message: str) -> None:
        """Record a warning at the field, or at the mapping if the field is absent."""
        self.context.warn(self._values.get(name, self._mapping), name, message)

    def require(self, name: str, advice: str) -> None:
        """Record an error if the field is absent, null or empty."""
        node = self.node(name)
        if node is None or node.value == "":
            self.error(name, f"missing or empty: {advice}")

    def text(self, name: str) -> str:
        """Return the text of any scalar; empty if absent."""
        node = self.node(name)
        if node is None:
            return ""
        if not isinstance(node, yaml.ScalarNode):
            self._wrong(name, node, "text")
            return ""
        return str(node.value)

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return a boolean; quoted text is an error."""
        node = self.node(name)
        if node is None:
            return default
        if not tree.is_bool(node):
            quoted = " without quotes" if isinstance(node, yaml.ScalarNode) and node.style else ""
            self._wrong(name, node, f"true or false{quoted}")
            return default
        return str(node.value).lower() in {"y", "yes", "true", "on"}

    def integer(self, name: str, *, default: int) -> int:
        """Return a whole number."""
        node = self.node(name)
        if node is None:
            return default
        try:
            value = tree.plain(node)
        except ValueError:
            value = None
        if not isinstance(value, int) or isinstance(value, bool):
            self._wrong(name, node, "a whole number")
            return default
        return value

    def values(self, name: str) -> dict[str, Any]:
        """Return a mapping of any values as plain JSON values; empty if absent."""
        node = self.node(name)
        if node is None:
            return {}
        if not isinstance(node, yaml.MappingNode):
            self._wrong(name, node, "a mapping of names to values")
            return {}
        try:
            values: dict[str, Any] = tree.plain(node)
        except ValueError as error:
            self.error(name, str(error))
            return {}
        return values

    def fields(self, name: str, known: Sequence[str]) -> Fields | None:
        """Return a mapping with known fields; None if absent."""
        node = self.node(name)
        if node is None:
            return None
        if not isinstance(node, yaml.MappingNode):
            self._wrong(name, node, f"a mapping with {', '.join(known)}")
            return None
        return Fields(node, self.context.below(name), known)

    def items(self, name: str, known: Sequence[str]) -> list[Fields]:
        """Return a list of mappings with known fields; empty if absent."""
        items: list[Fields] = []
        for number, node in enumerate(self._nodes(name)):
            if isinstance(node, yaml.MappingNode):
                items.append(Fields(node, self.context.below(f"{name}[{number}]"), known))
            else:
                message = f"found {tree.kind_of(node)}, expected a mapping with {', '.join(known)}"
                self.context.error(node, f"{name}[{number}]", message)
        return items

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; empty if absent."""
        texts: list[str] = []
        for number, node in enumerate(self._nodes(name)):
            if isinstance(node, yaml.ScalarNode):
                texts.append("" if tree.is_null(node) else str(node.value))
            else:
                self.context.error(node, f"{name}[{number}]", f"found {tree.kind_of(node)}, expected text")
        return texts

    def pairs(self, name: str) -> list[tuple[str, str, yaml.Node]]:
        """Return a mapping of text to text as key, value and the value's node; empty if absent."""
        node = self.node(name)
        if node is None:
            return []
        if not isinstance(node, yaml.MappingNode):
            self._wrong(name, node, "a mapping of text to text")
            return []
        pairs: list[tuple[str, str, yaml.Node]] = []
        for key, value in self._pairs(node):
            if isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode):
                pairs.append((key.value, "" if tree.is_null(value) else value.value, value))
            else:
                self.context.error(key, name, "expected a mapping of text to text")
        return pairs

    def _nodes(self, name: str) -> list[yaml.Node]:
        node = self.node(name)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self._wrong(name, node, "a list")
            return []
        nodes: list[yaml.Node] = node.value
        return nodes

    def _wrong(self, name: str, node: yaml.Node, expected: str) -> None:
        shown = f" ({node.value!r})" if isinstance(node, yaml.ScalarNode) else ""
        self.error(name, f"found {tree.kind_of(node)}{shown}, expected {expected}")


def _unknown(key: yaml.Node, known: Sequence[str]) -> str:
    if not isinstance(key, yaml.ScalarNode):
        return f"{tree.kind_of(key)} as a field name is ignored"
    spelling = {name.lower(): name for name in known}
    close = difflib.get_close_matches(key.value.lower(), spelling, n=1)
    hint = f"did you mean {spelling[close[0]]}?" if close else f"known fields: {', '.join(known)}"
    return f"unknown field {key.value!r} is ignored; {hint}"
