"""Conditions, by the API conventions' rules. Pure: no I/O, and the time is given.

https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
"""

from __future__ import annotations

import re
from typing import Any

FIELDS = ("type", "status", "reason", "message", "observedGeneration", "lastHeartbeatTime", "lastTransitionTime")

_STATUSES = ("True", "False", "Unknown")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d)?(?:\.\d+)?)([Zz]|[+-]\d\d:\d\d)", re.ASCII)


class InvalidConditionError(ValueError):
    """A condition breaks a rule. `error` is the text of the published collection, which roles compare."""

    def __init__(self, sentence: str, error: str = "") -> None:
        super().__init__(sentence)
        self.error = error or sentence


def validated(conditions: list[Any]) -> list[dict[str, Any]]:
    """Return the conditions in the API's own spelling: no empty options, times in RFC 3339.

    Raises InvalidConditionError with a sentence that names the invalid condition and the reason.
    """
    clean = [_validated(condition, position) for position, condition in enumerate(conditions, start=1)]
    types = [condition["type"] for condition in clean]
    for kind in types:
        if types.count(kind) > 1:
            raise InvalidConditionError(
                f"condition {kind!r} is given {types.count(kind)} times; an object has each type once"
            )
    return clean


def read(value: Any) -> list[dict[str, Any]]:
    """Return the conditions in a value that any client may have written: the maps, and of each type the first one."""
    found: dict[Any, dict[str, Any]] = {}
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict):
            kind = entry.get("type")
            found.setdefault(kind if isinstance(kind, str) else id(entry), entry)
    return list(found.values())


def merged(current: Any, wanted: list[dict[str, Any]], now: str) -> list[dict[str, Any]]:
    """Replace each condition by the new one of its type, and append new types. Keep all remaining conditions.

    `lastTransitionTime` changes only with the status: to the time in the new condition, or else to `now`.
    """
    by_type = {condition["type"]: condition for condition in wanted}
    result = []
    for old in read(current):
        new = by_type.pop(old["type"], None) if isinstance(old.get("type"), str) else None
        result.append(old if new is None else with_transition(old, new, now))
    return result + [with_transition({}, new, now) for new in by_type.values()]


def with_transition(old: dict[str, Any], new: dict[str, Any], now: str) -> dict[str, Any]:
    """Return the new condition with the `lastTransitionTime` that it has after `old`, which may be empty."""
    since = old.get("lastTransitionTime")
    if old.get("status") == new["status"] and since and isinstance(since, str):
        return {**new, "lastTransitionTime": since}
    return {"lastTransitionTime": now, **new}


def _validated(condition: Any, position: int) -> dict[str, Any]:
    if not isinstance(condition, dict):
        raise InvalidConditionError(f"condition {position} is {condition!r}; a condition is a map with type and status")
    clean = {key: value for key, value in condition.items() if value is not None}
    if not isinstance(clean.get("type"), str) or not clean["type"]:
        raise InvalidConditionError(f"condition {position} has no type, which is a text")
    where = f"condition {clean['type']!r}"
    if isinstance(clean.get("status"), bool):
        clean["status"] = str(clean["status"])
    if clean.get("status") not in _STATUSES:
        raise InvalidConditionError(
            f"{where}: status is {clean.get('status')!r}; it must be one of {', '.join(_STATUSES)}"
        )
    if clean.get("reason") and not _REASON.fullmatch(str(clean["reason"])):
        raise InvalidConditionError(
            f"{where}: reason is {clean['reason']!r}; it must be one CamelCase word, such as PingFailed",
            "Condition 'reason' must be a single, CamelCase word",
        )
    for key in ("lastHeartbeatTime", "lastTransitionTime"):
        if key in clean:
            clean[key] = _rfc3339(clean[key], where, key)
    return clean


def _rfc3339(text: Any, where: str, key: str) -> str:
    match = _TIME.fullmatch(str(text))
    if not match:
        raise InvalidConditionError(
            f"{where}: {key} is {text!r}; it must be an RFC 3339 time, such as 2026-01-31T12:00:00Z",
            f"'{key}' must be an RFC3339 compliant datetime string",
        )
    day, time, zone = match.groups()
    if time.count(":") == 1:
        time += ":00"
    return f"{day}T{time}{zone.upper()}"
