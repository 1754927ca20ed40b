"""Groups of resources with equal changes, and the JSON document of a plan. Pure.

Two changes are equal if they are so after a resource's own name, namespace and UID are replaced by placeholders. A
placeholder replaces whole words only: the name `a` does not replace each letter.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from runner.features.plan.changes import ObjectChange, Plan, ResourcePlan
from runner.features.plan.fields import ABSENT, FieldChange
from runner.values.objects import GVK, ObjectKey, ObjectRef

NAME, NAMESPACE, UID = "<name>", "<namespace>", "<uid>"


@dataclass(frozen=True, slots=True)
class Group:
    """Resources of one kind that share all of these changes."""

    gvk: GVK
    resources: tuple[ObjectRef, ...]
    total: int
    """Number of planned resources of this kind."""
    changes: tuple[ObjectChange, ...]
    """With placeholders, unless the group has one resource only."""
    is_deletion: bool
    """True if the resources are deleted."""
    step: int = 0
    """Step of a rollout that reaches the resources; 0: there is none."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Resources with the same reasons why their plans are not complete, or with the same state."""

    plan: ResourcePlan
    """Plan of the first one."""
    resources: tuple[ObjectRef, ...]


def notices(plans: Sequence[ResourcePlan]) -> list[Notice]:
    """Return the plans that failed, are partial, or were not made, in groups; the largest first."""
    by_problem: dict[str, list[ResourcePlan]] = defaultdict(list)
    for plan in plans:
        if plan.message or plan.unplanned or plan.more_unplanned:
            tasks = [[task.task, task.path, task.action, task.reason] for task in plan.unplanned]
            about = [str(plan.resource.gvk), plan.state, plan.message, tasks, plan.more_unplanned]
            by_problem[json.dumps(about)].append(plan)
    grouped = [Notice(alike[0], tuple(plan.resource for plan in alike)) for alike in by_problem.values()]
    return sorted(grouped, key=lambda notice: -len(notice.resources))


def groups(plans: Sequence[ResourcePlan]) -> list[Group]:
    """Return the changes of all resources in groups, by the step of a rollout; the largest first."""
    grouped: list[Group] = []
    total = Counter(plan.resource.gvk for plan in plans)
    for gvk, finalizing, step in dict.fromkeys(map(_part, plans)):
        alike = [plan for plan in plans if _part(plan) == (gvk, finalizing, step)]
        grouped += [replace(group, step=step) for group in _groups(gvk, alike, total[gvk])]
    return sorted(grouped, key=lambda group: (str(group.gvk) if group.step else "", group.step, -len(group.resources)))


def _part(plan: ResourcePlan) -> tuple[GVK, bool, int]:
    return plan.resource.gvk, plan.finalizing, plan.step


def _groups(gvk: GVK, plans: Sequence[ResourcePlan], total: int) -> Iterable[Group]:
    general: dict[str, ObjectChange] = {}
    literal: dict[str, ObjectChange] = {}
    having: dict[str, list[ObjectRef]] = defaultdict(list)
    for plan in plans:
        for change in plan.changes:
            generalised = _general(change, plan.resource)
            signature = _signature(generalised)
            if plan.resource not in having[signature][-1:]:
                having[signature].append(plan.resource)
            general[signature], literal[signature] = generalised, change
    shared: dict[tuple[ObjectRef, ...], list[str]] = defaultdict(list)
    for signature, owners in having.items():
        shared[tuple(owners)].append(signature)
    for resources, signatures in shared.items():
        changes = literal if len(resources) == 1 else general
        yield Group(gvk, resources, total, tuple(changes[signature] for signature in signatures), plans[0].finalizing)


def _signature(change: ObjectChange) -> str:
    fields = [[field.path, field.before is ABSENT, field.after is ABSENT, _json(field)] for field in change.fields]
    place = [change.gvk.api_version, change.gvk.kind, *change.key]
    return json.dumps(
        [change.verb, place, fields, change.not_validated, change.recreated, change.is_collected], sort_keys=True
    )


def _json(field: FieldChange) -> list[Any]:
    return [None if value is ABSENT else value for value in (field.before, field.after)]


def _general(change: ObjectChange, resource: ObjectRef) -> ObjectChange:
    """Replace a resource's name, namespace and UID in a change."""
    words = [(resource.uid, UID), (resource.key.name, NAME), (resource.key.namespace, NAMESPACE)]
    placeholders = {word: placeholder for word, placeholder in reversed(words) if word}
    alternatives = "|".join(re.escape(word) for word in sorted(placeholders, key=len, reverse=True))
    pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])")

    def text(value: str) -> str:
        return pattern.sub(lambda match: placeholders[match[0]], value)

    def general(value: Any) -> Any:
        if isinstance(value, str):
            return text(value)
        if isinstance(value, dict):
            return {text(name): general(item) for name, item in value.items()}
        return [general(item) for item in value] if isinstance(value, list) else value

    namespace = NAMESPACE if resource.key.namespace and change.key.namespace == resource.key.namespace else ""
    fields = (FieldChange(text(field.path), general(field.before), general(field.after)) for field in change.fields)
    key = ObjectKey(namespace or text(change.key.namespace), text(change.key.name))
    return replace(change, key=key, fields=tuple(fields))


VERSION = 1


def document(plan: Plan) -> dict[str, Any]:
    """Return the document.

    The schema is stable: fields are added, never renamed or removed. `version` changes otherwise.
    """
    return {
        "version": VERSION,
        "result": "failed" if plan.has_failed else "changes" if plan.has_changes else "unchanged",
        "partial": any(resource.state == "partial" for resource in plan.resources),
        "resources": [_resource(resource) for resource in plan.resources],
        "groups": [
            {
                "apiVersion": group.gvk.api_version,
                "kind": group.gvk.kind,
                "count": len(group.resources),
                "total": group.total,
                **({"step": group.step} if group.step else {}),
                "resources": [_named(ref) for ref in group.resources],
                "changes": [_change(change) for change in group.changes],
            }
            for group in groups(plan.resources)
        ],
    }


def _change(of: ObjectChange) -> dict[str, Any]:
    return {**of.as_json(), "collected": of.is_collected}


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
        **({"step": plan.step} if plan.step else {}),
        "changes": [_change(change) for change in plan.changes],
        "unplanned": [asdict(task) for task in plan.unplanned],
        "moreUnplanned": plan.more_unplanned,
        "unwritten": [
            {"apiVersion": ref.gvk.api_version, "kind": ref.gvk.kind, **_named(ref)} for ref in plan.unwritten
        ],
    }
