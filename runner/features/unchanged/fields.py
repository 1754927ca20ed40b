"""Field `skipUnchanged` of a watch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.core.watches import field
from runner.core.watches.field import Entry, FeatureFields
from runner.core.watches.watch import INPUTS
from runner.values.slots import Slot, Slots

SKIPS: Slot[bool] = Slot("skipUnchanged", default=False)
"""Slot of a watch: True if it skips runs of unchanged objects."""
_FIELD = field.boolean(
    "skipUnchanged",
    "skip runs at start and for periods if nothing changed ([skip-unchanged.md](skip-unchanged.md))",
    "true",
    "false",
)


def _read(entry: Entry, values: Slots) -> Slots:
    if not entry.fields.boolean(_FIELD.name, default=False):
        return values
    inputs: Mapping[str, Any] = values.get(INPUTS)
    return values.having(SKIPS, value=True).having(INPUTS, {**inputs, _FIELD.attribute: True})


FIELDS = FeatureFields((field.section("", "%s", _FIELD),), _read)
