"""Field selectors: conditions on an object's fields that the API server checks.

Owns: the string's grammar
(https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/) and which of its conditions hold
for an object's whole life. Which fields a kind can be selected by is the API server's to know. Pure; imports nothing
of this package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

NAME = "metadata.name"
_LASTING = (NAME, "metadata.namespace")
"""Fields that no object can change."""
_FIELD = r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*)*"
_VALUE = r"(?:[^\\,=\s]|\\[\\,=])*"
_CONDITION = re.compile(rf"({_FIELD})\s*(!=|==|=)\s*({_VALUE})")
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:@]*")
"""Most kinds allow less; those of RBAC have names such as `system:node`."""
_SEPARATOR = re.compile(r"(?<!\\),")


@dataclass(frozen=True, slots=True, order=True)
class Condition:
    r"""One condition. `value` is written as in a selector, with `\\`, `,` and `=` escaped."""

    field: str
    value: str
    equal: bool

    def __str__(self) -> str:
        return f"{self.field}{'=' if self.equal else '!='}{self.value}"


def parse(text: str) -> tuple[Condition, ...]:
    """Read a selector, as `metadata.name=one,spec.mode!=off`. A ValueError says what is wrong with it."""
    return tuple(sorted({_condition(part.strip()) for part in _SEPARATOR.split(text)})) if text.strip() else ()


def render(conditions: Iterable[Condition]) -> str:
    """Join conditions, all of which must hold."""
    return ",".join(map(str, sorted(set(conditions))))


def named(name: str) -> Condition:
    """The condition that selects one name."""
    return Condition(NAME, name, equal=True)


def lasting(selector: str) -> str:
    """Return what of a selector an object that it selects cannot leave."""
    return render(condition for condition in parse(selector) if condition.field in _LASTING)


def can_be_left(selector: str) -> bool:
    """Whether an object that is selected may not be so later."""
    return any(condition.field not in _LASTING for condition in parse(selector))


def name_problem(name: str) -> str:
    """Say what is wrong with an object's name, or nothing (`""`) when it can be one."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is no object's name; write one name as it stands in metadata.name"
    return ""


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is no condition on a field; write path=value or path!=value, joined by commas, "
            "such as metadata.name=main"
        )
    field, operator, value = found.groups()
    return Condition(field, value, equal=operator != "!=")
