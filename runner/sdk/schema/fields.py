"""Conversion of a role's argument spec to the schema of a CRD's `spec`. Pure.

Input: `options` of `meta/argument_specs.yml`
(https://docs.ansible.com/ansible/latest/playbook_guide/playbooks_reuse_roles.html#specification-format).
Output: a structural OpenAPI v3 schema
(https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema).

Each part of an argument spec that a schema cannot express is reported as a warning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from runner.base.yamlfile import nodes
from runner.core.engine.params import snake_case
from runner.sdk.schema import rules
from runner.values.errors import meant

Json = dict[str, Any]

OPERATOR_VARIABLES = frozenset({"ansible_operator_meta", "ansible_operator_run"})
"""Variables from the operator, not from the spec."""
ANYTHING: Json = {"x-kubernetes-preserve-unknown-fields": True}
_OPEN_MAP: Json = {"type": "object", **ANYTHING}
_SIMPLE: dict[str, Json] = {
    "str": {"type": "string"},
    "path": {"type": "string"},
    "int": {"type": "integer", "format": "int64"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "bytes": {"x-kubernetes-int-or-string": True},
    "bits": {"x-kubernetes-int-or-string": True},
    "json": ANYTHING,
    "jsonarg": ANYTHING,
    "raw": ANYTHING,
}
TYPES = frozenset({*_SIMPLE, "dict", "list"})
"""Types of options."""
_MARKUP = re.compile(r"\b(?:(?:C|V|O|E|RV|B|I|M|U)\((?P<plain>[^()]+)\)|L\((?P<text>[^(),]+), *(?P<link>[^()]+)\))")
"""Ansible's markup of texts, which readers of a CRD would see as plain characters
(https://docs.ansible.com/ansible/latest/dev_guide/ansible_markup.html).
"""
_BOOLEANS = {True: ("y", "yes", "on", "1", "true", "t", 1), False: ("n", "no", "off", "0", "false", "f", 0)}
"""Values that Ansible takes for a boolean."""
_NOT_TEXT = {"bool": "a boolean", "int": "a number", "float": "a number", "timestamp": "a date"}
_FITS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


@dataclass(slots=True)
class SchemaMaker:
    """Generator of schemas; collects warnings."""

    snake_case_parameters: bool = True
    """True if the watch converts keys of the spec to snake_case."""
    problems: list[str] = field(default_factory=list)

    def spec(self, entry: Mapping[str, Any], given: frozenset[str] = frozenset()) -> Json:
        """Return the schema of the whole spec. `given` are the options that the watch's `vars` set."""
        others = OPERATOR_VARIABLES | given
        own = {name: option for name, option in self._options(entry, "spec").items() if name not in others}
        schema = self._object({**entry, "options": own}, "spec")
        text = _text(entry.get("description")) or _text(entry.get("short_description"))
        schema = {**({"description": text} if text else {}), **schema}
        # An object without a spec runs with an empty one, unless a field in it is required.
        if "required" not in schema:
            schema["default"] = {}
        return schema

    def _object(self, holder: Mapping[str, Any], path: str) -> Json:
        options = self._options(holder, path)
        names = {name: self.field_of(name, path) for name in options}
        properties = {
            names[name]: self._option(option if isinstance(option, dict) else {}, f"{path}.{names[name]}")
            for name, option in options.items()
        }
        schema: Json = {"type": "object", "properties": properties}
        required = [names[name] for name, option in options.items() if _is_required(option)]
        if required:
            schema["required"] = sorted(required)
        validations, problems = rules.of(holder, names)
        self.problems += [f"{path}: {sentence}" for sentence in problems]
        if validations:
            schema["x-kubernetes-validations"] = validations
        return schema

    def _options(self, holder: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        """Return the options of an argument spec without those that no field can have."""
        written: Any = holder.get("options") or {}
        entries = written.items() if isinstance(written, dict) else ()
        options = {name: option for name, option in entries if isinstance(name, str)}
        if options != written:
            self.problems.append(f"{path}: options must be a map from names to options; quote names such as on and 1")
        return options

    def _option(self, option: Mapping[str, Any], path: str) -> Json:
        schema: Json = {}
        text = _text(option.get("description"))
        if text:
            schema["description"] = text
        schema |= self._typed(option, path)
        if option.get("no_log") is True and schema.get("type") == "string":
            schema["format"] = "password"
        self._add_values(schema, option, path)
        return schema

    def _typed(self, option: Mapping[str, Any], path: str) -> Json:
        name = str(option.get("type") or "str")
        if name == "dict":
            return self._object(option, path) if option.get("options") else dict(_OPEN_MAP)
        if name == "list":
            items: Json = dict(ANYTHING)
            elements = option.get("elements")
            if elements:
                inner = {
                    key: value for key, value in option.items() if key not in {"description", "default", "choices"}
                }
                items = self._typed({**inner, "type": elements}, f"{path}[]")
            if choices := _choices(option):
                items["enum"] = choices
            return {"type": "array", "items": items}
        if name not in _SIMPLE:
            self.problems.append(f"{path}: unknown type {name!r}{meant(name, TYPES)}; the schema accepts any value")
            return dict(ANYTHING)
        return dict(_SIMPLE[name])

    def _add_values(self, schema: Json, option: Mapping[str, Any], path: str) -> None:
        if schema.get("type") != "array" and (choices := _choices(option)):
            schema["enum"] = _accepted(choices) if schema.get("type") == "string" else choices
        default = option.get("default")
        if default is None:
            return
        if "{{" in str(default):
            self.problems.append(
                f"{path}: the default {default!r} is skipped, because only the role can evaluate a template"
            )
        elif "type" in schema and not _FITS[schema["type"]](default):
            self.problems.append(
                f"{path}: the default {default!r} is skipped, because its type is not {schema['type']}"
            )
        elif "enum" in schema and default not in schema["enum"]:
            self.problems.append(f"{path}: the default {default!r} is skipped, because it is not one of the choices")
        elif not _fits(default, schema):
            self.problems.append(
                f"{path}: the default {default!r} is skipped, because the API server would refuse a value in it"
            )
        else:
            schema["default"] = default

    def field_of(self, name: str, path: str) -> str:
        """Return the field of the spec that becomes this variable of the role."""
        if not self.snake_case_parameters:
            return name
        first, *rest = name.split("_")
        camel = first + "".join(word[:1].upper() + word[1:] for word in rest)
        for key in (camel, name):
            if snake_case(key) == name:
                return key
        self.problems.append(f"{path}.{name}: {renamed(name)}")
        return name


def renamed(name: str) -> str:
    """Return what to do about an option that is no variable of a spec: a field with its name becomes another one."""
    variable = snake_case(name)
    return f"the role gets this field as the variable {variable}; name the option {variable}"


def _fits(value: Any, schema: Json) -> bool:
    """Return True if the API server accepts a value of this schema, with its items and fields, as a default."""
    if ("type" in schema and not _FITS[schema["type"]](value)) or ("enum" in schema and value not in schema["enum"]):
        return False
    if isinstance(value, list):
        return all(_fits(item, schema.get("items", {})) for item in value)
    properties = schema.get("properties")
    if not isinstance(value, dict) or properties is None:
        return True
    is_complete = value.keys() >= set(schema.get("required", ()))
    return is_complete and all(name in properties and _fits(item, properties[name]) for name, item in value.items())


def _is_required(option: Any) -> bool:
    return isinstance(option, dict) and option.get("required") is True and option.get("default") is None


def _choices(option: Mapping[str, Any]) -> list[Any]:
    """Return the values of `choices`, which is a list or, since 2.14, a map from choice to description."""
    choices = option.get("choices")
    return list(choices) if isinstance(choices, (list, dict)) else []


def _accepted(choices: list[Any]) -> list[Any]:
    """Return the texts that Ansible accepts for choices of text: for a boolean, its name in Python, if it is clear."""
    enum: list[Any] = []
    for choice in choices:
        if not isinstance(choice, bool):
            enum.append(choice)
        elif {choice} == {value for value in choices if value in _BOOLEANS[choice]} and str(choice) not in enum:
            enum.append(str(choice))
    return enum or choices


def unquoted_choices(holder: yaml.Node | None) -> Iterator[tuple[yaml.ScalarNode, str]]:
    """Yield the choices of text that YAML reads as another type, and what to do about each."""
    for name, option in nodes.pairs(nodes.at(holder, "options")):
        yield from unquoted_choices(option)
        kind = nodes.text(nodes.at(option, "type")) or "str"
        if (nodes.text(nodes.at(option, "elements")) if kind == "list" else kind) not in {"str", "path"}:
            continue
        for choice in nodes.items(nodes.at(option, "choices")):
            what = _NOT_TEXT.get(choice.tag.rpartition(":")[2])
            if what and choice.value not in {"True", "False"}:
                why = f"the role does not accept the text {choice.value}, because YAML reads this choice as {what}"
                also = ", or set `type: bool`" if what == "a boolean" else ""
                yield choice, f"{name.value}: {why}; write '{choice.value}' in quotes{also}"


def _text(description: Any) -> str:
    """Return a description as one string without markup. It is a string or a list of paragraphs."""
    paragraphs = description if isinstance(description, list) else [description]
    whole = "\n".join(str(paragraph).strip() for paragraph in paragraphs if paragraph)
    return _MARKUP.sub(lambda match: match["plain"] or f"{match['text']} ({match['link']})", whole)
