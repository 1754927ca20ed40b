"""Field `expectedWithin` of a watch."""

from __future__ import annotations

from runner.core.watches import field, policy
from runner.core.watches.field import Entry, FeatureFields
from runner.values.slots import Slot, Slots

EXPECTED_WITHIN: Slot[float | None] = Slot("expectedWithin", None)
"""Slot of a watch: seconds; None: any duration is as expected."""
_ENTRY = field.section(
    "",
    "%s",
    field.duration("expectedWithin", "time after which a run is slow: it gets the condition `Slow`", "5m"),
)


def _read(entry: Entry, values: Slots) -> Slots:
    seconds = policy.span(entry.fields, "expectedWithin", off=False)
    return values if seconds is None else values.having(EXPECTED_WITHIN, seconds)


FIELDS = FeatureFields((_ENTRY,), _read)
