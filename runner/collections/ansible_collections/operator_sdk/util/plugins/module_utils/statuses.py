"""What a status becomes when a role writes to it. Pure: no I/O, and the time is given.

A status here is the plain `.status` of an object. Conditions are merged by their type; everything else as a JSON merge
patch (RFC 7386) would, but for lists that already hold what is wanted: see `applied`.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.operator_sdk.util.plugins.module_utils import conditions


def applied(current: dict[str, Any], wanted: dict[str, Any], *, replace_lists: bool, now: str) -> dict[str, Any]:
    """Return `current` with `wanted` merged into it.

    A field that is None is removed. A list is replaced; without `replace_lists` it stays as it is when it already
    holds every item that is wanted.
    """
    fields = {key: value for key, value in wanted.items() if key != "conditions" or not isinstance(value, list)}
    result = _merged(current, fields, replace_lists=replace_lists)
    if isinstance(wanted.get("conditions"), list):
        result["conditions"] = conditions.merged(current.get("conditions") or [], wanted["conditions"], now)
    return result


def replaced(current: dict[str, Any], wanted: dict[str, Any], *, now: str) -> dict[str, Any]:
    """Return `wanted` alone; a condition that keeps its status keeps its transition time too."""
    result = _without_nulls(wanted)
    if isinstance(result.get("conditions"), list):
        before = {condition.get("type"): condition for condition in current.get("conditions") or []}
        result["conditions"] = [
            conditions.with_transition(before.get(condition["type"], {}), condition, now)
            for condition in result["conditions"]
        ]
    return result


def merge_patch(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the smallest JSON merge patch that makes `before` into `after`; empty when they are equal."""
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        old = before.get(key)
        if key in before and old == value:
            continue
        patch[key] = merge_patch(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return patch


def missing(wanted: dict[str, Any], stored: dict[str, Any], path: str = "status") -> list[str]:
    """Name the fields of `wanted` that the stored status does not have: the kind's schema knows nothing of them."""
    paths: list[str] = []
    for key, value in wanted.items():
        if key not in stored:
            paths.append(f"{path}.{key}")
        elif isinstance(value, dict) and isinstance(stored[key], dict):
            paths += missing(value, stored[key], f"{path}.{key}")
    return paths


def _merged(current: dict[str, Any], wanted: dict[str, Any], *, replace_lists: bool) -> dict[str, Any]:
    result = dict(current)
    for key, value in wanted.items():
        old = current.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merged(old if isinstance(old, dict) else {}, value, replace_lists=replace_lists)
        else:
            kept = _pruned(value)
            if replace_lists or not _holds_all(old, kept):
                result[key] = kept
    return result


def _pruned(value: Any) -> Any:
    """Leave out null fields of maps inside lists: the API server's merge patch does not store them."""
    if isinstance(value, dict):
        return {key: _pruned(inner) for key, inner in value.items() if inner is not None}
    return [_pruned(item) for item in value] if isinstance(value, list) else value


def _holds_all(old: Any, value: Any) -> bool:
    return isinstance(old, list) and isinstance(value, list) and all(item in old for item in value)


def _without_nulls(wanted: dict[str, Any]) -> dict[str, Any]:
    return _merged({}, wanted, replace_lists=True)
