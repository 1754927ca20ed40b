"""Plans and drift of objects on the status page. Values are masked before they come here, and cut."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from runner.base import page
from runner.base.page import Node, PageSections, Section
from runner.core.reconcile.feature import Operator, Part
from runner.core.watches.policy import RunMode, mode_of, strictest
from runner.features.plan import plan_status
from runner.features.plan.approved import is_used
from runner.features.plan.changes import ObjectChange, ResourcePlan
from runner.features.plan.fields import ABSENT, Value
from runner.features.plan.plan_status import APPROVE
from runner.values.objects import GVK, Object, ObjectKey, key_of, mapping, maps, mode_requested

_Title: TypeAlias = tuple[str, str, str, str]
"""Verb, kind, namespace and name of a change."""
_Row: TypeAlias = list[Node]

_MOST_PLANS = 200
_MOST_CHANGES = 100
_MOST_FIELDS = 100
_LONGEST = 2000
"""Characters of a value."""
_READABLE = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
_COLUMNS = (("Object", ""), ("Change", "tight"), ("Fields", "wide"))


@dataclass(slots=True)
class LatestPlans(Part):
    """Latest plan of each object, with the values of its changes; the oldest plan is removed first."""

    modes: Mapping[GVK, RunMode]
    """Modes of the watches."""
    is_shown: bool = True
    """Whether a page shows the plans; otherwise they are not kept."""
    revision: int = 0
    """Number of plans that were added."""
    _plans: OrderedDict[tuple[GVK, ObjectKey], Mapping[_Title, _Row]] = field(default_factory=OrderedDict)

    async def open(self, operator: Operator) -> Mapping[str, str]:
        """Keep no plans if there is no page."""
        self.is_shown = operator.has_page
        return {}

    def add(self, plan: ResourcePlan) -> None:
        """Keep the changes of a plan, unless it failed."""
        if plan.state == "failed" or not self.is_shown:
            return
        self.revision += 1
        of = plan.resource.gvk, plan.resource.key
        self._plans[of] = dict(map(_planned, plan.changes[:_MOST_CHANGES]))
        self._plans.move_to_end(of)
        if len(self._plans) > _MOST_PLANS:
            self._plans.popitem(last=False)

    def of(self, gvk: GVK, key: ObjectKey) -> Mapping[_Title, _Row]:
        """Return the rows of an object's latest plan; empty if it is not known."""
        return self._plans.get((gvk, key), {})

    def sections(self) -> PageSections:
        """Return what the page shows."""
        return PageSections(of_object=self.section, revision=lambda: self.revision)

    def section(self, gvk: GVK, obj: Object) -> Section | None:
        """Return plan or drift in the status of an object; None if it has neither.

        Values of the changes are known only if this operator made the plan.
        """
        plan, drift = plan_status.of_status(obj), plan_status.drift_of(obj)
        stored = plan or drift
        if not stored.get("hash"):
            return None
        title = "Plan" if plan else "Drift"
        known = self.of(gvk, key_of(obj))
        rows = [known.get(_title(entry)) or _listed(entry) for entry in maps(stored.get("changes"))]
        more = hidden if isinstance(hidden := stored.get("moreChanges"), int) else 0
        command = _approve_command(gvk, self.modes[gvk], obj, plan) if plan else ""
        return page.section(
            title,
            _summary(stored, len(rows) + more),
            page.command("To approve the plan: ", command) if command else None,
            page.table(title, _COLUMNS, rows, "No changes"),
            page.note(f"{page.plural(more, 'more object')} not shown") if more else None,
        )


def _summary(stored: Mapping[str, Any], count: int) -> Node:
    unplanned = stored.get("unplanned") or 0
    beside = f", {page.plural(unplanned, 'task')} not planned" if unplanned else ""
    approval = mapping(stored.get("approval"))
    is_approved = approval.get("hash") == stored["hash"] and approval.get("state")
    return page.note(
        f"{page.plural(count, 'object')} to change{beside}, since ",
        page.element("time", str(stored.get("time") or "")),
        f", {stored['hash']}",
        *([", approved: ", page.element("tag", str(approval["state"]).lower())] if is_approved else []),
    )


def _planned(change: ObjectChange) -> tuple[_Title, _Row]:
    """Return the row of a change that this operator planned."""
    title = change.verb, change.gvk.kind, change.key.namespace, change.key.name
    fields = [
        _line(changed.path, _text(changed.before), _text(changed.after)) for changed in change.fields[:_MOST_FIELDS]
    ]
    return title, _row(title, fields, max(len(change.fields) - _MOST_FIELDS, 0))


def _listed(entry: Mapping[str, Any]) -> _Row:
    """Return the row of a change in the status, which has no values."""
    paths = fields if isinstance(fields := entry.get("fields"), list) else ()
    return _row(_title(entry), [_line(str(path)) for path in paths], entry.get("moreFields") or 0)


def _title(entry: Mapping[str, Any]) -> _Title:
    verb, kind, namespace, name = (str(entry.get(part) or "") for part in ("verb", "kind", "namespace", "name"))
    return verb, kind, namespace, name


def _row(title: _Title, fields: list[Node], hidden: int) -> _Row:
    verb, kind, namespace, name = title
    if hidden:
        fields.append(page.element("soft", f"{page.plural(hidden, 'more field')} not shown"))
    return [
        [f"{namespace}/{name}" if namespace else name, " ", page.element("soft", kind)],
        page.element("tag", verb),
        fields if verb == "change" else page.element("folded", ["Content", fields]),
    ]


def _line(path: str, before: str | None = None, after: str | None = None) -> Node:
    """Return the path of a field, and its values if they are known."""
    nodes: list[Node] = [page.element("code", path)] if path else []
    nodes += [page.element("removed", f"- {before}")] if before is not None else []
    nodes += [page.element("added", f"+ {after}")] if after is not None else []
    return page.element("line", nodes)


def _approve_command(gvk: GVK, of_watch: RunMode, obj: Object, plan: Mapping[str, Any]) -> str:
    """Return the command that approves a plan; empty if it cannot be approved."""
    mode = strictest(of_watch, mode_of(mode_requested(obj)) or of_watch)
    if mode != "approve" or is_used(plan) or not plan.get("changes"):
        return ""
    key, kind = key_of(obj), ".".join(filter(None, (gvk.kind.lower(), gvk.version, gvk.group)))
    namespace = f" -n {key.namespace}" if key.namespace else ""
    return f"kubectl annotate --overwrite {kind} {key.name}{namespace} {APPROVE}={plan['hash']}"


def _text(value: Value) -> str | None:
    """Return a value as text; None if the field does not exist."""
    if value is ABSENT:
        return None
    text = value if isinstance(value, str) else orjson.dumps(value, option=_READABLE, default=str).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
