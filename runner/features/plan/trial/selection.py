"""Label and field selectors of list requests, matched against planned objects. Pure.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#api. Field selectors compare the
field at their path, which holds for most fields that the API server supports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from runner.values.objects import Object, labels_of

_SET = re.compile(r"\s*([^\s,()=!<>]+)\s+(in|notin)\s*\(([^()]*)\)\s*(?:,|$)")
_OTHER = re.compile(r"\s*+(!?)\s*+([^\s,()=!<>]+)\s*+(?:(==|=|!=|>|<)\s*+([^,()=!<>\s]*))?\s*+(?:,|$)")
_FIELD = re.compile(r"\s*([^=!,\s]+)\s*(!=|==|=)((?:[^\\,=]|\\.)*)(?:,|$)")
_ESCAPED = re.compile(r"\\(.)")

_Condition: TypeAlias = Callable[[Object], bool]


class SelectorError(ValueError):
    """Error: a selector is invalid."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Conditions on an object; all must hold."""

    conditions: tuple[_Condition, ...]

    @classmethod
    def parse(cls, labels: Iterable[str], fields: Iterable[str]) -> Selector:
        """Parse the values of `labelSelector` and `fieldSelector`. Raises SelectorError."""
        conditions: list[_Condition] = []
        for text in labels:
            conditions += _labels(text)
        for text in fields:
            conditions += _fields(text)
        return cls(tuple(conditions))

    def matches(self, obj: Object) -> bool:
        """Return whether an object matches."""
        return all(condition(obj) for condition in self.conditions)


def _labels(text: str) -> list[_Condition]:
    conditions: list[_Condition] = []
    at = 0
    while at < len(text.rstrip()):
        if match := _SET.match(text, at):
            key, operator, values = match[1], match[2], frozenset(value.strip() for value in match[3].split(","))
            conditions.append(_label(key, operator, values))
        elif (match := _OTHER.match(text, at)) and not (match[1] and match[3]):
            key, operator, value = match[2], "!" if match[1] else match[3] or "exists", match[4] or ""
            conditions.append(_label(key, operator, frozenset({value})))
        else:
            raise SelectorError(f"invalid label selector {text!r}")
        at = match.end()
    return conditions


def _label(key: str, operator: str, values: frozenset[str]) -> _Condition:
    def holds(obj: Object) -> bool:
        labels = labels_of(obj)
        value = labels.get(key)
        match operator:
            case "in" | "=" | "==":
                return value in values
            case "notin" | "!=":
                return value not in values
            case "exists":
                return value is not None
            case "!":
                return value is None
            case _:
                return _is_beyond(value, operator, next(iter(values)))

    return holds


def _is_beyond(value: str | None, operator: str, bound: str) -> bool:
    try:
        one, other = int(value or ""), int(bound)
    except ValueError:
        return False
    return one > other if operator == ">" else one < other


def _fields(text: str) -> list[_Condition]:
    conditions: list[_Condition] = []
    at = 0
    while at < len(text.rstrip()):
        match = _FIELD.match(text, at)
        if match is None:
            raise SelectorError(f"invalid field selector {text!r}")
        conditions.append(_field(match[1], _ESCAPED.sub(r"\1", match[3].strip()), equal=match[2] != "!="))
        at = match.end()
    return conditions


def _field(path: str, expected: str, *, equal: bool) -> _Condition:
    def holds(obj: Object) -> bool:
        value: Any = obj
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        return (text == expected) is equal

    return holds
