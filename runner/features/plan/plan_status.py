"""Approval, conditions, `status.plan` and `status.drift` of objects with plans and drift checks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runner.core.status import conditions, kstatus
from runner.core.status.conditions import Condition, ConditionStatus, find, make
from runner.core.status.report import OBSERVED, OwnStatus, StatusReport
from runner.values.objects import PREFIX, Object, annotations_of, conditions_of, mapping, maps, metadata

APPROVE = PREFIX + "approve"
"""Annotation: the hash of the plan that the operator executes, in mode `approve`."""
PLANNED = "Planned"
"""A condition of objects whose mode is `plan` or `approve`."""
PLAN_STALE = "PlanStale"
"""A condition of objects with an approved plan that was not executed, or not to its end."""
CHANGES, NO_CHANGES, PARTIAL, PLAN_FAILED = "Changes", "NoChanges", "Partial", "PlanFailed"
EXECUTED = "Executed"
"""Reasons of `Planned`."""
DRIFTED = "Drifted"
"""A condition of objects whose drift checks found changes by other clients."""
FIELD, DRIFT_FIELD = "plan", "drift"
"""Fields of the status with the plan, and with the drift."""
_AWAITS = "PlanNotExecuted"
"""Reason of `Ready` while a plan has changes."""
OWN = OwnStatus(
    conditions=frozenset({PLANNED, PLAN_STALE, DRIFTED}),
    fields=frozenset({FIELD, DRIFT_FIELD}),
    reasons=frozenset({_AWAITS, NO_CHANGES, PLAN_FAILED, PLAN_STALE}),
    passing=frozenset({PLAN_FAILED}),
)


def of_status(obj: Object) -> dict[str, Any]:
    """Return `status.plan` of an object; empty if there is none. Fields of another shape are empty."""
    maps_of = dict.fromkeys(("approval", "replaces", "reads"), mapping)
    readers: Mapping[str, Callable[[object], Any]] = {**maps_of, "changes": maps}
    plan = mapping(mapping(obj.get("status")).get(FIELD))
    return {name: readers[name](value) if name in readers else value for name, value in plan.items()}


def approved_hash(obj: Object) -> str:
    """Return the value of the annotation; empty if it is not set."""
    return str(annotations_of(obj).get(APPROVE, ""))


def made(status: ConditionStatus, reason: str, message: str, plan: Mapping[str, Any]) -> StatusReport:
    """Return the change after a plan. `plan` is the new `status.plan`."""
    if status == "False":
        health = kstatus.failed(PLAN_FAILED, message, final=False)
    elif reason == NO_CHANGES:
        health = kstatus.ready("True", NO_CHANGES, message)
    else:
        health = kstatus.ready("Unknown", _AWAITS, message)
    return StatusReport((make(PLANNED, status, reason, message),), health, fields={FIELD: plan})


def stale(message: str, plan: Mapping[str, Any]) -> StatusReport:
    """Return the change after an approval that was not executed. `plan` is the new `status.plan`."""
    new_conditions = (make(PLANNED, "False", PLAN_STALE, message), make(PLAN_STALE, "True", "Differs", message))
    return StatusReport(new_conditions, kstatus.ready("Unknown", _AWAITS, message), fields={FIELD: plan})


def refused(message: str, plan: Mapping[str, Any]) -> StatusReport:
    """Return the change after an approved run that the proxy ended. `plan` is the new `status.plan`."""
    new_conditions = (
        make("Running", "False", PLAN_STALE, ""),
        make(PLANNED, "False", PLAN_STALE, message),
        make(PLAN_STALE, "True", "OtherWrite", message),
    )
    return StatusReport(new_conditions, kstatus.failed(PLAN_STALE, message, final=True), fields={FIELD: plan})


def outdated(message: str) -> tuple[Condition, ...]:
    """Return the condition of an object with an approval of another plan; none without a message."""
    return (make(PLAN_STALE, "True", "Outdated", message),) if message else ()


def names_stale(obj: Object, approved: str) -> bool:
    """Return whether the conditions report why a plan was not executed."""
    condition = find(conditions_of(obj), PLAN_STALE) or {}
    return condition.get("status") == "True" and str(condition.get("message")).startswith(f"Plan {approved} ")


def is_stale(obj: Object) -> bool:
    """Return whether the conditions report for the current generation that an approval was not executed."""
    condition = find(conditions_of(obj), PLANNED) or {}
    return condition.get("reason") == PLAN_STALE and condition.get(OBSERVED) == metadata(obj).get("generation")


def executed(obj: Object, approved: str, plan: Mapping[str, Any]) -> StatusReport:
    """Return the change after an approved run that was not refused. `plan` is the new `status.plan`."""
    planned = make(PLANNED, "True", EXECUTED, f"Plan {approved} was executed")
    return StatusReport((planned, *conditions.ended(obj, PLAN_STALE, EXECUTED)), fields={FIELD: plan})


def ended(obj: Object, *, removes: bool) -> StatusReport:
    """Return the change of an object whose mode is no longer `plan` or `approve`. `removes`: whether the plan goes."""
    new_conditions = *conditions.ended(obj, PLANNED, "Applied"), *conditions.ended(obj, PLAN_STALE, "Applied")
    return StatusReport(new_conditions, fields={FIELD: {}} if removes else {})


def drift_of(obj: Object) -> dict[str, Any]:
    """Return `status.drift`; empty if there is none."""
    return mapping(mapping(obj.get("status")).get(DRIFT_FIELD))


def drift_found(message: str, drift: Mapping[str, Any]) -> StatusReport:
    """Return the change after a check that found drift. `drift` is the new `status.drift`."""
    return StatusReport((make(DRIFTED, "True", "ChangedByOthers", message),), fields={DRIFT_FIELD: drift})


def drift_ended(obj: Object) -> StatusReport:
    """Return the change after a run, or after a check without drift; empty if no drift was reported."""
    if find(conditions_of(obj), DRIFTED) is None and not drift_of(obj):
        return StatusReport(())
    return StatusReport((make(DRIFTED, "False", "NoDrift", ""),), fields={DRIFT_FIELD: {}})
