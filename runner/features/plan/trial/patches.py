"""JSON Patch (RFC 6902), JSON Merge Patch (RFC 7386) and strategic merge patch. Pure: the arguments are not changed."""

from __future__ import annotations

import copy
import re
from typing import Any

from runner.features.plan.trial.schemas import Schema
from runner.values.objects import Object

_INDEX = re.compile("0|[1-9][0-9]*")
_LARGEST = 1 << 20
"""Number of operations of a JSON Patch from which it is rejected; the API server accepts 10,000."""


class PatchError(ValueError):
    """Error: a patch is invalid, or does not fit the object."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def json_patch(target: Object, operations: Any) -> Object:
    """Apply a JSON Patch (RFC 6902). Raises PatchError."""
    if not isinstance(operations, list) or len(operations) > _LARGEST:
        raise PatchError("a JSON Patch must be a list of operations")
    patched: Any = copy.deepcopy(target)
    for number, operation in enumerate(operations):
        try:
            patched = _apply(patched, operation)
        except PatchError as error:
            raise PatchError(f"operation {number}: {error}") from error
    if not isinstance(patched, dict):
        raise PatchError("the result is not an object")
    return patched


def _apply(doc: Any, operation: Any) -> Any:
    if not isinstance(operation, dict):
        raise PatchError("not an object")
    name, path = operation.get("op"), _pointer(operation, "path")
    match name:
        case "add":
            return _add(doc, path, _value(operation))
        case "remove":
            return _remove(doc, path)[0]
        case "replace":
            _get(doc, path)
            value = _value(operation)
            return _add(_remove(doc, path)[0], path, value) if path else value
        case "move":
            source = _pointer(operation, "from")
            if path[: len(source)] == source and path != source:
                raise PatchError("a value cannot be moved into itself")
            doc, moved = _remove(doc, source)
            return _add(doc, path, moved)
        case "copy":
            return _add(doc, path, copy.deepcopy(_get(doc, _pointer(operation, "from"))))
        case "test":
            if not _is_equal_at(doc, path, _value(operation)):
                raise PatchError(f"test of {operation['path']!r} failed")
            return doc
        case _:
            raise PatchError(f"unknown operation {name!r}")


def _pointer(operation: dict[str, Any], name: str) -> list[str]:
    """Parse a JSON Pointer (RFC 6901)."""
    text = operation.get(name)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchError(f"{name!r} must be a JSON Pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise PatchError("`value` is missing")
    return copy.deepcopy(operation["value"])


def _get(doc: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(doc, dict) and part in doc:
            doc = doc[part]
        elif isinstance(doc, list):
            doc = doc[_index(part, len(doc) - 1)]
        else:
            raise PatchError(f"no value at /{'/'.join(path)}")
    return doc


def _is_equal_at(doc: Any, path: list[str], value: Any) -> bool:
    """Return the result of a test. For the API server, a missing field of an object is null."""
    parent = _get(doc, path[:-1])
    if value is None and path and isinstance(parent, dict) and path[-1] not in parent:
        return True
    return _equal(_get(doc, path), value)


def _add(doc: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _get(doc, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(last, len(parent)), value)
    else:
        raise PatchError(f"no object or list at /{'/'.join(path[:-1])}")
    return doc


def _remove(doc: Any, path: list[str]) -> tuple[Any, Any]:
    """Remove a value; return the document and the value."""
    if not path:
        raise PatchError("the whole document cannot be removed")
    parent, last = _get(doc, path[:-1]), path[-1]
    removed = _get(parent, [last])
    if isinstance(parent, dict):
        del parent[last]
    else:
        del parent[_index(last, len(parent) - 1)]
    return doc, removed


def _index(part: str, last: int) -> int:
    if not _INDEX.fullmatch(part) or len(part) > len(str(last)) or int(part) > last:
        raise PatchError(f"no index {part!r} in the list")
    return int(part)


def _equal(one: Any, other: Any) -> bool:
    """Compare JSON values: `True` equals no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def strategic_patch(target: Object, patch: Object, schema: Schema | None) -> Object:
    """Apply a strategic merge patch. Raises PatchError.

    Source: https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-
    patch.md
    """
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
                merged[name.removeprefix(_DELETE_FROM)] = [item for item in current if item not in removed]
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
        return [_clean(item) for item in patch if not _is_replacement(item)]
    key = schema.merge_key
    if not key:
        return current + [item for item in patch if item not in current]
    if any(_is_replacement(item) for item in patch):
        return [_clean(item) for item in patch if not _is_replacement(item)]
    for new in patch:
        if not isinstance(new, dict) or key not in new:
            raise PatchError(f"an item of the list has no merge key {key!r}")
        at = next((n for n, item in enumerate(current) if isinstance(item, dict) and item.get(key) == new[key]), None)
        if new.get(_DIRECTIVE) == "delete":
            current = [item for item in current if not (isinstance(item, dict) and item.get(key) == new[key])]
        elif at is None:
            current.append(_merge({}, new, schema.items()))
        else:
            current[at] = _merge(current[at], new, schema.items())
    return current


def _ordered(items: list[Any], order: list[Any], key: str) -> list[Any]:
    """Put the items in `order`; an item that it omits keeps its place after the item before it."""

    def ident(value: Any) -> Any:
        return value.get(key) if key and isinstance(value, dict) else value

    idents = [ident(value) for value in order]
    ranked: list[tuple[int, Any]] = []
    last = -1
    for item in items:
        item_ident = ident(item)
        last = idents.index(item_ident) if item_ident in idents else last
        ranked.append((last, item))
    # The sort is stable.
    return [item for _, item in sorted(ranked, key=lambda pair: pair[0])]


def _is_replacement(item: Any) -> bool:
    return isinstance(item, dict) and item.get(_DIRECTIVE) == "replace"


def _clean(value: Any) -> Any:
    """Return a copy without directives."""
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if not isinstance(value, dict):
        return copy.deepcopy(value)
    return {name: _clean(item) for name, item in value.items() if not _is_directive(name) and item is not None}


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise PatchError(f"{name} must be a list")
    return value
