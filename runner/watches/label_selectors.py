"""Label selectors: from `matchLabels` and `matchExpressions` to the one string the API server takes.

Owns: the rules for label keys and values
(https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set) and the string's
grammar (same page, "Label selectors"). Pure; imports nothing of this package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_LONGEST_SUBDOMAIN = 253


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a label. `values` is empty for Exists and DoesNotExist, and only for these."""

    key: str
    operator: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        match self.operator:
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case "In" if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            case _:
                return f"{self.key} {self.operator.lower()} ({','.join(sorted(set(self.values)))})"


def render(requirements: Iterable[Requirement]) -> str:
    """Join requirements, all of which must hold, in an order that depends on them alone."""
    return ",".join(sorted(map(str, requirements)))


def key_problem(key: str) -> str:
    """Say what is wrong with a qualified name (a label's key, a finalizer), or nothing (`""`) when it is right."""
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix):
        return f"{key!r} has a prefix that is no DNS name; write it like example.com/name"
    if not _NAME.fullmatch(name):
        return f"{key!r} is not valid; write letters, digits, '-', '_' or '.' (at most 63), perhaps after example.com/"
    return ""


def value_problem(value: str) -> str:
    """Say what is wrong with a label's value, or nothing (`""`) when it is right."""
    if value and not _NAME.fullmatch(value):
        return (
            f"{value!r} is no label value; write at most 63 letters, digits, '-', '_' or '.', none of these at an end"
        )
    return ""


def is_subdomain(text: str) -> bool:
    """Whether `text` is a DNS subdomain (RFC 1123), as API groups are."""
    return len(text) <= _LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None
