"""Changes and unplanned tasks of a plan as JSON values. Pure."""

from __future__ import annotations

from typing import Any

from runner.features.plan.changes import ObjectChange
from runner.features.plan.fields import ABSENT, FieldChange
from runner.features.plan.tasks import UnplannedTask


def change(of: ObjectChange) -> dict[str, Any]:
    """Return a change with all fields."""
    return {
        "verb": of.verb,
        "apiVersion": of.gvk.api_version,
        "kind": of.gvk.kind,
        "namespace": of.key.namespace,
        "name": of.key.name,
        "recreated": of.recreated,
        "notValidated": of.not_validated,
        "fields": [field(field_change) for field_change in of.fields],
    }


def field(of: FieldChange) -> dict[str, Any]:
    """Return a field; `before` or `after` is missing if the field does not exist before or after."""
    values = (("before", of.before), ("after", of.after))
    return {"path": of.path, **{name: value for name, value in values if value is not ABSENT}}


def task(of: UnplannedTask) -> dict[str, str]:
    """Return a task that was not planned."""
    return {"task": of.task, "path": of.path, "action": of.action, "reason": of.reason}
