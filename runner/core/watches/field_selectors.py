"""Grammar of field selectors. Pure.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/. The fields that
a kind supports depend on the API server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

NAME = "metadata.name"
_LASTING = (NAME, "metadata.namespace")
"""Immutable fields."""
_FIELD = r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*)*"
_VALUE = r"(?:[^\\,=\s]|\\[\\,=])*"
_CONDITION = re.compile(rf"({_FIELD})\s*(!=|==|=)\s*({_VALUE})")
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:@]*")
"""Most kinds allow less; names of RBAC objects look like `system:node`."""
_SEPARATOR = re.compile(r"(?<!\\),")


@dataclass(frozen=True, slots=True, order=True)
class FieldCondition:
    r"""One condition. `value` has `\\`, `,` and `=` escaped, as in a selector."""

    field: str
    value: str
    equal: bool

    def __str__(self) -> str:
        return f"{self.field}{'=' if self.equal else '!='}{self.value}"


def parse(text: str) -> tuple[FieldCondition, ...]:
    """Parse a selector such as `metadata.name=one,spec.mode!=off`. Raises ValueError with advice."""
    return tuple(sorted({_condition(part.strip()) for part in _SEPARATOR.split(text)})) if text.strip() else ()


def render(conditions: Iterable[FieldCondition]) -> str:
    """Return the selector that requires all conditions."""
    return ",".join(map(str, sorted(set(conditions))))


def named(name: str) -> FieldCondition:
    """Return the condition that selects one name."""
    return FieldCondition(NAME, name, equal=True)


def lasting(selector: str) -> str:
    """Return the conditions of a selector whose fields are immutable, as a selector."""
    return render(condition for condition in parse(selector) if condition.field in _LASTING)


def can_be_left(selector: str) -> bool:
    """Return whether an object can stop matching the selector."""
    return any(condition.field not in _LASTING for condition in parse(selector))


def name_problem(name: str) -> str:
    """Return the error of an object's name; empty if it is valid."""
    if not _NAME.fullmatch(name):
        return f"invalid object name {name!r}: use the value of metadata.name"
    return ""


def _condition(text: str) -> FieldCondition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ValueError(
            f"invalid field selector {text!r}: use path=value or path!=value, separated by commas, "
            "such as metadata.name=main"
        )
    field, operator, value = match.groups()
    return FieldCondition(field, value, equal=operator != "!=")
