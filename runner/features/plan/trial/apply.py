"""Server-side apply on a planned object, without conflicts. Pure.

Owns: the merge of an applied configuration, and the removal of fields that the same field manager applied before. A
field that another manager owns is kept. Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/ and
the format `FieldsV1` of `metadata.managedFields`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import orjson

from runner.features.plan.trial.schemas import Schema
from runner.values.objects import Object, managed_fields_of


def apply(target: Object, config: Object, manager: str, schema: Schema | None) -> Object:
    """Apply a configuration to an object."""
    before: Object = copy.deepcopy(target)
    entries = managed_fields_of(target)
    own = [entry for entry in entries if _is_of(entry, manager)]
    rest = [entry.get("fieldsV1") or {} for entry in entries if not _is_of(entry, manager)]
    for entry in own:
        _remove(before, entry.get("fieldsV1") or {}, config, rest)
    applied: Object = _merge(before, config, schema)
    return applied


def _is_of(entry: Object, manager: str) -> bool:
    return entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")


def _merge(target: Any, config: Any, schema: Schema | None) -> Any:
    if isinstance(config, dict) and isinstance(target, dict) and not (schema and schema.is_atomic):
        merged = dict(target)
        for name, value in config.items():
            merged[name] = _merge(target.get(name), value, schema.child(name) if schema else None)
        return merged
    if isinstance(config, list) and isinstance(target, list) and schema is not None:
        if schema.list_type == "set":
            return [*target, *(item for item in config if item not in target)]
        if schema.list_type == "map" and schema.list_keys:
            return _merge_items(target, config, schema)
    return copy.deepcopy(config)


def _merge_items(target: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    items, below = list(target), schema.items()
    idents = [_ident(item, schema, below) for item in items]
    for item in config:
        ident = _ident(item, schema, below)
        if ident in idents:
            at = idents.index(ident)
            items[at] = _merge(items[at], item, below)
        else:
            items.append(copy.deepcopy(item))
            idents.append(ident)
    return items


def _ident(item: Any, schema: Schema, below: Schema | None) -> Object:
    defaults = below.defaults if below else {}
    return {key: item.get(key, defaults.get(key)) for key in schema.list_keys} if isinstance(item, dict) else {}


def _remove(value: Any, owned: Object, config: Any, rest: Sequence[Object]) -> None:
    """Remove fields from `value` that are `owned`, not in `config`, and not owned by the rest of the managers."""
    for path, below in owned.items():
        kind, _, name = path.partition(":")
        theirs = [fields[path] for fields in rest if path in fields]
        if kind == "f" and isinstance(value, dict) and name in value:
            if isinstance(config, dict) and name in config:
                _remove(value[name], below, config[name], theirs)
            elif _drops(value[name], below, theirs):
                del value[name]
        elif kind == "k" and isinstance(value, list):
            keys = orjson.loads(name)
            item, configured = _item(value, keys), _item(config, keys)
            if item is not None and configured is not None:
                _remove(item, below, configured, theirs)
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
    _remove(value, owned, None, theirs)
    return not theirs and not value


def _item(items: Any, keys: Object) -> Object | None:
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and all(item.get(name, value) == value for name, value in keys.items()):
            matching: Object = item
            return matching
    return None
