"""Masking of changes: values of Secrets, and other values that the run treats as secret. Pure.

A change of a masked value stays visible: its new value is `<masked, changed>`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runner.core.engine.run_secrets import RunSecrets
from runner.core.masking.masker import MASK, Budget
from runner.features.plan.fields import ABSENT, FieldChange, Value
from runner.values.objects import GVK

MASKED = "<masked>"
CHANGED = "<masked, changed>"
_SECRET = GVK("", "v1", "Secret")
_VALUES = ("data", "stringData")
_ALL = "(fields)"
"""Path of the only field of an object whose values are withheld."""
_BUDGET = 5.0
"""Seconds of CPU time to mask the changes of one object."""


def masked(gvk: GVK, changes: Iterable[FieldChange], secrets: RunSecrets) -> tuple[FieldChange, ...]:
    """Return the changes of an object without secret values.

    Raises:
        SearchTimeoutError: the search for secret values took too long.
    """
    if secrets.is_exhausted:
        return (FieldChange(_ALL, ABSENT, secrets.withheld),)
    budget = Budget(_BUDGET)
    return tuple(_masked(gvk, change, secrets, budget) for change in changes)


def _masked(gvk: GVK, change: FieldChange, secrets: RunSecrets, budget: Budget) -> FieldChange:
    if gvk == _SECRET:
        change = _of_secret(change)
    before, after = (_value(value, secrets, budget) for value in (change.before, change.after))
    path = str(_value(change.path, secrets, budget)) if change.path else ""
    if before == after and change.before != change.after:
        after = _marked(after)
    return FieldChange(path, before, after)


def _of_secret(change: FieldChange) -> FieldChange:
    """Mask all values of a Secret."""
    if not change.path:
        before, after = (_mask_values(value) for value in (change.before, change.after))
        return FieldChange("", before, after)
    if change.path.startswith(_VALUES):
        before, after = (_all_masked(value) for value in (change.before, change.after))
        return FieldChange(change.path, before, CHANGED if before == after == MASKED else after)
    return change


def _mask_values(secret: Value) -> Value:
    if not isinstance(secret, dict):
        return secret
    return {name: _all_masked(value) if name in _VALUES else value for name, value in secret.items()}


def _all_masked(value: Value) -> Value:
    if isinstance(value, dict):
        return {name: _all_masked(item) for name, item in value.items()}
    return value if value is ABSENT else MASKED


def _value(value: Value, secrets: RunSecrets, budget: Budget) -> Value:
    return value if value is ABSENT else secrets.masker.value(value, budget)


def _marked(value: Any) -> Any:
    """Mark the masked parts of a changed value."""
    if isinstance(value, str):
        return value.replace(MASK, CHANGED) if MASK in value else CHANGED
    if isinstance(value, dict):
        return {name: _marked(item) if _has_mask(item) else item for name, item in value.items()}
    if isinstance(value, list):
        return [_marked(item) if _has_mask(item) else item for item in value]
    return value


def _has_mask(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_mask, value.values()))
    if isinstance(value, list):
        return any(map(_has_mask, value))
    return isinstance(value, str) and MASK in value
