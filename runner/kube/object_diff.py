"""Fields in which two states of an object differ. Pure; names of fields only, never values.

The states are objects, or fingerprints with a digest per field.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from runner.objects import Object

MOST = 20
"""Maximum number of fields; with more, the last entry is "and more"."""

_DEPTH = 6
_DEEPEST = 12
_MOST_LEAVES = 1000
_DIGEST_SIZE = 8
_LONGEST_NAME = 256
"""Characters of a field's name in a path. Otherwise a key of a megabyte would be in the path of each field below it."""
_NOT_CONTENT = frozenset({"apiVersion", "kind", "metadata", "status"})


def changed_fields(old: Object, new: Object) -> tuple[str, ...]:
    """Return the fields that were added, removed or changed, such as `spec.size`; a list is one field.

    `metadata` and `status` are excluded.
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
            yield from _differences(old.get(name), new.get(name), f"{path}.{_short(name)}", depth - 1)
    else:
        yield path


def fingerprint(content: Mapping[str, Any]) -> dict[str, bytes]:
    """Digest each leaf field by path, such as `spec.list[0].name`; of a huge object, the first ones."""
    found: dict[str, bytes] = {}
    for path, value in _leaves(content, "", _DEEPEST):
        if len(found) == _MOST_LEAVES:
            break
        found[path] = hashlib.blake2b(
            orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=_DIGEST_SIZE
        ).digest()
    return found


def differing(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the fields in which two fingerprints differ."""
    return tuple(sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)))


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth and isinstance(value, Mapping) and value:
        for name, each in value.items():
            yield from _leaves(each, f"{path}.{_short(name)}" if path else _short(name), depth - 1)
    elif depth and isinstance(value, list) and value:
        for number, each in enumerate(value):
            yield from _leaves(each, f"{path}[{number}]", depth - 1)
    else:
        yield path, value


def _short(name: object) -> str:
    """Return a field's name; the end of a long one is replaced by a digest."""
    text = str(name)
    if len(text) <= _LONGEST_NAME:
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_SIZE).hexdigest()
    return f"{text[:_LONGEST_NAME]}…{digest}"
