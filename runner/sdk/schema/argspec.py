"""Conversion of the schema of a CRD's `spec` to a role's argument spec: the inverse of `fields` and `rules`. Pure.

Input: the OpenAPI v3 schema of `spec`. Output: `options` of `meta/argument_specs.yml`, and the constraints between
options, for rules in the form that `rules` writes. A part of a schema that an argument spec cannot express is reported
as a warning. It would be lost if the CRD were generated from the role again.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from runner.core.engine.params import snake_case
from runner.sdk.schema.fields import Json
from runner.sdk.schema.rules import unescaped

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict"}
_SUPPORTED = frozenset(
    {
        *("type", "format", "description", "default", "enum", "properties", "required", "items"),
        *("additionalProperties", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"),
        *("x-kubernetes-validations", "x-kubernetes-map-type", "x-kubernetes-list-type"),
    }
)
"""Keys that are converted, or that do not restrict values."""
_PLAIN_FORMATS = frozenset({"", "int64", "double", "password"})
_HAS = r"has\(self\.(\w+)\)"
_NAME = re.compile(_HAS)
_PAIR = rf"!\({_HAS} && {_HAS}\)"
_SAME = rf"{_HAS} == {_HAS}"


@dataclass(slots=True)
class ArgumentSpecMaker:
    """Generator of argument specs; collects warnings."""

    snake_case_parameters: bool = True
    """True if the watch converts keys of the spec to snake_case."""
    problems: list[str] = field(default_factory=list)

    def spec(self, schema: Mapping[str, Any]) -> Json:
        """Return the argument spec's `options` and the constraints between them."""
        return self._object(schema, "spec")

    def _object(self, schema: Mapping[str, Any], path: str) -> Json:
        properties: Mapping[str, Any] = schema.get("properties") or {}
        required = set(schema.get("required") or ())
        options: Json = {}
        names: dict[str, str] = {}
        for key, value in properties.items():
            name = snake_case(key) if self.snake_case_parameters else key
            if name in options:
                self.problems.append(
                    f"{path}.{key}: skipped, because another field has the same variable name {name!r}"
                )
                continue
            names[key] = name
            options[name] = self._option(value, f"{path}.{key}", required=key in required)
        spec: Json = {"options": options}
        for key, group in self._rules(schema.get("x-kubernetes-validations") or (), names, path):
            if key == "required_by":
                spec.setdefault(key, {}).update(group)
            else:
                spec.setdefault(key, []).append(group)
        return spec

    def _option(self, schema: Mapping[str, Any], path: str, *, required: bool) -> Json:
        option: Json = {}
        if text := str(schema.get("description") or "").strip():
            option["description"] = text.split("\n") if "\n" in text else text
        option |= self._typed(schema, path)
        option["required"] = required
        if "default" in schema:
            option["default"] = schema["default"]
        if schema.get("format") == "password":
            option["no_log"] = True
        return option

    def _typed(self, schema: Mapping[str, Any], path: str) -> Json:
        self._note_unsupported(schema, path)
        name = _TYPES.get(str(schema.get("type")), "raw")
        option: Json = {"type": name}
        if "enum" in schema:
            option["choices"] = list(schema["enum"])
        if name == "dict" and schema.get("properties"):
            option |= self._object(schema, path)
        if name == "list" and isinstance(schema.get("items"), dict) and schema["items"].get("type"):
            inner = self._typed(schema["items"], f"{path}[]")
            option |= {"elements": inner.pop("type"), **inner}
        return option

    def _note_unsupported(self, schema: Mapping[str, Any], path: str) -> None:
        unsupported = sorted(set(schema) - _SUPPORTED)
        if str(schema.get("format") or "") not in _PLAIN_FORMATS:
            unsupported.append("format")
        if unsupported:
            self.problems.append(
                f"{path}: an argument spec cannot express {', '.join(unsupported)}; only the CRD has it"
            )

    def _rules(
        self, validations: Iterable[Mapping[str, Any]], names: Mapping[str, str], path: str
    ) -> Iterable[tuple[str, Any]]:
        for validation in validations:
            rule = str(validation.get("rule") or "")
            parts = _parsed(rule)
            try:
                sentence = None if parts is None else _rule_of(*parts, names)
            except KeyError:
                sentence = None
            if sentence is None:
                self.problems.append(
                    f"{path}: an argument spec cannot express the rule `{rule}`; "
                    "add it to meta/crd_validations.yml of the role"
                )
            else:
                yield sentence


_Parsed: TypeAlias = tuple[str, list[str], Any, list[str]]
"""Kind of a rule, its fields, the value, and the required fields."""


def _parsed(rule: str) -> _Parsed | None:
    """Return the parts of a rule; None if `rules` does not write this form."""
    names = [unescaped(name) for name in _NAME.findall(rule)]
    for form, take in _FORMS:
        if match := form.fullmatch(rule):
            return take(match, names)
    return None


def _exclusive(_: re.Match[str], names: list[str]) -> _Parsed | None:
    group = list(dict.fromkeys(names))
    pairs = set(zip(names[::2], names[1::2], strict=True))
    return ("mutually_exclusive", group, None, []) if pairs == set(itertools.combinations(group, 2)) else None


def _required_together(_: re.Match[str], names: list[str]) -> _Parsed | None:
    return ("required_together", [names[0], *names[1::2]], None, []) if len(set(names[::2])) == 1 else None


def _if(match: re.Match[str], names: list[str]) -> _Parsed | None:
    any_of, all_of = " || " in match[3], " && " in match[3]
    try:
        value = json.loads(match[2])
    except ValueError:
        return None
    return None if any_of and all_of else ("required_any" if any_of else "required_if", names[:1], value, names[1:])


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], list[str]], _Parsed | None]], ...] = (
    (re.compile(rf"{_PAIR}(?: && {_PAIR})*"), _exclusive),
    (re.compile(rf"{_SAME}(?: && {_SAME})*"), _required_together),
    (re.compile(rf"{_HAS}(?: \|\| {_HAS})*"), lambda _, names: ("required_one_of", names, None, [])),
    (
        re.compile(rf"!{_HAS} \|\| \({_HAS}(?: && {_HAS})*\)"),
        lambda _, names: ("required_by", names[:1], None, names[1:]),
    ),
    (re.compile(rf"!\({_HAS} && self\.\1 == (.+?)\) \|\| \(({_HAS}(?: (?:&&|\|\|) {_HAS})*)\)"), _if),
)


def _rule_of(kind: str, group: list[str], value: Any, required: list[str], names: Mapping[str, str]) -> tuple[str, Any]:
    """Return a rule as an entry of an argument spec.

    Raises:
        KeyError: the rule contains a field without an option.
    """
    options, needed = [names[name] for name in group], [names[name] for name in required]
    if kind == "required_by":
        return kind, {options[0]: needed}
    if kind in {"required_if", "required_any"}:
        return "required_if", [options[0], value, needed, *([True] if kind == "required_any" else [])]
    return kind, options
