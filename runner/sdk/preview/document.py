"""Plan as a JSON document: `--output json`. Pure.

The schema is stable: fields are added, never renamed or removed. `version` changes otherwise.
"""

from __future__ import annotations

from typing import Any

from runner.objects import ObjectRef
from runner.plan import document as values
from runner.plan.results import ObjectChange, Plan, ResourcePlan
from runner.sdk.preview.grouping import groups

VERSION = 1


def document(plan: Plan) -> dict[str, Any]:
    """Return the document."""
    return {
        "version": VERSION,
        "result": "failed" if plan.has_failed else "changes" if plan.has_changes else "unchanged",
        "partial": any(each.state == "partial" for each in plan.resources),
        "resources": [_resource(each) for each in plan.resources],
        "groups": [
            {
                "apiVersion": group.gvk.api_version,
                "kind": group.gvk.kind,
                "count": len(group.resources),
                "total": group.total,
                "resources": [_named(each) for each in group.resources],
                "changes": [_change(each) for each in group.changes],
            }
            for group in groups(plan.resources)
        ],
    }


def _change(of: ObjectChange) -> dict[str, Any]:
    return {**values.change(of), "collected": of.is_collected}


def _named(resource: ObjectRef) -> dict[str, str]:
    return {"namespace": resource.key.namespace, "name": resource.key.name}


def _resource(plan: ResourcePlan) -> dict[str, Any]:
    return {
        "apiVersion": plan.resource.gvk.api_version,
        "kind": plan.resource.gvk.kind,
        **_named(plan.resource),
        "state": plan.state,
        "message": plan.message,
        "finalizer": plan.finalizing,
        "changes": [_change(each) for each in plan.changes],
        "unplanned": [values.task(each) for each in plan.unplanned],
        "moreUnplanned": plan.more_unplanned,
    }
