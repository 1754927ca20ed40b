"""Grammar of label selectors, label keys and label values. Pure.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")

_BUILTIN_GROUPS = frozenset(
    f"{name}.k8s.io"
    for name in (
        *("admissionregistration", "apiextensions", "apiregistration", "authentication", "authorization"),
        *("certificates", "coordination", "discovery", "events", "flowcontrol.apiserver", "networking", "node"),
        *("rbac.authorization", "resource", "scheduling", "storage"),
    )
)
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_LONGEST_SUBDOMAIN = 253


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One condition on a label. `values` is empty for Exists and DoesNotExist only."""

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


def render(requirements: Iterable[LabelRequirement]) -> str:
    """Return the selector that requires all conditions, in a canonical order."""
    return ",".join(sorted(map(str, requirements)))


def key_problem(key: str) -> str:
    """Return the error of a qualified name (label key, finalizer); empty if it is valid."""
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix):
        return f"invalid prefix in {key!r}: use a DNS name, as in example.com/name"
    if not _NAME.fullmatch(name):
        return f"invalid name {key!r}: use at most 63 letters, digits, '-', '_', '.', after an optional prefix"
    return ""


def is_builtin_group(group: str) -> bool:
    """Return whether Kubernetes itself serves an API group, not a CRD. Its validation of names is stricter."""
    return "." not in group or group in _BUILTIN_GROUPS


def value_problem(value: str) -> str:
    """Return the error of a label value; empty if it is valid."""
    if value and not _NAME.fullmatch(value):
        return f"invalid label value {value!r}: use at most 63 letters, digits, '-', '_', '.', no punctuation at an end"
    return ""


def is_subdomain(text: str) -> bool:
    """Return whether `text` is a DNS subdomain (RFC 1123), as API groups are."""
    return len(text) <= _LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None
