"""The conditions that kstatus reads: `Ready`, `Reconciling` and `Stalled`. Pure.

`Ready` is always present, `Reconciling` and `Stalled` only while they are true. The start of a run does not reset a
result for the same generation, so that no tool waits for periodic runs or restarts. A role's own conditions of these
types win: only conditions with our reasons are replaced.
Source: https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from runner.status.conditions import Condition, find, make, put

READY, RECONCILING, STALLED = TYPES = ("Ready", "Reconciling", "Stalled")

KstatusConditions: TypeAlias = Mapping[str, Condition | None]
"""Conditions by type; None removes ours."""

NONE: KstatusConditions = dict.fromkeys(TYPES)

STARTED, SUCCEEDED, CANCELED = "RunStarted", "RunSucceeded", "RunCanceled"
FAILED, TIMED_OUT, NOT_RUNNABLE = "RunFailed", "RunTimedOut", "NotRunnable"
PAUSED, REQUEUED, WAITING = "RunsPaused", "RunRequeued", "WaitingForPod"
AWAITS, NOTHING_TO_DO, PLAN_FAILED, PLAN_STALE = "PlanNotExecuted", "NoChanges", "PlanFailed", "PlanStale"
REQUEST_REFUSED = "RequestRefused"
_OURS = frozenset(
    {
        *(STARTED, REQUEUED, WAITING, SUCCEEDED, CANCELED, FAILED, TIMED_OUT, NOT_RUNNABLE, PAUSED),
        *(AWAITS, NOTHING_TO_DO, PLAN_FAILED, PLAN_STALE, REQUEST_REFUSED),
    }
)

RUNNING_MESSAGE, SUCCESS_MESSAGE = "Running reconciliation", "Last reconciliation succeeded"
REQUEUED_MESSAGE = "The role requested another run, because the object is not in its desired state yet"

_LONGEST = 1000
"""Characters of a message; `Failure` contains the rest."""


def working(reason: str, message: str = RUNNING_MESSAGE) -> KstatusConditions:
    """Return the conditions of an object with a run in progress, or about to start."""
    return {
        READY: make(READY, "Unknown", reason, message),
        RECONCILING: make(RECONCILING, "True", reason, message),
        STALLED: None,
    }


def succeeded() -> KstatusConditions:
    """Return the conditions after a successful run."""
    return {**NONE, READY: make(READY, "True", SUCCEEDED, SUCCESS_MESSAGE)}


def failed(reason: str, message: str, *, final: bool) -> KstatusConditions:
    """Return the conditions after a failed run. `final`: it is not retried until the object changes."""
    message = message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…"
    abnormal = STALLED if final else RECONCILING
    return {**NONE, READY: make(READY, "False", reason, message), abnormal: make(abnormal, "True", reason, message)}


def paused(message: str) -> KstatusConditions:
    """Return the conditions of a paused object."""
    return {**NONE, READY: make(READY, "Unknown", PAUSED, message)}


def awaiting(message: str) -> KstatusConditions:
    """Return the conditions of an object with a plan that was not executed."""
    return {**NONE, READY: make(READY, "Unknown", AWAITS, message)}


def nothing_to_do(message: str) -> KstatusConditions:
    """Return the conditions of an object whose plan has no changes."""
    return {**NONE, READY: make(READY, "True", NOTHING_TO_DO, message)}


def is_ours(condition: Condition) -> bool:
    """Return whether the operator wrote a condition of one of these types.

    If a schema drops reasons, the message decides.
    """
    if "reason" in condition:
        return str(condition["reason"]) in _OURS
    return str(condition.get("message")) in {RUNNING_MESSAGE, SUCCESS_MESSAGE, REQUEUED_MESSAGE}


def fold(conditions: list[Condition], health: KstatusConditions, now: float) -> None:
    """Replace our conditions with `health`."""
    for kind, wanted in health.items():
        old = find(conditions, kind)
        if old is not None and not is_ours(old):
            continue
        if wanted is None:
            conditions[:] = [each for each in conditions if each is not old]
        elif old is None or not _has_result(old, wanted):
            put(conditions, wanted, now)


def _has_result(old: Condition, wanted: Condition) -> bool:
    """Return whether `old` is a run's result for the same generation, which `Unknown` must not replace.

    A run that requested another one ends an earlier failure. The failure of a plan is no result of a run.
    """
    if old.get("reason") == PLAN_FAILED:
        return False
    known = wanted["status"] == "Unknown" != old.get("status")
    if wanted.get("reason") == REQUEUED:
        known = known and old.get("status") == "True"
    return known and old.get("observedGeneration") == wanted.get("observedGeneration")
