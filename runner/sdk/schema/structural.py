"""Values in a YAML file that a CRD's schema rejects. Pure.

Follows the API server's rules for structural schemas, which JSON Schema validators do not: unknown fields,
`nullable`, defaults, and `x-kubernetes-*`. CEL rules and `format` are not checked.
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml

from runner.base.yamlfile import tree
from runner.core.watches.spec_paths import Step, Wildcard
from runner.values.errors import meant, shortened

Schema: TypeAlias = Mapping[str, Any]

_KEPT = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_TYPE = ("apiVersion", "kind")
_META = frozenset({*_TYPE, "metadata"})
_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
_SHOWN = 60
"""Characters of a value in a message."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A value that a schema rejects."""

    node: yaml.Node
    path: str
    message: str
    is_dropped: bool = False
    """True for an unknown field: the API server accepts the object without it, with a warning."""


def violations(root: yaml.Node, schema: Schema) -> Iterator[Violation]:
    """Yield the values of an object that the schema of its kind rejects. Raises ValueError for values outside JSON."""
    tree.plain(root)
    yield from _violations(root, {**schema, _EMBEDDED: True}, "")


def unknown_field(schema: Schema, steps: tuple[Step, ...]) -> tuple[str, tuple[str, ...]] | None:
    """Return the first field of a path that no object can have, and the fields beside it; None if there is none."""
    if schema.get("type") == "array":
        return unknown_field(_map(schema, "items"), steps[1:] if steps and steps[0] is Wildcard.ITEM else steps)
    if not steps or _is_open(schema):
        return None
    step, rest = steps[0], steps[1:]
    fields, others = _map(schema, "properties"), schema.get("additionalProperties")
    if step is Wildcard.VALUE:
        values = [*fields.values(), *([others] if isinstance(others, dict) else [])]
        results = [unknown_field(value, rest) for value in values]
        return None if not results or None in results else results[0]
    if isinstance(step, str) and step in fields:
        return unknown_field(fields[step], rest)
    if isinstance(step, str) and isinstance(others, dict):
        return unknown_field(others, rest)
    return str(step.value if isinstance(step, Wildcard) else step), tuple(fields)


def suggestion(name: str, known: tuple[str, ...]) -> str:
    """Return `; did you mean X?`, or the known names; empty without any."""
    return meant(name, known) or (f"; it has {', '.join(sorted(known))}" if known else "")


def _violations(node: yaml.Node, schema: Schema, path: str) -> Iterator[Violation]:
    if tree.is_null(node) and schema.get("nullable"):
        return
    mismatch = _mismatch(node, schema)
    if mismatch:
        yield Violation(node, path, mismatch)
        return
    yield from (Violation(node, path, message) for message in _rejections(node, schema))
    if isinstance(node, yaml.MappingNode):
        yield from _fields(node, schema, path)
    elif isinstance(node, yaml.SequenceNode):
        items = _map(schema, "items")
        for number, item in enumerate(node.value):
            yield from _violations(item, items, f"{path}[{number}]")


def _fields(node: yaml.MappingNode, schema: Schema, path: str) -> Iterator[Violation]:
    fields, others = _map(schema, "properties"), schema.get("additionalProperties")
    pairs = {str(key.value): (key, value) for key, value in tree.merged(node)}
    # The API server drops nulls of fields that are not nullable.
    present = {
        name: pair
        for name, pair in pairs.items()
        if not tree.is_null(pair[1]) or name not in fields or fields[name].get("nullable") or _is_open(fields[name])
    }
    for name, (key, value) in present.items():
        below = f"{path}.{name}" if path else name
        if name in _META and schema.get(_EMBEDDED):
            continue
        if name in fields:
            yield from _violations(value, fields[name], below)
        elif isinstance(others, dict):
            yield from _violations(value, others, below)
        elif not others and not _is_open(schema):
            known = f"the schema has no such field{suggestion(name, tuple(fields))}"
            yield Violation(key, below, known, is_dropped=True)
    embedded = _TYPE if schema.get(_EMBEDDED) else ()
    for name in dict.fromkeys((*embedded, *(schema.get("required") or ()))):
        if name not in present and "default" not in _map(fields, name) and not (name == "metadata" and embedded):
            yield Violation(node, f"{path}.{name}" if path else name, "required field is missing")


def _is_open(schema: Schema) -> bool:
    """Return True if the API server keeps fields that the schema does not contain."""
    if schema.get(_KEPT) or schema.get("additionalProperties") is True:
        return True
    return not schema.get("type") and not schema.get("properties")


def _mismatch(node: yaml.Node, schema: Schema) -> str:
    """Return why a value has not the type of a schema; empty if it has."""
    types = _types(node)
    expected = ("integer", "string") if schema.get(_INT_OR_STRING) else (schema.get("type"),)
    if types & {*expected} or expected == (None,):
        return ""
    actual = f"{tree.kind_of(node)} ({_shown(node)})" if isinstance(node, yaml.ScalarNode) else tree.kind_of(node)
    hint = "; quote it" if "string" in expected and isinstance(node, yaml.ScalarNode) else ""
    return f"found {actual}, expected {' or '.join(_TYPES.get(str(name), str(name)) for name in expected)}{hint}"


def _types(node: yaml.Node) -> set[str]:
    """Return the types of a schema that a value has, as the API server parses it."""
    if isinstance(node, yaml.MappingNode):
        return {"object"}
    if isinstance(node, yaml.SequenceNode):
        return {"array"}
    if tree.is_bool(node):
        return {"boolean"}
    value = tree.plain(node)
    if isinstance(value, (int, float)):
        return {"number", "integer"} if float(value).is_integer() else {"number"}
    return {"string"} if isinstance(value, str) else set()


def _rejections(node: yaml.Node, schema: Schema) -> Iterator[str]:
    """Yield why a value of the right type is rejected, fields and items aside."""
    value = tree.plain(node)
    if "enum" in schema and value not in schema["enum"]:
        yield f"invalid value {_shown(node)}: use {', '.join(map(str, schema['enum']))}"
    if isinstance(value, str):
        yield from _size(len(value), schema, "Length", "characters")
        if "pattern" in schema and not _matches(schema["pattern"], value):
            yield f"invalid value {_shown(node)}: it must match {schema['pattern']}"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _range(value, schema)
    elif isinstance(value, list):
        yield from _size(len(value), schema, "Items", "items")
    elif isinstance(value, dict):
        yield from _size(len(value), schema, "Properties", "fields")
    yield from _combined(node, schema)


def _size(size: int, schema: Schema, what: str, unit: str) -> Iterator[str]:
    if size < schema.get(f"min{what}", 0):
        yield f"has {size} {unit}, fewer than {schema[f'min{what}']}"
    if size > schema.get(f"max{what}", size):
        yield f"has {size} {unit}, more than {schema[f'max{what}']}"


def _range(value: float, schema: Schema) -> Iterator[str]:
    least, most = schema.get("minimum", value), schema.get("maximum", value)
    if value < least or (value == least and "minimum" in schema and schema.get("exclusiveMinimum")):
        yield f"{value} is too small: the minimum is {least}{_exclusive(schema, 'exclusiveMinimum')}"
    if value > most or (value == most and "maximum" in schema and schema.get("exclusiveMaximum")):
        yield f"{value} is too large: the maximum is {most}{_exclusive(schema, 'exclusiveMaximum')}"
    if "multipleOf" in schema and value % schema["multipleOf"]:
        yield f"{value} is not a multiple of {schema['multipleOf']}"


def _exclusive(schema: Schema, field: str) -> str:
    return ", exclusive" if schema.get(field) else ""


def _combined(node: yaml.Node, schema: Schema) -> Iterator[str]:
    """Yield the violations of `allOf`, `anyOf`, `oneOf` and `not`, which constrain values and declare no fields."""
    for constraint in schema.get("allOf") or ():
        yield from (violation.message for violation in _violations(node, _constraint(constraint), ""))
    for name in ("anyOf", "oneOf"):
        choices = schema.get(name) or ()
        matches = sum(not any(_violations(node, _constraint(choice), "")) for choice in choices)
        if choices and (not matches or (name == "oneOf" and matches > 1)):
            yield f"matches {matches} of the schema's {name} alternatives"
    if "not" in schema and not any(_violations(node, _constraint(schema["not"]), "")):
        yield "matches a schema that `not` excludes"


def _constraint(schema: Schema) -> Schema:
    """Return a nested constraint with the implicit permission of other fields."""
    fields = {name: _constraint(field) for name, field in _map(schema, "properties").items()}
    return {**schema, _KEPT: True, **({"properties": fields} if fields else {})}


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True  # the API server's expressions differ in details from Python's


def _shown(node: yaml.Node) -> str:
    return shortened(str(node.value) if isinstance(node, yaml.ScalarNode) else tree.kind_of(node), _SHOWN)


def _map(schema: Schema, field: str) -> Mapping[str, Any]:
    value = schema.get(field)
    return value if isinstance(value, dict) else {}
