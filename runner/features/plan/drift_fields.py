"""Field `drift` of a watch."""

from __future__ import annotations

from dataclasses import dataclass

from runner.base.yamlfile.fields import Fields
from runner.core.watches import field, policy
from runner.core.watches.field import Entry, FeatureFields
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
