"""Plans and drift of objects on the status page. Values are masked before they come here, and cut."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from runner import page
from runner.features.plan import drift_status, published
from runner.features.plan.changes import ObjectChange, ResourcePlan
from runner.features.plan.fields import ABSENT, FieldChange, Value
from runner.objects import APPROVE, GVK, Object, ObjectKey, key_of, maps, plan_requested
from runner.page import Node, PageSections, Section
from runner.watches.policy import RunMode, mode_of, strictest

JSON: TypeAlias = dict[str, Any]

_MOST_PLANS = 200
_MOST_CHANGES = 100
_MOST_FIELDS = 100
_LONGEST = 2000
"""Characters of a value."""
_COLUMNS = (("Object", ""), ("Change", "tight"), ("Fields", "wide"))


@dataclass(slots=True)
class LatestPlans:
    """Latest plan of each object, with the values of its changes; the oldest plan is removed first."""

    modes: Mapping[GVK, RunMode]
    """Modes of the watches."""
    is_shown: bool = True
    """Whether a page shows the plans; otherwise they are not kept."""
    revision: int = 0
    """Number of plans that were added."""
    _plans: OrderedDict[tuple[GVK, ObjectKey], Sequence[JSON]] = field(default_factory=OrderedDict)

    def add(self, plan: ResourcePlan) -> None:
        """Keep the changes of a plan, unless it failed."""
        if plan.state == "failed" or not self.is_shown:
            return
        self.revision += 1
        of = plan.resource.gvk, plan.resource.key
        self._plans[of] = [_change(change) for change in plan.changes[:_MOST_CHANGES]]
        self._plans.move_to_end(of)
        if len(self._plans) > _MOST_PLANS:
            self._plans.popitem(last=False)

    def of(self, gvk: GVK, key: ObjectKey) -> Sequence[JSON]:
        """Return the changes of an object's latest plan; empty if it is not known."""
        return self._plans.get((gvk, key), ())

    def sections(self) -> PageSections:
        """Return what the page shows."""
        return PageSections(of_object=self.section, revision=lambda: self.revision)

    def section(self, gvk: GVK, obj: Object) -> Section | None:
        """Return plan or drift in the status of an object; None if it has neither.

        Values of the changes are known only if this operator made the plan.
        """
        plan, drift = published.of_status(obj), drift_status.drift_of(obj)
        stored = plan or drift
        if not stored.get("hash"):
            return None
        title = "Plan" if plan else "Drift"
        known = {_title(change): change for change in self.of(gvk, key_of(obj))}
        changes = [known.get(_title(change)) or _listed(change) for change in maps(stored.get("changes"))]
        more = stored.get("moreChanges") or 0
        command = _approve_command(gvk, self.modes[gvk], obj, plan) if plan else ""
        return page.section(
            title,
            _summary(stored, len(changes) + more),
            page.command("To approve the plan: ", command) if command else None,
            page.table(title, _COLUMNS, [_row(change) for change in changes], "No changes"),
            page.note(f"{page.plural(more, 'more object')} not shown") if more else None,
        )


def _summary(stored: Mapping[str, Any], count: int) -> Node:
    unplanned = stored.get("unplanned") or 0
    beside = f", {page.plural(unplanned, 'task')} not planned" if unplanned else ""
    approval = stored.get("approval") or {}
    is_approved = approval.get("hash") == stored["hash"] and approval.get("state")
    return page.note(
        f"{page.plural(count, 'object')} to change{beside}, since ",
        page.element("time", str(stored.get("time") or "")),
        f", {stored['hash']}",
        *([", approved: ", page.element("tag", str(approval["state"]).lower())] if is_approved else []),
    )


def _row(change: Mapping[str, Any]) -> list[Node]:
    name = f"{change['namespace']}/{change['name']}" if change["namespace"] else change["name"]
    lines = [page.element("line", _nodes(changed)) for changed in change["fields"]]
    if change["more_fields"]:
        lines.append(page.element("soft", f"{page.plural(change['more_fields'], 'more field')} not shown"))
    fields: Node = lines if change["verb"] == "change" else page.element("folded", ["Content", lines])
    return [[name, " ", page.element("soft", change["kind"])], page.element("tag", change["verb"]), fields]


def _nodes(changed: Mapping[str, str | None]) -> list[Node]:
    """Return the path, and the values before and after, of a field."""
    path, before, after = changed["path"], changed["before"], changed["after"]
    return [
        page.element("code", path) if path else "",
        page.element("removed", f"- {before}") if before is not None else "",
        page.element("added", f"+ {after}") if after is not None else "",
    ]


def _approve_command(gvk: GVK, of_watch: RunMode, obj: Object, plan: Mapping[str, Any]) -> str:
    """Return the command that approves a plan; empty if it cannot be approved."""
    mode = strictest(of_watch, mode_of(plan_requested(obj)[0]) or of_watch)
    is_used = (plan.get("approval") or {}).get("hash") == plan["hash"]
    if mode != "approve" or is_used or not plan.get("changes"):
        return ""
    key, kind = key_of(obj), ".".join(filter(None, (gvk.kind.lower(), gvk.version, gvk.group)))
    namespace = f" -n {key.namespace}" if key.namespace else ""
    return f"kubectl annotate --overwrite {kind} {key.name}{namespace} {APPROVE}={plan['hash']}"


def _change(change: ObjectChange) -> JSON:
    return {
        "verb": change.verb,
        "kind": change.gvk.kind,
        "namespace": change.key.namespace,
        "name": change.key.name,
        "fields": [_field(changed) for changed in change.fields[:_MOST_FIELDS]],
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
    paths = fields if isinstance(fields := entry.get("fields"), list) else ()
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
