"""Label selectors and field selectors of watches.yaml: their grammar, and the fields that contain them.

Sources: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/,
https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/ and
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/label-selector/. The fields that a kind supports
depend on the API server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import yaml

from runner.base.yamlfile.fields import Fields
from runner.core.watches import field

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_SELECTOR = field.section(
    "selector",
    "selector: {%s}",
    field.mapping("matchLabels", "labels and their values", "{tier: gold}", "{}"),
    field.listing(
        "matchExpressions",
        "conditions on labels; an object must meet all",
        "[{key: tier, operator: In, values: [gold]}]",
        "[]",
    ),
    go="yes",
)
_EXPRESSIONS = field.section(
    "selector.matchExpressions[]",
    "selector: {matchExpressions: [{key: tier, %s}]}",
    field.text(
        "key", "a label's key", "tier", required=True, frame="selector: {matchExpressions: [{%s, operator: Exists}]}"
    ),
    field.text(
        "operator", "`In`, `NotIn`, `Exists` or `DoesNotExist`", "DoesNotExist", values=OPERATORS, required=True
    ),
    field.listing(
        "values",
        "values, for `In` and `NotIn`",
        "[gold, silver]",
        frame="selector: {matchExpressions: [{key: tier, operator: NotIn, %s}]}",
    ),
    go="yes",
)
SECTIONS = (_SELECTOR, _EXPRESSIONS)

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
_NAME_FIELD = "metadata.name"
_LASTING = (_NAME_FIELD, "metadata.namespace")
"""Immutable fields."""
_FIELD = r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*)*"
_VALUE = r"(?:[^\\,=\s]|\\[\\,=])*"
_CONDITION = re.compile(rf"({_FIELD})\s*(!=|==|=)\s*({_VALUE})")
_OBJECT_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:@]*")
"""Most kinds allow less; names of RBAC objects look like `system:node`."""
_SEPARATOR = re.compile(r"(?<!\\),")


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


def render_labels(requirements: Iterable[LabelRequirement]) -> str:
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


@dataclass(frozen=True, slots=True, order=True)
class FieldCondition:
    r"""One condition. `value` has `\\`, `,` and `=` escaped, as in a selector."""

    field: str
    value: str
    equal: bool

    def __str__(self) -> str:
        return f"{self.field}{'=' if self.equal else '!='}{self.value}"


def parse_fields(text: str) -> tuple[FieldCondition, ...]:
    """Parse a field selector such as `metadata.name=one,spec.mode!=off`. Raises ValueError with advice."""
    return tuple(sorted({_condition(part.strip()) for part in _SEPARATOR.split(text)})) if text.strip() else ()


def render_fields(conditions: Iterable[FieldCondition]) -> str:
    """Return the selector that requires all conditions."""
    return ",".join(map(str, sorted(set(conditions))))


def lasting(selector: str) -> str:
    """Return the conditions of a selector whose fields are immutable, as a selector."""
    return render_fields(condition for condition in parse_fields(selector) if condition.field in _LASTING)


def can_be_left(selector: str) -> bool:
    """Return whether an object can stop matching the selector."""
    return any(condition.field not in _LASTING for condition in parse_fields(selector))


def name_problem(name: str) -> str:
    """Return the error of an object's name; empty if it is valid."""
    if not _OBJECT_NAME.fullmatch(name):
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


def read_labels(fields: Fields) -> str:
    """Return the label selector as the API writes it; with errors if it is invalid."""
    selector = fields.fields("selector", field.names(_SELECTOR))
    if selector is None:
        return ""
    requirements: list[LabelRequirement] = []
    for key, value, node in selector.pairs("matchLabels"):
        requirements.append(LabelRequirement(key, "In", (value,)))
        problem = key_problem(key) or value_problem(value)
        if problem:
            selector.context.error(node, "matchLabels", problem)
    for item in selector.items("matchExpressions", field.names(_EXPRESSIONS)):
        requirement = LabelRequirement(item.text("key"), item.text("operator"), tuple(item.texts("values")))
        _check(requirement, item)
        requirements.append(requirement)
    return render_labels(requirements)


def _check(requirement: LabelRequirement, item: Fields) -> None:
    item.require("key", "set the key of the label")
    problem = key_problem(requirement.key)
    if requirement.key and problem:
        item.error("key", problem)
    operator = requirement.operator
    if operator not in OPERATORS:
        item.error("operator", f"invalid operator {operator!r}: use {', '.join(OPERATORS)}")
    elif operator in {"In", "NotIn"} and not requirement.values:
        item.error("values", f"missing or empty: {operator} requires at least one value")
    elif operator in {"Exists", "DoesNotExist"} and requirement.values:
        item.error("values", f"{operator} allows no values: remove them, or use In or NotIn")
    for value in requirement.values:
        problem = value_problem(value)
        if problem:
            item.error("values", problem)


def read_fields(fields: Fields) -> str:
    """Return the field selector as the API writes it: the conjunction of `fieldSelector` and `name`."""
    text, name = fields.text("fieldSelector"), fields.text("name")
    conditions: tuple[FieldCondition, ...] = ()
    try:
        conditions = parse_fields(text)
    except ValueError as error:
        fields.error("fieldSelector", str(error))
    _refuse_empty(fields, "fieldSelector", text)
    if _refuse_empty(fields, "name", name) or not name:
        return render_fields(conditions)
    problem = name_problem(name)
    if problem:
        fields.error("name", problem)
    if any(condition.field == _NAME_FIELD for condition in conditions):
        fields.error("name", f"fieldSelector also contains {_NAME_FIELD}: remove one of them")
    return render_fields((*conditions, FieldCondition(_NAME_FIELD, name, equal=True)))


def _refuse_empty(fields: Fields, name: str, text: str) -> bool:
    """Reject a field without a value, so that an empty variable does not select all objects."""
    written = fields.node(name)
    empty = fields.is_present(name) and not text.strip() and (written is None or isinstance(written, yaml.ScalarNode))
    if empty:
        fields.error(name, "empty: set a value, or remove the field to watch all objects")
    return empty
