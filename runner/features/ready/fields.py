"""Field `ready` of a watch."""

from __future__ import annotations

from runner.core.watches import field
from runner.core.watches.field import Entry, FeatureFields
from runner.values.slots import Slot, Slots

FOLLOWS: Slot[bool] = Slot("ready", default=False)
"""Slot of a watch: True if `Ready` of its objects follows their dependents."""
_VALUES = ("run", "dependents")
_ENTRY = field.section(
    "",
    "%s",
    field.text(
        "ready",
        "`run`: an object is `Ready` when its run succeeds; `dependents`: when its Deployments, StatefulSets, "
        "DaemonSets, Jobs and PersistentVolumeClaims are ready, too ([status.md](status.md#ready-dependents))",
        "dependents",
        "run",
        values=_VALUES,
    ),
)
_NEEDED = ("manageStatus", "healthConditions", "watchDependentResources")


def _read(entry: Entry, values: Slots) -> Slots:
    fields = entry.fields
    text = fields.text("ready")
    if text not in {"", *_VALUES}:
        fields.error("ready", f"invalid value {text!r}: use {' or '.join(_VALUES)}")
    if text != "dependents":
        return values
    for name in _NEEDED:
        if not fields.boolean(name, default=True):
            fields.error("ready", f"dependents needs {name}: remove {name}: false")
    return values.having(FOLLOWS, value=True)


FIELDS = FeatureFields((_ENTRY,), _read)
