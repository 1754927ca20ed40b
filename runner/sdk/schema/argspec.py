"""Conversion of the schema of a CRD's `spec` to a role's argument spec: the inverse of `fields` and `rules`. Pure.

Input: the OpenAPI v3 schema of `spec`. Output: `options` of `meta/argument_specs.yml`, and the constraints between
options, for rules in the form that `rules` writes. A part of a schema that an argument spec cannot express is reported
as a warning. It would be lost if the CRD were generated from the role again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.core.engine.params import snake_case
from runner.sdk.schema import rules
from runner.sdk.schema.fields import Json
from runner.values.objects import mapping, maps

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
_NAME = re.compile(r"has\(self\.(\w+)\)")
_VALUE = re.compile(r" == (.+?)\) \|\| \(")


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
        properties = mapping(schema.get("properties"))
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
            options[name] = self._option(mapping(value), f"{path}.{key}", required=key in required)
        spec: Json = {"options": options}
        for key, group in self._rules(maps(schema.get("x-kubernetes-validations")), names, path):
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
        # The API server fills in a default, and Ansible refuses an option with both.
        option["required"] = required and schema.get("default") is None
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
            entry = _entry_of(rule, names)
            if entry is None:
                self.problems.append(
                    f"{path}: an argument spec cannot express the rule `{rule}`; "
                    "add it to meta/crd_validations.yml of the role"
                )
            else:
                yield entry


def _entry_of(rule: str, names: Mapping[str, str]) -> tuple[str, Any] | None:
    """Return the entry of an argument spec from which `rules` makes this rule; None if there is none.

    `names` maps fields to options.
    """
    options = [names.get(rules.unescaped(name), "") for name in _NAME.findall(rule)]
    fields = {option: field for field, option in names.items()}
    for kind, group in _candidates(rule, options) if all(options) and options else ():
        made, _ = rules.of({kind: group if kind == "required_by" else [group]}, fields)
        if [validation["rule"] for validation in made] == [rule]:
            return kind, group
    return None


def _candidates(rule: str, options: list[str]) -> Iterator[tuple[str, Any]]:
    for kind in ("mutually_exclusive", "required_together", "required_one_of"):
        yield kind, list(dict.fromkeys(options))
    first, *needed = options
    yield "required_by", {first: needed}
    if match := _VALUE.search(rule):
        try:
            value = json.loads(match[1])
        except ValueError:
            return
        yield from (("required_if", [first, value, needed]), ("required_if", [first, value, needed, True]))
