"""Patches of planned objects. Pure: the arguments are not changed.

These are JSON Patch (RFC 6902), JSON Merge Patch (RFC 7386), strategic merge patch and server-side apply.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from typing import Any

import orjson

from runner.features.plan.trial.schemas import Schema
from runner.values.objects import Object, managed_fields_of

_INDEX = re.compile("0|[1-9][0-9]*")
_LARGEST = 10_000
"""Number of operations of a JSON Patch beyond which it is rejected, as by the API server."""
_MOST_COPIED = 3 << 20
"""Bytes of JSON that a JSON Patch may copy, as in the API server: copies of copies would exhaust the memory."""


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
    copied = 0
    for number, operation in enumerate(operations):
        try:
            copied += _copied(patched, operation)
            patched = _apply(patched, operation)
        except PatchError as error:
            raise PatchError(f"operation {number}: {error}") from error
        if copied > _MOST_COPIED:
            raise PatchError(f"operation {number}: the patch copies too much")
    if not isinstance(patched, dict):
        raise PatchError("the result is not an object")
    return patched


def _copied(doc: Any, operation: Any) -> int:
    is_copy = isinstance(operation, dict) and operation.get("op") == "copy"
    return len(_text(_get(doc, _pointer(operation, "from")))) if is_copy else 0


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


def _text(value: Any) -> str:
    """Return a JSON value as text, to find equal values fast."""
    return json.dumps(value, sort_keys=True)


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
                merged[name.removeprefix(_DELETE_FROM)] = _others(current, removed)
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
    if (retained := patch.get(_RETAIN)) is not None:
        for name in merged.keys() - set(map(str, _list(_RETAIN, retained))):
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
        return current + _others(patch, current)
    if any(_is_replacement(item) for item in patch):
        return [_clean(item) for item in patch if not _is_replacement(item)]
    if not all(isinstance(new, dict) and key in new for new in patch):
        raise PatchError(f"an item of the list has no merge key {key!r}")
    removed = {_text(new[key]) for new in patch if new.get(_DIRECTIVE) == "delete"}
    current = [item for item in current if not (isinstance(item, dict) and _text(item.get(key)) in removed)]
    places = {
        _text(item.get(key)): place for place, item in reversed(list(enumerate(current))) if isinstance(item, dict)
    }
    for new in (item for item in patch if item.get(_DIRECTIVE) != "delete"):
        place = places.setdefault(_text(new[key]), len(current))
        current[place : place + 1] = [_merge(current[place] if place < len(current) else {}, new, schema.items())]
    return current


def _others(items: list[Any], known: list[Any]) -> list[Any]:
    """Return the items that are not in another list."""
    texts = set(map(_text, known))
    return [item for item in items if _text(item) not in texts]


def _ordered(items: list[Any], order: list[Any], key: str) -> list[Any]:
    """Put the items in `order`; an item that it omits keeps its place after the item before it."""

    def ident(value: Any) -> str:
        return _text(value.get(key) if key and isinstance(value, dict) else value)

    ranks = {ident(value): rank for rank, value in reversed(list(enumerate(order)))}
    ranked: list[tuple[int, Any]] = []
    last = -1
    for item in items:
        last = ranks.get(ident(item), last)
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


def server_side_apply(target: Object, config: Object, manager: str, schema: Schema | None) -> Object:
    """Apply a configuration without conflicts: a field that another manager owns is kept.

    Fields that the same manager applied before are removed. Source:
    https://kubernetes.io/docs/reference/using-api/server-side-apply/ and the format `FieldsV1` of
    `metadata.managedFields`.
    """
    before: Object = copy.deepcopy(target)
    entries = managed_fields_of(target)
    own = [entry for entry in entries if _is_of(entry, manager)]
    rest = [entry.get("fieldsV1") or {} for entry in entries if not _is_of(entry, manager)]
    for entry in own:
        _remove_owned(before, entry.get("fieldsV1") or {}, config, rest)
    result: Object = _applied(before, config, schema)
    return result


def _is_of(entry: Object, manager: str) -> bool:
    return entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")


def _applied(target: Any, config: Any, schema: Schema | None) -> Any:
    if isinstance(config, dict) and isinstance(target, dict) and not (schema and schema.is_atomic):
        merged = dict(target)
        for name, value in config.items():
            merged[name] = _applied(target.get(name), value, schema.child(name) if schema else None)
        return merged
    if isinstance(config, list) and isinstance(target, list) and schema is not None:
        if schema.list_type == "set":
            return [*target, *_others(config, target)]
        if schema.list_type == "map" and schema.list_keys:
            return _apply_items(target, config, schema)
    return copy.deepcopy(config)


def _apply_items(target: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    items, below = list(target), schema.items()
    places = {_ident(item, schema, below): place for place, item in reversed(list(enumerate(items)))}
    for item in config:
        place = places.setdefault(_ident(item, schema, below), len(items))
        items[place : place + 1] = [_applied(items[place] if place < len(items) else None, item, below)]
    return items


def _ident(item: Any, schema: Schema, below: Schema | None) -> str:
    defaults = below.defaults if below else {}
    return _text([item.get(key, defaults.get(key)) for key in schema.list_keys] if isinstance(item, dict) else [])


def _remove_owned(value: Any, owned: Object, config: Any, rest: Sequence[Object]) -> None:
    """Remove fields from `value` that are `owned`, not in `config`, and not owned by the rest of the managers."""
    for path, below in owned.items():
        kind, _, name = path.partition(":")
        theirs = [fields[path] for fields in rest if path in fields]
        if kind == "f" and isinstance(value, dict) and name in value:
            if isinstance(config, dict) and name in config:
                _remove_owned(value[name], below, config[name], theirs)
            elif _drops(value[name], below, theirs):
                del value[name]
        elif kind == "k" and isinstance(value, list):
            keys = orjson.loads(name)
            item, configured = _item(value, keys), _item(config, keys)
            if item is not None and configured is not None:
                _remove_owned(item, below, configured, theirs)
            elif item is not None and _drops(item, below, theirs):
                value.remove(item)
        elif kind == "v" and isinstance(value, list) and not theirs:
            element = orjson.loads(name)
            if element in value and not (isinstance(config, list) and element in config):
                value.remove(element)


def _drops(value: Any, owned: Object, theirs: Sequence[Object]) -> bool:
    """Return whether a field is removed whole; otherwise its owned parts are removed."""
    if not theirs and (not owned or "." in owned):
        return True
    _remove_owned(value, owned, None, theirs)
    return not theirs and not value


def _item(items: Any, keys: Object) -> Object | None:
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and all(item.get(name, value) == value for name, value in keys.items()):
            matching: Object = item
            return matching
    return None
