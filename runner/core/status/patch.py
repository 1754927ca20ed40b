"""Change of an object's status as one JSON patch. Pure.

Other conditions and fields of the status stay, and the conditions of a role win over ours.

Rule: a JSON Patch never tests a value that another client wrote, because the API server panics when it compares lists
with null. The patch tests the `resourceVersion` that it is based on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from runner.core.status import kstatus
from runner.core.status.conditions import Condition, find, put
from runner.core.status.report import OBSERVED, OwnStatus, StatusField, StatusReport
from runner.values.objects import JSONPatch, Object, conditions_of, mapping, metadata, uid_of


def without_health(obj: Object, report: StatusReport, own: OwnStatus) -> StatusReport:
    """Remove the kstatus conditions from the change and from the object."""
    return replace(report, health=kstatus.NONE if _has_health(obj, own) and report.health else {}, generation=None)


def without(report: StatusReport, pruned: frozenset[str]) -> StatusReport:
    """Omit fields that the kind's schema drops; names as `dropped_fields` returns them."""

    def holdable(condition: Condition) -> Condition:
        return {name: value for name, value in condition.items() if f"{_IN_CONDITIONS}.{name}" not in pruned}

    return StatusReport(
        tuple(map(holdable, report.conditions)),
        {kind: condition and holdable(condition) for kind, condition in report.health.items()},
        None if f"status.{OBSERVED}" in pruned else report.generation,
        {name: value for name, value in report.fields.items() if f"status.{name}" not in pruned},
        report.follows,
    )


def patch(obj: Object, report: StatusReport, own: OwnStatus, now: float) -> JSONPatch | None:
    """Build the patch that applies a change to the status of `obj`; None if nothing differs.

    `now` is in seconds since the epoch.
    """
    if not report.continues(find(conditions_of(obj), kstatus.READY)):
        report = replace(report, health={}, generation=None)
    after = [dict(condition) for condition in conditions_of(obj)]
    for condition in report.conditions:
        put(after, condition, now)
    _fold(after, report, own, now)
    raw = obj.get("status")
    status = mapping(raw)
    operations = [*_observing(obj, status, report, own), *_publishing(status, report)]
    listed = status.get("conditions")
    if after == (listed if isinstance(listed, list) else []) and not operations:
        return None
    same: JSONPatch = [
        {"op": "test", "path": "/metadata/uid", "value": uid_of(obj)},
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata(obj).get("resourceVersion")},
    ]
    if not isinstance(raw, dict):
        added = {"conditions": after} | {
            op["path"].rpartition("/")[2]: op["value"] for op in operations if op["op"] == "add"
        }
        return [*same, {"op": "add", "path": "/status", "value": added}]
    return [*same, *operations, {"op": "add", "path": "/status/conditions", "value": after}]


def dropped_fields(obj: Object, report: StatusReport, own: OwnStatus) -> list[str]:
    """Return the paths of fields that the server's schema dropped from a written change; empty if none."""
    written = conditions_of(obj)
    missing: set[str] = set()
    for condition in (*report.conditions, *filter(None, report.health.values())):
        stored = find(written, condition["type"])
        if stored is None:
            return ["status.conditions"]
        if condition in report.conditions or own.wrote(stored):
            missing.update(f"{_IN_CONDITIONS}.{name}" for name in condition if name not in stored)
    status = mapping(obj.get("status"))
    if report.generation is not None and OBSERVED not in status and not _is_of_role(written, own):
        missing.add(f"status.{OBSERVED}")
    missing.update(
        f"status.{name}" for name, value in report.fields.items() if value and not _is_kept(status, name, value)
    )
    return sorted(missing)


def _is_kept(status: Mapping[str, Any], name: str, value: StatusField) -> bool:
    """Return whether a status has a field. The `hash` of a map shows whether its content was kept."""
    hashed = value.get("hash") if isinstance(value, Mapping) else None
    return name in status and (hashed is None or mapping(status[name]).get("hash") == hashed)


_IN_CONDITIONS = "status.conditions[]"


def _has_health(obj: Object, own: OwnStatus) -> bool:
    ready = find(conditions_of(obj), kstatus.READY)
    return ready is not None and own.wrote(ready)


def _is_of_role(conditions: list[Condition], own: OwnStatus) -> bool:
    """Return whether there is a `Ready` of a role, for which `status.observedGeneration` is written later."""
    ready = find(conditions, kstatus.READY)
    return ready is not None and not own.wrote(ready)


def _fold(conditions: list[Condition], report: StatusReport, own: OwnStatus, now: float) -> None:
    """Change the kstatus conditions of a list."""
    for kind, condition in report.health.items():
        old = find(conditions, kind)
        new = merged(old, condition, own, follows=bool(report.follows))
        if new is None and old is not None:
            conditions.remove(old)
        elif new is not None and new is not old:
            put(conditions, new, now)


def merged(old: Condition | None, new: Condition | None, own: OwnStatus, *, follows: bool = False) -> Condition | None:
    """Return a kstatus condition after a change. `follows`: the change is newer than the result of the last run.

    | before the change | in the change | after it |
    |---|---|---|
    | that of a role | any | that of the role |
    | ours, or none | none | none |
    | ours, a result for the same generation | status Unknown, unless it follows the run | the result |
    | ours, or none | another | that of the change |
    """
    if old is not None and (not own.wrote(old) or (new is not None and not follows and _is_result(old, new, own))):
        return old
    return new


def _is_result(old: Condition, new: Condition, own: OwnStatus) -> bool:
    """Return whether `old` is a run's result for the same generation, which `Unknown` must not replace.

    A run that requested another one ends an earlier failure.
    """
    if new["status"] != "Unknown" or old.get("status") == "Unknown" or old.get("reason") in own.passing:
        return False
    if new.get("reason") == kstatus.REQUEUED and old.get("status") != "True":
        return False
    return old.get(OBSERVED) == new.get(OBSERVED)


def _observing(obj: Object, status: Mapping[str, Any], report: StatusReport, own: OwnStatus) -> JSONPatch:
    """Set `status.observedGeneration`, or remove it together with our `Ready`."""
    path = f"/status/{OBSERVED}"
    ready = report.health.get(kstatus.READY)
    if ready is not None and ready["status"] == "Unknown" and _is_of_role(conditions_of(obj), own):
        return []  # a role's own `Ready` is about an earlier generation until its run has ended
    if report.generation is not None and status.get(OBSERVED) != report.generation:
        return [{"op": "add", "path": path, "value": report.generation}]
    if report.health == kstatus.NONE and OBSERVED in status and _has_health(obj, own):
        return [{"op": "remove", "path": path}]
    return []


def _publishing(status: Mapping[str, Any], report: StatusReport) -> Iterator[dict[str, Any]]:
    """Set or remove the fields of features."""
    for name, content in report.fields.items():
        value = dict(content) if isinstance(content, Mapping) else list(content)
        path = f"/status/{name}"
        if value != status.get(name, type(value)()):
            yield {"op": "add", "path": path, "value": value} if value else {"op": "remove", "path": path}
