"""Decision about a plan of an object in the mode `plan` or `approve`, and the writes of an approved one. Pure.

A write of the executing run is approved if the plan contains one of the same object with the same verb and effect. The
effect is the changed fields with their values, or the whole new object. Values that differ between dry runs
do not count (`changes.lasting`). The same is true for names and UIDs that the API server chooses. The raw values are
compared; they stay in memory.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from runner.core.reconcile.attempt import AnnotationOverrides
from runner.features.plan import changes, published
from runner.features.plan.changes import DifferingValue, PlannedOwner, ResourcePlan
from runner.features.plan.fields import ABSENT, FieldChange, differences
from runner.features.plan.plan_status import approved_hash
from runner.features.plan.published import PlanBasis
from runner.features.plan.trial.overlay import Overlay, PlannedChange
from runner.features.plan.trial.stored import chosen
from runner.values.errors import shortened
from runner.values.objects import GVK, Object, ObjectKey, first_names, key_of, uid_of
from runner.values.slots import Slot

_LONGEST = 2000
"""Characters of a difference."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the plan to the status. It waits for an approval, if its mode has them."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Write the plan to the status, and why the one that a user approved is not executed."""

    why: str


@dataclass(frozen=True, slots=True)
class PlanAgain:
    """Compare the plan with a second one: values that differ in each run need an approval of their own."""


@dataclass(frozen=True, slots=True)
class Execute:
    """Execute the plan. Each value of the fields that differ in each run is approved."""

    differing: tuple[DifferingValue, ...]


PlanDecision: TypeAlias = Publish | Reject | PlanAgain | Execute


def decide(
    plan: ResourcePlan,
    basis: PlanBasis,
    withheld: str,
    approved: Mapping[str, Any] | None,
    differing: tuple[DifferingValue, ...] | None,
) -> PlanDecision:
    """Decide about a plan.

    `withheld`: why the plan contains no values; empty if it does. `approved`: the plan in the status if a user approved
    it, otherwise None. `differing`: fields whose values differ from those of a second plan; None if there is no second
    plan that succeeded.
    """
    if plan.state == "failed" or approved is None:
        return Publish()
    why = _outdated(basis, withheld, approved)
    if not why and plan.changes and differing is None:
        return PlanAgain()
    values = (differing or ()) if plan.changes else ()
    why = why or _uncovered(values)
    return Reject(why) if why else Execute(values)


def _outdated(basis: PlanBasis, withheld: str, approved: Mapping[str, Any]) -> str:
    """Return why an approved plan is not the one that was made now; empty if it is."""
    if withheld:
        return f"the values of the plan are {withheld}"
    if basis.hash(str(approved.get("nonce"))) != approved["hash"]:
        return joined(published.differences(approved, basis))
    return ""


def _uncovered(values: tuple[DifferingValue, ...]) -> str:
    """Return which values no approval covers; empty if it covers all."""
    if all(value.is_covered for value in values):
        return ""
    return published.random_values(published.named(values)).removeprefix(". ")


def is_used(plan: Mapping[str, Any]) -> bool:
    """Return whether a plan, as in the status, was executed, or began to be."""
    return (plan.get("approval") or {}).get("hash") == plan.get("hash")


def is_approved(obj: Object, plan: Mapping[str, Any], overrides: AnnotationOverrides) -> bool:
    """Return whether a user approved the plan in the status, and it was not executed yet."""
    approved = approved_hash(obj)
    return overrides.mode == "approve" and bool(approved) and approved == plan.get("hash") and not is_used(plan)


def joined(differences: Iterable[str]) -> str:
    """Return differences as one text of limited length."""
    return shortened("; ".join(differences), _LONGEST)


_MOST_FIELDS = 10
_SECRET = GVK("", "v1", "Secret")
_Place: TypeAlias = tuple[str, str, ObjectKey]


class ApprovedPlan:
    """Approved writes of one run."""

    def __init__(
        self,
        plan: Overlay,
        owner: PlannedOwner,
        on_refusal: Callable[[str], None],
        differing: Iterable[DifferingValue] = (),
        ident: str = "",
    ) -> None:
        """`owner` is the object of the run. `on_refusal` is called once, and ends the run.

        `differing`: fields whose values differ in each run. Each value is approved if the approval covers the field.
        `ident` is the hash that the user approved.
        """
        self.hash = ident
        self._free = {(value.gvk, value.key, value.path) for value in differing if value.is_covered}
        self._owner = owner
        self._on_refusal = on_refusal
        self._generated: Counter[str] = Counter()
        self._names: dict[str, str] = {}
        """Planned names by those of the API server."""
        self._unknown = plan.unknown
        """Placeholders of the plan, and the values of the API server, with their fields."""
        self._effects: dict[_Place, set[bytes]] = defaultdict(set)
        self._unvalidated: dict[_Place, set[bytes]] = defaultdict(set)
        """New objects that the API server could not check, as sent: the plan lacks their defaults."""
        for write in plan.writes:
            self._effects[self._place(write)].add(self._effect(write))
            if write.reason and write.requested is not None:
                self._unvalidated[self._place(write)].add(self._digest(write.requested))
        self.refused = ""
        """The first write that is not approved, with the reason; empty if there was none."""

    def trial(self) -> Overlay:
        """Return an overlay for the dry run of one write."""
        return Overlay(self._generated, self._unknown)

    def refusal(self, write: PlannedChange) -> str:
        """Return why a write is not approved; empty if it is."""
        fields = changes.compared(write, self._owner)
        if write.verb == "change" and not fields:
            return ""
        place = self._place(write)
        if self._effect(write) in self._effects.get(place, ()):
            return ""
        if write.requested is not None and self._digest(write.requested) in self._unvalidated.get(place, ()):
            return ""
        paths = [field.path for field in fields if field.path]
        text = first_names(paths, _MOST_FIELDS)
        what = "with this effect" if place in self._effects else "of this object"
        return f"the plan has no write {what}: {write.verb} {write.gvk.kind} {write.key}" + (
            f": {text}" if text else ""
        )

    def refuse(self, why: str) -> None:
        """Note the first write that is not approved. It ends the run."""
        if not self.refused:
            self.refused = why
            self._on_refusal(why)

    def sent(self, write: PlannedChange, obj: Object) -> None:
        """Note the result of a write: the API server can have chosen other values than in the plan."""
        gvk, planned = write.gvk, write.after or {}
        if write.verb == "create" and key_of(obj).name != key_of(planned).name:
            self._names[key_of(obj).name] = key_of(planned).name
        chosen_in_plan = {place for place, value in chosen(gvk, write.key, planned) if value in self._unknown.places}
        for place, value in chosen(gvk, write.key, obj):
            if place in chosen_in_plan:
                self._unknown.add(value, place)

    def _place(self, write: PlannedChange) -> _Place:
        group, kind, (namespace, name) = write.place
        return group, kind, ObjectKey(namespace, self._names.get(name, name))

    def _effect(self, write: PlannedChange) -> bytes:
        compared = changes.compared(write, self._owner)
        fields = [_essence(_decoded(write.gvk, changes.lasting(write.gvk, field))) for field in compared]
        if write.before is None and self._free:
            fields = self._without_free(write.gvk, self._place(write)[2], fields)
        uid = uid_of(write.before or {})
        return self._digest([write.verb, uid, fields])

    def _without_free(self, gvk: GVK, key: ObjectKey, fields: list[list[Any]]) -> list[list[Any]]:
        """Remove values of a new Secret that differ in each run."""
        free = {path for kind, name, path in self._free if (kind, name) == (gvk, key)}
        if not free:
            return fields
        (path, before, (obj,)) = fields[0]
        data = {name: None if _path_of(name) in free else value for name, value in (obj.get("data") or {}).items()}
        return [[path, before, [{**obj, "data": data}]]]

    def _digest(self, value: object) -> bytes:
        known = self._unknown.replaced(value, repr)
        data = orjson.dumps(known, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
        return hashlib.blake2b(data, digest_size=32).digest()


APPROVED: Slot[ApprovedPlan | None] = Slot("approved plan", None)
"""The plan that the run executes; None if it needs none."""


def _path_of(name: str) -> str:
    """Return the path of an entry of `data`."""
    return differences({"data": {name: 0}}, {"data": {name: 1}})[0].path


def _decoded(gvk: GVK, field: FieldChange) -> FieldChange:
    """Decode the values of a Secret, so that values of the API server within them are found."""
    if gvk != _SECRET:
        return field
    if field.path.startswith("data"):
        return FieldChange(field.path, *map(_plain, (field.before, field.after)))
    if not field.path and isinstance(field.after, dict):
        return FieldChange("", field.before, {**field.after, "data": _plain(field.after.get("data"))})
    return field


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    try:
        return base64.b64decode(value, validate=True).decode() if isinstance(value, str) else value
    except ValueError:
        return value


def _essence(field: FieldChange) -> list[Any]:
    """Return a field as a JSON value. Controllers change a status meanwhile, so that only its new value counts."""
    values = [field.after] if field.path.startswith("status") else [field.before, field.after]
    return [field.path, *([] if value is ABSENT else [value] for value in values)]
