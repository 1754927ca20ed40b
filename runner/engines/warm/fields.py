"""Reads the field `engine` of a watch. Pure."""

from __future__ import annotations

from runner.base.config.settings import ENGINES, EngineName
from runner.core.watches import field
from runner.core.watches.field import Entry, FeatureFields
from runner.values.slots import Slot, Slots

ENGINE: Slot[EngineName | None] = Slot("engine", None)
"""Slot of a watch; None: that of `--engine`."""
_ENTRY = field.section(
    "", "%s", field.text("engine", "`auto`, `warm` or `exec`; default: `--engine`", "exec", values=ENGINES)
)


def _read(entry: Entry, values: Slots) -> Slots:
    text = entry.fields.text("engine")
    if not text:
        return values
    name = next((name for name in ENGINES if name == text.lower()), None)
    if name is None:
        entry.fields.error("engine", f"invalid engine {text!r}: use {', '.join(ENGINES[:-1])} or {ENGINES[-1]}")
    return values.having(ENGINE, name)


FIELDS = FeatureFields((_ENTRY,), _read)
