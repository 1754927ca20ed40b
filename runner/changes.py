"""Which fields of an object differ between two of its states. Pure; names of fields only, never values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runner.objects import Object

MOST = 20
"""Fields that are told; where more changed, the last entry says so."""

_DEPTH = 6
_NOT_CONTENT = frozenset({"apiVersion", "kind", "metadata", "status"})


def changed_fields(old: Object, new: Object) -> tuple[str, ...]:
    """Name the fields that were added, removed or changed, as `spec.size`; a list is one field.

    `metadata` and `status` are left out.
    """
    paths: list[str] = []
    for name in sorted((old.keys() | new.keys()) - _NOT_CONTENT):
        for path in _differences(old.get(name), new.get(name), name, _DEPTH):
            if len(paths) == MOST:
                return (*paths, "and more")
            paths.append(path)
    return tuple(paths)


def _differences(old: Any, new: Any, path: str, depth: int) -> Iterator[str]:
    if old == new:
        return
    if depth and isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(name), new.get(name), f"{path}.{name}", depth - 1)
    else:
        yield path
