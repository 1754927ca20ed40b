"""Writes of an approved plan, to compare with those of the run that executes it. Pure.

A write is approved if the plan contains one of the same object with the same verb and effect. The effect is the changed
fields with their values, or the whole new object. Values that differ between dry runs do not count (`changes.lasting`).
The same is true for names and UIDs that the API server chooses. The raw values are compared; they stay in memory.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, TypeAlias

import orjson

from runner.objects import Object, ObjectKey, ObjectRef, key_of, uid_of
from runner.plan import changes
from runner.plan.fields import ABSENT, FieldChange
from runner.proxy.planning.overlay import Overlay, PlannedWrite

_MOST_FIELDS = 10
_Place: TypeAlias = tuple[str, str, ObjectKey]


class ApprovedPlan:
    """Approved writes of one run. A `WriteApproval`."""

    def __init__(self, plan: Overlay, owner: ObjectRef, on_refusal: Callable[[str], None]) -> None:
        """`owner` is the object of the run. `on_refusal` is called once, and ends the run."""
        self._owner = owner
        self._on_refusal = on_refusal
        self._generated: Counter[str] = Counter()
        self._planned: dict[str, str] = {}
        """Planned names and UIDs by those of the API server."""
        self._effects: dict[_Place, set[bytes]] = defaultdict(set)
        self._unvalidated: dict[_Place, set[bytes]] = defaultdict(set)
        """New objects that the API server could not check, as sent: the plan lacks their defaults."""
        for write in plan.writes:
            self._effects[self._place(write)].add(self._effect(write))
            if write.reason and write.requested is not None:
                self._unvalidated[self._place(write)].add(self._digest(write.requested))
        self.refused = ""

    def trial(self) -> Overlay:
        """See WriteApproval."""
        return Overlay(self._generated)

    def refusal(self, write: PlannedWrite) -> str:
        """See WriteApproval."""
        fields = changes.compared(write.change(), self._owner)
        if write.existed and write.after is not None and not fields:
            return ""
        place = self._place(write)
        if self._effect(write) in self._effects.get(place, ()):
            return ""
        if write.requested is not None and self._digest(write.requested) in self._unvalidated.get(place, ()):
            return ""
        paths = [each.path for each in fields if each.path]
        more = len(paths) - _MOST_FIELDS
        text = ", ".join(paths[:_MOST_FIELDS]) + (f" and {more} more" if more > 0 else "")
        change = write.change()
        what = "with this effect" if place in self._effects else "of this object"
        return f"the plan has no write {what}: {change.verb} {change.gvk.kind} {write.key}" + (
            f": {text}" if text else ""
        )

    def refuse(self, why: str) -> None:
        """See WriteApproval."""
        if not self.refused:
            self.refused = why
            self._on_refusal(why)

    def created(self, write: PlannedWrite, obj: Object) -> None:
        """See WriteApproval."""
        planned = write.after or {}
        for real, name in ((key_of(obj).name, key_of(planned).name), (uid_of(obj), uid_of(planned))):
            if real and name and real != name:
                self._planned[real] = name

    def _place(self, write: PlannedWrite) -> _Place:
        gvk, key = write.resource.gvk, write.key
        return gvk.group, gvk.kind, ObjectKey(key.namespace, self._planned.get(key.name, key.name))

    def _effect(self, write: PlannedWrite) -> bytes:
        change = write.change()
        fields = [_essence(changes.lasting(change.gvk, each)) for each in changes.compared(change, self._owner)]
        uid = uid_of(write.before or {})
        return self._digest([change.verb, uid, fields])

    def _digest(self, value: object) -> bytes:
        data = orjson.dumps(self._as_planned(value), option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
        return hashlib.blake2b(data, digest_size=32).digest()

    def _as_planned(self, value: Any) -> Any:
        """Replace names and UIDs of the API server by the planned ones."""
        if not self._planned:
            return value
        if isinstance(value, dict):
            return {name: self._as_planned(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._as_planned(each) for each in value]
        return self._planned.get(value, value) if isinstance(value, str) else value


def _essence(field: FieldChange) -> list[Any]:
    """Return a field as a JSON value. Controllers change a status meanwhile, so that only its new value counts."""
    values = [field.after] if field.path.startswith("status") else [field.before, field.after]
    return [field.path, *([] if each is ABSENT else [each] for each in values)]
