"""The `selector` of a watch: read, checked, and rendered for the API server.

Owns: what may stand in `matchLabels` and `matchExpressions` (apimachinery's LabelSelector,
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/label-selector/). Every mistake is an error at
its own line.
"""

from __future__ import annotations

from runner import labels
from runner.yamlfields import Fields


def read(fields: Fields) -> str:
    """Return the string for the API server from the field `selector`; empty, with errors, when it cannot be used."""
    given = fields.fields("selector", ("matchLabels", "matchExpressions"))
    if given is None:
        return ""
    requirements: list[labels.Requirement] = []
    for key, value, node in given.pairs("matchLabels"):
        requirements.append(labels.Requirement(key, "In", (value,)))
        problem = labels.key_problem(key) or labels.value_problem(value)
        if problem:
            given.place.error(node, "matchLabels", problem)
    for item in given.items("matchExpressions", ("key", "operator", "values")):
        requirement = labels.Requirement(item.text("key"), item.text("operator"), tuple(item.texts("values")))
        _check(requirement, item)
        requirements.append(requirement)
    return labels.render(requirements)


def _check(requirement: labels.Requirement, item: Fields) -> None:
    item.require("key", "write the label's key")
    problem = labels.key_problem(requirement.key)
    if requirement.key and problem:
        item.error("key", problem)
    operator = requirement.operator
    if operator not in labels.OPERATORS:
        item.error("operator", f"{operator!r} is no operator; write {', '.join(labels.OPERATORS)}")
    elif operator in {"In", "NotIn"} and not requirement.values:
        item.error("values", f"is missing or empty; {operator} needs at least one value")
    elif operator in {"Exists", "DoesNotExist"} and requirement.values:
        item.error("values", f"{operator} takes no values; remove them, or write In or NotIn")
    for value in requirement.values:
        problem = labels.value_problem(value)
        if problem:
            item.error("values", problem)
