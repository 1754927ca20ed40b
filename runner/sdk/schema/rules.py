"""Conversion of constraints between options in argument specs to rules of the Common Expression Language. Pure.

The rules are in the schema of the object with the options, so `self` is this object
(https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Rule = dict[str, str]

_RESERVED = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
        *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
"""Reserved words of the language."""
_HAS_FIELD = re.compile(r"\s*has\(self\.(\w+)\)\s*")
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def of(holder: Mapping[str, Any], names: Mapping[str, str]) -> tuple[list[Rule], list[str]]:
    """Return the rules of `holder`, and sentences about invalid ones.

    `names` maps the options to fields.
    """
    rules: list[Rule] = []
    problems: list[str] = []
    makers: tuple[tuple[str, Callable[[Any, Mapping[str, str]], Iterator[Rule]]], ...] = (
        ("mutually_exclusive", _exclusive),
        ("required_together", _required_together),
        ("required_one_of", _one_of),
        ("required_if", _if),
        ("required_by", _by),
    )
    for key, make in makers:
        try:
            rules += make(holder.get(key) or (), names)
        except (KeyError, TypeError, ValueError, AttributeError):
            problems.append(f"{key} is skipped, because it is invalid or names an unknown option")
    return rules, problems


def requires_a_field(rule: str, schema: Mapping[str, Any]) -> bool:
    """Return True if an object of this schema without any set field certainly breaks the rule.

    It does if each alternative of the rule requires a field with `has`, and none of these fields has a default.
    """
    properties: Mapping[str, Any] = schema.get("properties") or {}

    def requires(alternative: str) -> bool:
        parts = alternative.split("&&")
        if any(part.count("(") != part.count(")") for part in parts):
            return False
        fields = [unescaped(match[1]) for part in parts if (match := _HAS_FIELD.fullmatch(part))]
        return any("default" not in properties.get(name, {}) for name in fields)

    return all(map(requires, rule.split("||")))


def _exclusive(groups: Any, names: Mapping[str, str]) -> Iterator[Rule]:
    for group in _groups(groups):
        # Pairs, not a sum: within a list without a limit, the API server rejects rules that iterate over lists again.
        pairs = itertools.combinations((_has(name, names) for name in group), 2)
        rule = " && ".join(f"!({first} && {second})" for first, second in pairs) or "true"
        yield {"rule": rule, "message": f"only one of {_list(group, names)} may be set"}


def _required_together(groups: Any, names: Mapping[str, str]) -> Iterator[Rule]:
    for group in _groups(groups):
        first, *rest = (_has(name, names) for name in group)
        same = " && ".join(f"{first} == {other}" for other in rest) or "true"
        yield {"rule": same, "message": f"{_list(group, names)} must be set together"}


def _one_of(groups: Any, names: Mapping[str, str]) -> Iterator[Rule]:
    for group in _groups(groups):
        rule = " || ".join(_has(name, names) for name in group)
        yield {"rule": rule, "message": f"one of {_list(group, names)} must be set"}


def _if(conditions: Any, names: Mapping[str, str]) -> Iterator[Rule]:
    for condition in conditions:
        name, value, needed, *rest = condition
        any_of = bool(rest and rest[0])
        are_set = (" || " if any_of else " && ").join(_has(option, names) for option in needed)
        literal = json.dumps(value, ensure_ascii=False)
        rule = f"!({_has(name, names)} && {_field(name, names)} == {literal}) || ({are_set})"
        what = f"one of {_list(needed, names)}" if any_of and len(needed) > 1 else _list(needed, names)
        yield {"rule": rule, "message": f"{what} must be set when {names[name]} is {literal}"}


def _by(owners: Any, names: Mapping[str, str]) -> Iterator[Rule]:
    for name, value in dict(owners).items():
        needed = [value] if isinstance(value, str) else list(value)
        are_set = " && ".join(_has(option, names) for option in needed)
        rule = f"!{_has(name, names)} || ({are_set})"
        yield {"rule": rule, "message": f"{_list(needed, names)} must be set when {names[name]} is"}


def _groups(groups: Any) -> Iterator[list[str]]:
    """Yield lists of names. A single list may be given without an outer list."""
    yield from [groups] if groups and all(isinstance(name, str) for name in groups) else map(list, groups)


def _list(group: Any, names: Mapping[str, str]) -> str:
    *most, last = (names[name] for name in group)
    return f"{', '.join(most)} and {last}" if most else last


def _has(name: str, names: Mapping[str, str]) -> str:
    return f"has({_field(name, names)})"


def _field(name: str, names: Mapping[str, str]) -> str:
    return f"self.{escaped(names[name])}"


def escaped(key: str) -> str:
    """Return a key in the escaped form for a path of the language."""
    if key in _RESERVED:
        return f"__{key}__"
    return re.sub(r"__|\.|-|/", lambda match: _ESCAPES[match[0]], key)


def unescaped(name: str) -> str:
    """Return the key from which `escaped` created this name."""
    if name[:2] == name[-2:] == "__" and name[2:-2] in _RESERVED:
        return name[2:-2]
    plain = {spelling: character for character, spelling in _ESCAPES.items()}
    return re.sub("|".join(plain), lambda match: plain[match[0]], name)
