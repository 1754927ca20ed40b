"""Values that differ between two plans of one resource: random values, times, and values computed from them. Pure.

The raw values are compared, because masked values of two plans are equal. The result contains no values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from runner.features.plan import changes
from runner.features.plan.changes import PlannedOwner
from runner.features.plan.fields import differences
from runner.features.plan.trial.overlay import Overlay, PlannedChange
from runner.values.objects import GVK, ObjectKey

_SECRET = GVK("", "v1", "Secret")
_DATA = "data"
_WHOLE = "(object)"
"""Field of an object that only one of the plans writes."""


@dataclass(frozen=True, slots=True)
class DifferingValue:
    """A field whose value differs in each run."""

    gvk: GVK
    key: ObjectKey
    path: str
    is_new: bool
    """Whether the run creates the object."""

    @property
    def is_covered(self) -> bool:
        """True if an approval covers each value: the field is one of the data of a new Secret."""
        return self.is_new and self.gvk == _SECRET and self.path.startswith(_DATA)

    def __str__(self) -> str:
        return f"{self.gvk.kind} {self.key} {self.path}"


def between(one: Overlay, two: Overlay, owner: PlannedOwner) -> tuple[DifferingValue, ...]:
    """Return the fields whose planned values differ."""
    first, second = _by_object(one), _by_object(two)
    differing: list[DifferingValue] = []
    for place in dict.fromkeys((*first, *second)):
        before, after = first.get(place), second.get(place)
        change = before or after
        if change is None:
            continue
        is_new = change.verb == "create"
        if before is None or after is None:
            paths: Iterable[str] = (_WHOLE,)
        else:
            paths = _paths(_values(before, one, owner), _values(after, two, owner))
        differing += [DifferingValue(change.gvk, change.key, path, is_new) for path in paths]
    return tuple(differing)


def _by_object(overlay: Overlay) -> dict[tuple[str, str, ObjectKey], PlannedChange]:
    return {change.place: change for change in overlay.changes()}


def _values(change: PlannedChange, overlay: Overlay, owner: PlannedOwner) -> dict[str, Any]:
    """Return the new values of a change by path, without those that the API server chooses."""
    fields = (changes.lasting(change.gvk, field) for field in changes.compared(change, owner))
    return {field.path: overlay.unknown.marked(field.after) for field in fields}


def _paths(one: dict[str, Any], two: dict[str, Any]) -> Iterator[str]:
    for path in dict.fromkeys((*one, *two)):
        if path not in one or path not in two:
            yield path or _WHOLE
        elif not path:
            yield from (field.path for field in differences(one[path], two[path]))
        elif one[path] != two[path]:
            yield path
