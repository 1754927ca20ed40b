"""Reads the fields `selector`, `fieldSelector` and `name` of a watch, and renders them for the API server.

Source of `matchLabels` and `matchExpressions`:
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/label-selector/
"""

from __future__ import annotations

import yaml

from runner.base.yamlfile.fields import Fields
from runner.core.watches import declared, field_selectors, label_selectors


def read(fields: Fields) -> str:
    """Return the label selector as the API writes it; with errors if it is invalid."""
    selector = fields.fields("selector", declared.names("selector"))
    if selector is None:
        return ""
    requirements: list[label_selectors.LabelRequirement] = []
    for key, value, node in selector.pairs("matchLabels"):
        requirements.append(label_selectors.LabelRequirement(key, "In", (value,)))
        problem = label_selectors.key_problem(key) or label_selectors.value_problem(value)
        if problem:
            selector.context.error(node, "matchLabels", problem)
    for item in selector.items("matchExpressions", declared.names("selector.matchExpressions[]")):
        requirement = label_selectors.LabelRequirement(
            item.text("key"), item.text("operator"), tuple(item.texts("values"))
        )
        _check(requirement, item)
        requirements.append(requirement)
    return label_selectors.render(requirements)


def _check(requirement: label_selectors.LabelRequirement, item: Fields) -> None:
    item.require("key", "set the key of the label")
    problem = label_selectors.key_problem(requirement.key)
    if requirement.key and problem:
        item.error("key", problem)
    operator = requirement.operator
    if operator not in label_selectors.OPERATORS:
        item.error("operator", f"invalid operator {operator!r}: use {', '.join(label_selectors.OPERATORS)}")
    elif operator in {"In", "NotIn"} and not requirement.values:
        item.error("values", f"missing or empty: {operator} requires at least one value")
    elif operator in {"Exists", "DoesNotExist"} and requirement.values:
        item.error("values", f"{operator} allows no values: remove them, or use In or NotIn")
    for value in requirement.values:
        problem = label_selectors.value_problem(value)
        if problem:
            item.error("values", problem)


def read_fields(fields: Fields) -> str:
    """Return the field selector as the API writes it: the conjunction of `fieldSelector` and `name`."""
    text, name = fields.text("fieldSelector"), fields.text("name")
    conditions: tuple[field_selectors.FieldCondition, ...] = ()
    try:
        conditions = field_selectors.parse(text)
    except ValueError as error:
        fields.error("fieldSelector", str(error))
    _refuse_empty(fields, "fieldSelector", text)
    if _refuse_empty(fields, "name", name) or not name:
        return field_selectors.render(conditions)
    problem = field_selectors.name_problem(name)
    if problem:
        fields.error("name", problem)
    if any(condition.field == field_selectors.NAME for condition in conditions):
        fields.error("name", f"fieldSelector also contains {field_selectors.NAME}: remove one of them")
    return field_selectors.render((*conditions, field_selectors.named(name)))


def _refuse_empty(fields: Fields, name: str, text: str) -> bool:
    """Reject a field without a value, so that an empty variable does not select all objects."""
    written = fields.node(name)
    empty = fields.is_present(name) and not text.strip() and (written is None or isinstance(written, yaml.ScalarNode))
    if empty:
        fields.error(name, "empty: set a value, or remove the field to watch all objects")
    return empty
