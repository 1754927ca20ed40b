"""Which objects a watch is about (`selector`, `fieldSelector`, `name`): read, checked, and rendered for the API server.

Owns: what may stand in `matchLabels` and `matchExpressions` (apimachinery's LabelSelector,
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/label-selector/). Every mistake is an error at
its own line.
"""

from __future__ import annotations

import yaml

from runner.watches import field_selectors, label_selectors
from runner.yamlfile.fields import Fields


def read(fields: Fields) -> str:
    """Return the string for the API server from the field `selector`; empty, with errors, when it cannot be used."""
    given = fields.fields("selector", ("matchLabels", "matchExpressions"))
    if given is None:
        return ""
    requirements: list[label_selectors.Requirement] = []
    for key, value, node in given.pairs("matchLabels"):
        requirements.append(label_selectors.Requirement(key, "In", (value,)))
        problem = label_selectors.key_problem(key) or label_selectors.value_problem(value)
        if problem:
            given.place.error(node, "matchLabels", problem)
    for item in given.items("matchExpressions", ("key", "operator", "values")):
        requirement = label_selectors.Requirement(item.text("key"), item.text("operator"), tuple(item.texts("values")))
        _check(requirement, item)
        requirements.append(requirement)
    return label_selectors.render(requirements)


def _check(requirement: label_selectors.Requirement, item: Fields) -> None:
    item.require("key", "write the label's key")
    problem = label_selectors.key_problem(requirement.key)
    if requirement.key and problem:
        item.error("key", problem)
    operator = requirement.operator
    if operator not in label_selectors.OPERATORS:
        item.error("operator", f"{operator!r} is no operator; write {', '.join(label_selectors.OPERATORS)}")
    elif operator in {"In", "NotIn"} and not requirement.values:
        item.error("values", f"is missing or empty; {operator} needs at least one value")
    elif operator in {"Exists", "DoesNotExist"} and requirement.values:
        item.error("values", f"{operator} takes no values; remove them, or write In or NotIn")
    for value in requirement.values:
        problem = label_selectors.value_problem(value)
        if problem:
            item.error("values", problem)


def read_fields(fields: Fields) -> str:
    """Return the string for the API server from `fieldSelector` and `name`; both must hold where both are given."""
    text, name = fields.text("fieldSelector"), fields.text("name")
    conditions: tuple[field_selectors.Condition, ...] = ()
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
        fields.error("name", f"fieldSelector has a condition on {field_selectors.NAME} too; write one of them")
    return field_selectors.render((*conditions, field_selectors.named(name)))


def _refuse_empty(fields: Fields, name: str, text: str) -> bool:
    """Refuse a field that stands there with nothing in it: that must not end in all objects being watched."""
    written = fields.given(name)
    empty = fields.is_written(name) and not text.strip() and (written is None or isinstance(written, yaml.ScalarNode))
    if empty:
        fields.error(name, "is empty; say which objects, or leave it out to watch all")
    return empty
