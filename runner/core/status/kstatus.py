"""The conditions that kstatus reads: `Ready`, `Reconciling` and `Stalled`. Pure.

`Ready` is always present, `Reconciling` and `Stalled` only while they are true. The start of a run does not reset a
result for the same generation, so that no tool waits for periodic runs or restarts. A role's own conditions of these
types win: only conditions with our reasons are replaced (`patch`).
Source: https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from runner.core.status.conditions import Condition, ConditionStatus, make
from runner.values.errors import shortened

READY, RECONCILING, STALLED = TYPES = ("Ready", "Reconciling", "Stalled")

KstatusConditions: TypeAlias = Mapping[str, Condition | None]
"""Conditions by type; None removes ours."""

NONE: KstatusConditions = dict.fromkeys(TYPES)

STARTED, SUCCEEDED, CANCELED = "RunStarted", "RunSucceeded", "RunCanceled"
FAILED, TIMED_OUT, NOT_RUNNABLE = "RunFailed", "RunTimedOut", "NotRunnable"
PAUSED, REQUEUED, WAITING = "RunsPaused", "RunRequeued", "WaitingForPod"
REQUEST_REFUSED = "RequestRefused"
REASONS = frozenset(
    {STARTED, REQUEUED, WAITING, SUCCEEDED, CANCELED, FAILED, TIMED_OUT, NOT_RUNNABLE, PAUSED, REQUEST_REFUSED}
)
"""Reasons of the operator's own conditions, without those of features."""

RUNNING_MESSAGE, SUCCESS_MESSAGE = "Running reconciliation", "Last reconciliation succeeded"
REQUEUED_MESSAGE = "The role requested another run, because the object is not in its desired state yet"
MESSAGES = frozenset({RUNNING_MESSAGE, SUCCESS_MESSAGE, REQUEUED_MESSAGE})

_LONGEST = 1000
"""Characters of a message; `Failure` contains the rest."""


def working(reason: str, message: str = RUNNING_MESSAGE) -> KstatusConditions:
    """Return the conditions of an object with a run in progress, or about to start."""
    return {
        READY: make(READY, "Unknown", reason, message),
        RECONCILING: make(RECONCILING, "True", reason, message),
        STALLED: None,
    }


def ready(status: ConditionStatus, reason: str, message: str) -> KstatusConditions:
    """Return the conditions of an object without a run in progress that has not failed."""
    return {**NONE, READY: make(READY, status, reason, message)}


def failed(reason: str, message: str, *, final: bool) -> KstatusConditions:
    """Return the conditions after a failed run. `final`: it is not retried until the object changes."""
    message = shortened(message, _LONGEST)
    abnormal = STALLED if final else RECONCILING
    return {**NONE, READY: make(READY, "False", reason, message), abnormal: make(abnormal, "True", reason, message)}
