"""Field `drift` of a watch, the condition `Drifted`, and `status.drift` with the changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.base.yamlfile.fields import Fields
from runner.core.status.conditions import find, make
from runner.core.status.report import OwnStatus, StatusReport
from runner.core.watches import field, policy
from runner.core.watches.field import Entry, FeatureFields
from runner.values.objects import Object, conditions_of, mapping
from runner.values.slots import Slot, Slots


@dataclass(frozen=True, slots=True)
class DriftPolicy:
    """Periodic plan runs that detect changes by other clients."""

    period: float
    """Seconds between two checks of an object."""
    repair: bool
    """Whether drift starts a run. False: it is only reported."""


DRIFT_POLICY: Slot[DriftPolicy | None] = Slot("drift", None)
"""Slot of a watch; None: no checks."""


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


_ENTRY = field.section(
    "",
    "%s",
    field.mapping(
        "drift",
        "periodic checks for changes by other clients, see below ([Find drift](plan.md#find-drift))",
        "{period: 1h}",
    ),
)
_DRIFT = field.section(
    "drift",
    "drift: {period: 1h, %s}",
    field.duration("period", "time between two checks of an object", "1h", required=True, frame="drift: {%s}"),
    field.text(
        "then",
        "`report` (the default): write the condition `Drifted`; `repair`: also run the role or playbook",
        "repair",
        values=("report", "repair"),
    ),
)


def _read(entry: Entry, values: Slots) -> Slots:
    policy = _policy(entry.fields)
    return values if policy is None else values.having(DRIFT_POLICY, policy)


def _policy(fields: Fields) -> DriftPolicy | None:
    drift = fields.fields("drift", field.names(_DRIFT))
    if drift is None:
        return None
    period, then = policy.span(drift, "period", off=False), drift.text("then")
    drift.require("period", "set the time between two checks, such as 1h")
    if then not in {"", "report", "repair"}:
        drift.error(
            "then", f"invalid value {then!r}: use report (write a condition) or repair (also run the role or playbook)"
        )
    return None if period is None else DriftPolicy(period, repair=then == "repair")


FIELDS = FeatureFields((_ENTRY, _DRIFT), _read)
