"""Condition and `status.drift` of objects that drift checks examine. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.core.status.conditions import find, make
from runner.core.status.own import OwnStatus
from runner.core.status.report import StatusReport
from runner.values.objects import Object, conditions_of, mapping

DRIFTED = "Drifted"
"""A condition of objects whose drift checks found changes by other clients."""
FIELD = "drift"
"""Field of the status with the drift."""
OWN = OwnStatus(conditions=frozenset({DRIFTED}), fields=frozenset({FIELD}))


def drift_of(obj: Object) -> dict[str, Any]:
    """Return `status.drift`; empty if there is none."""
    return mapping(mapping(obj.get("status")).get(FIELD))


def drift_found(message: str, drift: Mapping[str, Any]) -> StatusReport:
    """Return the change after a check that found drift. `drift` is the new `status.drift`."""
    return StatusReport((make(DRIFTED, "True", "ChangedByOthers", message),), fields={FIELD: drift})


def drift_ended(obj: Object) -> StatusReport:
    """Return the change after a run, or after a check without drift; empty if no drift was reported."""
    if find(conditions_of(obj), DRIFTED) is None and not drift_of(obj):
        return StatusReport(())
    return StatusReport((make(DRIFTED, "False", "NoDrift", ""),), fields={FIELD: {}})
