"""Computation of a status that a role writes. Pure: no I/O, and the time is passed in.

A status is the `.status` of an object. Conditions are merged by their type. Other fields are merged as with a JSON
merge patch (RFC 7386), except lists that already contain the new items: see `applied`.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.operator_sdk.util.plugins.module_utils import conditions


def applied(current: dict[str, Any], wanted: dict[str, Any], *, replace_lists: bool, now: str) -> dict[str, Any]:
    """Return `current` with `wanted` merged into it.

    A field that is None is removed. A list is replaced; without `replace_lists` it is kept if it already contains every
    new item.
    """
    fields = {key: value for key, value in wanted.items() if key != "conditions" or not isinstance(value, list)}
    result = _merged(current, fields, replace_lists=replace_lists)
    if isinstance(wanted.get("conditions"), list):
        result["conditions"] = conditions.merged(current.get("conditions"), wanted["conditions"], now)
    return result


def replaced(current: dict[str, Any], wanted: dict[str, Any], *, now: str) -> dict[str, Any]:
    """Return `wanted` alone; a condition that keeps its status keeps its transition time too."""
    result = _without_nulls(wanted)
    if isinstance(result.get("conditions"), list):
        before = conditions.read(current.get("conditions"))
        result["conditions"] = [
            conditions.with_transition(
                next((old for old in before if old.get("type") == condition["type"]), {}), condition, now
            )
            for condition in result["conditions"]
        ]
    return result


def operations(before: Any, after: dict[str, Any], version: str) -> list[dict[str, Any]]:
    """Return the JSON Patch (RFC 6902) that makes the status `before`, as it was read, into `after`.

    It is empty if nothing differs. Each field is written separately, so that concurrent writes of other clients to the
    status are kept. The list of conditions and a first status depend on what was read. A patch of these applies only to
    the `version` that was read. An object that a plan would create has none.
    """
    same = [_same(version)] if version else []
    if not isinstance(before, dict):
        return [*same, _add("/status", after)] if after else []
    found = same if before.get("conditions") != after.get("conditions") else []
    return found + _differences("/status", before, after)


def overwriting(before: Any, after: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the JSON Patch that leaves nothing but `after` of the status; empty when they are equal."""
    return [] if before == after else [_add("/status", after)]


def missing(wanted: dict[str, Any], stored: dict[str, Any], path: str = "status") -> list[str]:
    """Name the fields of `wanted` that the stored status does not have: the kind's schema lacks them."""
    paths: list[str] = []
    for key, value in wanted.items():
        if key not in stored:
            paths.append(f"{path}.{key}")
        elif isinstance(value, dict) and isinstance(stored[key], dict):
            paths += missing(value, stored[key], f"{path}.{key}")
    return paths


def _differences(path: str, before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    found = [{"op": "remove", "path": _below(path, key)} for key in before if key not in after]
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            found += _differences(_below(path, key), old, value)
        elif key not in before or old != value:
            found.append(_add(_below(path, key), value))
    return found


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def _same(version: str) -> dict[str, Any]:
    """Return a test of the version. A test of a list with null, which any client may write, crashes the API server."""
    return {"op": "test", "path": "/metadata/resourceVersion", "value": version}


def _below(path: str, key: str) -> str:
    escaped = key.replace("~", "~0").replace("/", "~1")
    return f"{path}/{escaped}"


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
    """Remove null fields of maps inside lists: the API server's merge patch does not store them."""
    if isinstance(value, dict):
        return {key: _pruned(inner) for key, inner in value.items() if inner is not None}
    return [_pruned(item) for item in value] if isinstance(value, list) else value


def _holds_all(old: Any, value: Any) -> bool:
    return isinstance(old, list) and isinstance(value, list) and all(item in old for item in value)


def _without_nulls(wanted: dict[str, Any]) -> dict[str, Any]:
    return _merged({}, wanted, replace_lists=True)
