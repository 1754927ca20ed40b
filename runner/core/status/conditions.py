"""Entries of `status.conditions`. Pure.

Guarantees: `lastTransitionTime` changes only with the condition's status. Other writers' conditions stay, but a written
list has one condition of each type, and only maps.
Source: https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from runner.values.objects import Object, conditions_of, mapping

MAX_MESSAGE = 32_000
"""Characters; the API's own condition schema refuses more than 32,768."""
_CUT = "\n(cut here)"

Condition: TypeAlias = dict[str, Any]
ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]


def make(kind: str, status: ConditionStatus, reason: str, message: str) -> Condition:
    """Build a condition. `reason` is in CamelCase and not empty: `metav1.Condition` requires it.

    The message is cut if it is too long. Its control characters are visible: a terminal that shows the status executes
    none.
    """
    from runner.base.log import visible  # noqa: PLC0415 - slow to import; commands need only the names of conditions

    return {"type": kind, "status": status, "reason": reason, "message": bounded(visible(message))}


def bounded(message: str, most: int = MAX_MESSAGE) -> str:
    """Return a message of at most that many characters."""
    return message if len(message) <= most else message[: most - len(_CUT)] + _CUT


def ignored(obj: Object) -> str:
    """Return which parts of the status a write of the conditions replaces, because they are invalid; empty if none."""
    status = obj.get("status")
    if status is not None and not isinstance(status, dict):
        return "the status is not a map"
    listed = mapping(status).get("conditions")
    if listed is not None and not isinstance(listed, list):
        return "the conditions are not a list"
    number = len(listed or ()) - len(conditions_of(obj))
    return f"{number} entries of the conditions are not maps, or repeat a type" if number else ""


def find(conditions: Sequence[Condition], kind: str) -> Condition | None:
    """Return the condition of that type."""
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def ended(obj: Object, kind: str, reason: str) -> tuple[Condition, ...]:
    """Return what ends the condition of that type; nothing if the object does not have it."""
    return () if find(conditions_of(obj), kind) is None else (make(kind, "False", reason, ""),)


def put(conditions: list[Condition], new: Condition, now: float) -> None:
    """Replace or append the condition of that type. `now` is in seconds since the epoch.

    A condition that differs only in `ansibleResult.completion` is not replaced.
    """
    old = find(conditions, new["type"])
    if old is None:
        conditions.append({**new, "lastTransitionTime": timestamp(now)})
        return
    if _essence(old) == _essence(new):
        return
    since = old.get("lastTransitionTime")
    moved = old.get("status") != new["status"] or not since or not isinstance(since, str)
    transition = timestamp(now) if moved else since
    conditions[conditions.index(old)] = {**new, "lastTransitionTime": transition}


def _essence(condition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are worth a write if they change."""
    essence = {name: value for name, value in condition.items() if name != "lastTransitionTime"}
    result = essence.get("ansibleResult")
    if isinstance(result, dict):
        essence["ansibleResult"] = {name: value for name, value in result.items() if name != "completion"}
    return essence


def timestamp(now: float) -> str:
    """Format a time as `metav1.Time`: RFC 3339 with seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
