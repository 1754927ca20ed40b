"""Strategic merge patch, with the merge keys of the API server's OpenAPI. Pure.

Source: https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from __future__ import annotations

import copy
from typing import Any

from runner.objects import Object
from runner.proxy.planning.patches import PatchError
from runner.proxy.planning.schemas import Schema

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def strategic_patch(target: Object, patch: Object, schema: Schema | None) -> Object:
    """Apply a strategic merge patch. Raises PatchError."""
    patched = _merge(target, patch, schema)
    if not isinstance(patched, dict):
        raise PatchError("the result is not an object")
    return patched


def _merge(target: Any, patch: Object, schema: Schema | None) -> Any:
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return _clean({name: value for name, value in patch.items() if name != _DIRECTIVE})
    if directive == "delete":
        return {}
    if directive not in {None, "merge"}:
        raise PatchError(f"unknown directive {directive!r}")
    merged: Object = dict(target) if isinstance(target, dict) else {}
    _retain(merged, patch)
    for name, value in patch.items():
        if name.startswith(_DELETE_FROM):
            current, removed = merged.get(name.removeprefix(_DELETE_FROM)), _list(name, value)
            if isinstance(current, list):
                merged[name.removeprefix(_DELETE_FROM)] = [each for each in current if each not in removed]
    for name, value in patch.items():
        if not _is_directive(name):
            _merge_field(merged, name, value, schema.child(name) if schema else None)
    _reorder(merged, patch, schema)
    return merged


def _reorder(merged: Object, patch: Object, schema: Schema | None) -> None:
    for name, value in patch.items():
        if name.startswith(_ORDER):
            field = name.removeprefix(_ORDER)
            below = schema.child(field) if schema else None
            current = merged.get(field)
            if isinstance(current, list):
                merged[field] = _ordered(current, _list(name, value), below.merge_key if below else "")


def _retain(merged: Object, patch: Object) -> None:
    retained = patch.get(_RETAIN)
    if retained is None:
        return
    for name in merged.keys() - set(_list(_RETAIN, retained)):
        del merged[name]


def _merge_field(merged: Object, name: str, value: Any, schema: Schema | None) -> None:
    if value is None:
        merged.pop(name, None)
    elif isinstance(value, list):
        merged[name] = _merge_list(merged.get(name), value, schema)
    elif not isinstance(value, dict):
        merged[name] = value
    elif schema is not None and "replace" in schema.strategies:
        merged[name] = _clean(value)
    else:
        merged[name] = _merge(merged.get(name), value, schema)


def _is_directive(name: str) -> bool:
    return name in {_DIRECTIVE, _RETAIN} or name.startswith((_DELETE_FROM, _ORDER))


def _merge_list(target: Any, patch: list[Any], schema: Schema | None) -> list[Any]:
    current = list(target) if isinstance(target, list) else []
    if schema is None or "merge" not in schema.strategies:
        return [_clean(each) for each in patch if not _is_replacement(each)]
    key = schema.merge_key
    if not key:
        return current + [each for each in patch if each not in current]
    if any(_is_replacement(each) for each in patch):
        return [_clean(each) for each in patch if not _is_replacement(each)]
    for each in patch:
        if not isinstance(each, dict) or key not in each:
            raise PatchError(f"an item of the list has no merge key {key!r}")
        at = next((n for n, item in enumerate(current) if isinstance(item, dict) and item.get(key) == each[key]), None)
        if each.get(_DIRECTIVE) == "delete":
            current = [item for item in current if not (isinstance(item, dict) and item.get(key) == each[key])]
        elif at is None:
            current.append(_merge({}, each, schema.items()))
        else:
            current[at] = _merge(current[at], each, schema.items())
    return current


def _ordered(items: list[Any], order: list[Any], key: str) -> list[Any]:
    """Put the items in `order`; an item that it omits keeps its place after the item before it."""

    def ident(each: Any) -> Any:
        return each.get(key) if key and isinstance(each, dict) else each

    wanted = [ident(each) for each in order]
    ranked: list[tuple[int, Any]] = []
    last = -1
    for item in items:
        found = ident(item)
        last = wanted.index(found) if found in wanted else last
        ranked.append((last, item))
    # The sort is stable.
    return [item for _, item in sorted(ranked, key=lambda pair: pair[0])]


def _is_replacement(each: Any) -> bool:
    return isinstance(each, dict) and each.get(_DIRECTIVE) == "replace"


def _clean(value: Any) -> Any:
    """Return a copy without directives."""
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if not isinstance(value, dict):
        return copy.deepcopy(value)
    return {name: _clean(each) for name, each in value.items() if not _is_directive(name) and each is not None}


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise PatchError(f"{name} must be a list")
    return value
