"""Fields that differ between two states of an object. Pure.

Lists of maps with unique names (`containers`, `env`) are compared by name, as a user reads them; other lists by
position. Fields that the API server maintains are ignored: `normalised` removes them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile
from operator import eq
from typing import Any, Final, TypeAlias

from runner.values.objects import LAST_APPLIED, Object, metadata

_MAINTAINED = frozenset(
    {
        *("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"),
        *("deletionTimestamp", "deletionGracePeriodSeconds"),
    }
)
"""Metadata that the API server maintains."""
_ASSIGNED = frozenset({"clusterIP", "clusterIPs", "healthCheckNodePort"})
"""Fields of a new Service with values that the API server chooses; a dry run chooses others than the real one."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+")
_KEYS = ("name", "key", "id", "type")
"""Fields that identify the items of a list, the first that does counts."""
_MOST_STEPS = 100_000
"""Steps of the comparison of two lists, which grow with the cube of equal items: other clients determine the lists."""


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""Value of a field that does not exist."""
Value: TypeAlias = Any
"""JSON value or ABSENT."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field with its values. An empty path is the whole object."""

    path: str
    before: Value
    after: Value

    def as_json(self) -> dict[str, Any]:
        """Return a JSON value; `before` or `after` is missing if the field does not exist before or after."""
        values = (("before", self.before), ("after", self.after))
        return {"path": self.path, **{name: value for name, value in values if value is not ABSENT}}


def normalised(obj: Mapping[str, Any], *, with_status: bool, created: bool = False) -> Object:
    """Return an object without the fields that the API server maintains.

    The status is kept only if a run wrote it. `created`: the object is new, so the API server chooses some values.
    """
    meta = {name: value for name, value in metadata(obj).items() if name not in _MAINTAINED}
    if isinstance(annotations := meta.get("annotations"), dict):
        remaining = {name: value for name, value in annotations.items() if name != LAST_APPLIED}
        meta["annotations"] = remaining
        if not remaining:
            del meta["annotations"]
    trimmed: Object = {name: obj[name] for name in ("apiVersion", "kind") if name in obj}
    trimmed["metadata"] = meta
    trimmed |= {name: value for name, value in obj.items() if name not in trimmed and (with_status or name != "status")}
    if created and obj.get("kind") == "Service" and obj.get("apiVersion") == "v1":
        trimmed["spec"] = _without_assigned(trimmed.get("spec"))
    return trimmed


def _without_assigned(spec: Any) -> Any:
    if not isinstance(spec, dict):
        return spec
    headless = spec.get("clusterIP") == "None"
    remaining = {name: value for name, value in spec.items() if headless or name not in _ASSIGNED}
    if isinstance(ports := remaining.get("ports"), list):
        remaining["ports"] = [
            {name: value for name, value in port.items() if name != "nodePort"} if isinstance(port, dict) else port
            for port in ports
        ]
    return remaining


def differences(before: Any, after: Any) -> tuple[FieldChange, ...]:
    """Return the fields that differ, in the order of their names."""
    return tuple(_compare(before, after, ""))


def _compare(before: Any, after: Any, path: str) -> Iterator[FieldChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from _compare(before.get(name, ABSENT), after.get(name, ABSENT), _below(path, name))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _lists(before, after, path)
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        yield FieldChange(path, before, after)


def _lists(before: list[Any], after: list[Any], path: str) -> Iterator[FieldChange]:
    key = next((key for key in _KEYS if _identifies(key, before) and _identifies(key, after)), None)
    if key is None:
        yield from _by_position(before, after, path)
        return
    old, new = ({str(item[key]): item for item in items} for items in (before, after))
    common = [name for name in old if name in new]
    if common != [name for name in new if name in old]:
        yield FieldChange(path, list(old), list(new))
    for name in [*old, *(name for name in new if name not in old)]:
        yield from _compare(old.get(name, ABSENT), new.get(name, ABSENT), f"{path}[{name}]")


def _identifies(key: str, items: Sequence[Any]) -> bool:
    names = [item.get(key) for item in items if isinstance(item, dict)]
    return len(names) == len(items) == len(set(map(str, names))) and all(isinstance(name, str) for name in names)


def _by_position(before: list[Any], after: list[Any], path: str) -> Iterator[FieldChange]:
    """Compare lists so that an insertion does not change each later item."""
    old, new = ([json.dumps(item, sort_keys=True, default=str) for item in items] for items in (before, after))
    head = len([*takewhile(bool, map(eq, old, new))])
    tail = len([*takewhile(bool, map(eq, reversed(old[head:]), reversed(new[head:])))])
    old, new = old[head : len(old) - tail], new[head : len(new) - tail]
    counts, common = Counter(old), min(len(old), len(new))
    opcodes = [("replace", 0, common, 0, common), ("delete", common, len(old), common, len(new))]
    if sum(counts[item] for item in new) * common <= _MOST_STEPS:
        opcodes = list(difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes())
    for tag, *bounds in opcodes:
        first, last, start, end = (head + bound for bound in bounds)
        if tag == "replace" and last - first == end - start:
            for offset in range(last - first):
                yield from _compare(before[first + offset], after[start + offset], f"{path}[{start + offset}]")
        elif tag != "equal":
            yield from (FieldChange(f"{path}[{index}]", before[index], ABSENT) for index in range(first, last))
            yield from (FieldChange(f"{path}[{index}]", ABSENT, after[index]) for index in range(start, end))


def _below(path: str, name: object) -> str:
    text = str(name)
    if not _PLAIN_NAME.fullmatch(text):
        return f"{path}[{json.dumps(text, ensure_ascii=False)}]"
    return f"{path}.{text}" if path else text
