"""Latest plans of objects, for the status page. Values are masked before they come here, and cut."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from runner.objects import APPROVE, GVK, Object, ObjectKey, conditions_of, maps, plan_requested
from runner.plan import published
from runner.plan.changes import ObjectChange, ResourcePlan
from runner.plan.fields import ABSENT, FieldChange, Value
from runner.status import report
from runner.status.conditions import find
from runner.watches.policy import mode_of, strictest
from runner.watches.watch import Watch

JSON: TypeAlias = dict[str, Any]

_MOST_PLANS = 200
_MOST_CHANGES = 100
_MOST_FIELDS = 100
_LONGEST = 2000
"""Characters of a value."""


@dataclass(slots=True)
class LatestPlans:
    """Changes of the latest plan of each object; the oldest plan is removed first."""

    _plans: OrderedDict[tuple[GVK, ObjectKey], Sequence[JSON]] = field(default_factory=OrderedDict)

    def add(self, plan: ResourcePlan) -> None:
        """Record a plan."""
        of = plan.resource.gvk, plan.resource.key
        self._plans[of] = [_change(each) for each in plan.changes[:_MOST_CHANGES]]
        self._plans.move_to_end(of)
        if len(self._plans) > _MOST_PLANS:
            self._plans.popitem(last=False)

    def of(self, gvk: GVK, key: ObjectKey) -> Sequence[JSON]:
        """Return the changes of an object's latest plan; empty if it is not known."""
        return self._plans.get((gvk, key), ())


def view(watch: Watch, obj: Object, plans: LatestPlans, key: ObjectKey) -> JSON | None:
    """Return plan or drift in the status of an object; None if it has neither.

    Values of the changes are known only if this operator made the plan.
    """
    plan, drift = published.of_status(obj), report.drift_of(obj)
    stored = plan or drift
    if not stored.get("hash"):
        return None
    known = {_title(each): each for each in plans.of(watch.gvk, key)}
    changes = [known.get(_title(each)) or _listed(each) for each in maps(stored.get("changes"))]
    condition = find(conditions_of(obj), report.PLANNED if plan else report.DRIFTED) or {}
    approval = plan.get("approval", {})
    return {
        "type": "plan" if plan else "drift",
        "hash": stored["hash"],
        "time": str(stored.get("time") or ""),
        "reason": str(condition.get("reason") or ""),
        "changes": changes,
        "more": stored.get("moreChanges") or 0,
        "unplanned": stored.get("unplanned") or 0,
        "approval": str(approval.get("state") or "") if approval.get("hash") == stored["hash"] else "",
        "approve": _approve_command(watch, obj, key, stored) if plan else "",
    }


def _approve_command(watch: Watch, obj: Object, key: ObjectKey, plan: Mapping[str, Any]) -> str:
    """Return the command that approves a plan; empty if it cannot be approved."""
    mode = strictest(watch.mode, mode_of(plan_requested(obj)[0]) or watch.mode)
    is_used = (plan.get("approval") or {}).get("hash") == plan["hash"]
    if mode != "approve" or is_used or not plan.get("changes"):
        return ""
    kind = ".".join(filter(None, (watch.gvk.kind.lower(), watch.gvk.version, watch.gvk.group)))
    namespace = f" -n {key.namespace}" if key.namespace else ""
    return f"kubectl annotate --overwrite {kind} {key.name}{namespace} {APPROVE}={plan['hash']}"


def _change(change: ObjectChange) -> JSON:
    return {
        "verb": change.verb,
        "kind": change.gvk.kind,
        "namespace": change.key.namespace,
        "name": change.key.name,
        "fields": [_field(each) for each in change.fields[:_MOST_FIELDS]],
        "more_fields": max(len(change.fields) - _MOST_FIELDS, 0),
    }


def _field(of: FieldChange) -> JSON:
    return {"path": of.path, "before": _text(of.before), "after": _text(of.after)}


def _text(value: Value) -> str | None:
    """Return a value as text; None if the field does not exist."""
    if value is ABSENT:
        return None
    text = value if isinstance(value, str) else orjson.dumps(value, option=_READABLE, default=str).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_READABLE = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS


def _listed(entry: Mapping[str, Any]) -> JSON:
    """Return an entry of the status, which has no values."""
    paths = found if isinstance(found := entry.get("fields"), list) else ()
    return {
        "verb": str(entry.get("verb") or ""),
        "kind": str(entry.get("kind") or ""),
        "namespace": str(entry.get("namespace") or ""),
        "name": str(entry.get("name") or ""),
        "fields": [{"path": str(path), "before": None, "after": None} for path in paths],
        "more_fields": entry.get("moreFields") or 0,
    }


def _title(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(entry.get(name) or "") for name in ("verb", "kind", "namespace", "name"))
