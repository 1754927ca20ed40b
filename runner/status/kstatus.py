"""The conditions that tools wait for: `Ready`, and `Reconciling` and `Stalled` as kstatus reads them. Pure.

`Ready` is always there; `Reconciling` and `Stalled` only while they are true. A run that goes on takes nothing back of
what is known of the same generation, so that periodic runs and restarts let no tool wait. Conditions that a role writes
under these names win: ours are known by their reasons, and others are left as they are.
Source: https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from runner.status.conditions import Condition, find, make, put

READY, RECONCILING, STALLED = TYPES = ("Ready", "Reconciling", "Stalled")

KstatusConditions: TypeAlias = Mapping[str, Condition | None]
"""By type what is to stand there; None: nothing of ours."""

NONE: KstatusConditions = dict.fromkeys(TYPES)

STARTED, SUCCEEDED, CANCELED = "RunStarted", "RunSucceeded", "RunCanceled"
FAILED, TIMED_OUT, NOT_RUNNABLE = "RunFailed", "RunTimedOut", "NotRunnable"
PAUSED = "RunsPaused"
_OURS = frozenset({STARTED, SUCCEEDED, CANCELED, FAILED, TIMED_OUT, NOT_RUNNABLE, PAUSED})

RUNNING_MESSAGE, SUCCESS_MESSAGE = "Running reconciliation", "Last reconciliation succeeded"

_LONGEST = 1000
"""Characters of a message: `Failure` holds the rest."""


def working(reason: str, message: str = RUNNING_MESSAGE) -> KstatusConditions:
    """Something is being done, or about to be; what is known of this generation still holds."""
    return {
        READY: make(READY, "Unknown", reason, message),
        RECONCILING: make(RECONCILING, "True", reason, message),
        STALLED: None,
    }


def succeeded() -> KstatusConditions:
    """All is as it should be."""
    return {**NONE, READY: make(READY, "True", SUCCEEDED, SUCCESS_MESSAGE)}


def failed(reason: str, message: str, *, final: bool) -> KstatusConditions:
    """A run failed. `final`: it is not tried again until the object changes."""
    message = message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…"
    abnormal = STALLED if final else RECONCILING
    return {**NONE, READY: make(READY, "False", reason, message), abnormal: make(abnormal, "True", reason, message)}


def paused(message: str) -> KstatusConditions:
    """Nothing is being done; what is known of this generation still holds."""
    return {**NONE, READY: make(READY, "Unknown", PAUSED, message)}


def is_ours(condition: Condition) -> bool:
    """Whether it was us who wrote a condition of one of these types.

    Where a schema drops reasons, messages tell.
    """
    if "reason" in condition:
        return condition["reason"] in _OURS
    return condition.get("message") in {RUNNING_MESSAGE, SUCCESS_MESSAGE}


def fold(conditions: list[Condition], health: KstatusConditions, now: float) -> None:
    """Make ours what `health` says."""
    for kind, wanted in health.items():
        old = find(conditions, kind)
        if old is not None and not is_ours(old):
            continue
        if wanted is None:
            conditions[:] = [each for each in conditions if each is not old]
        elif old is None or not _still_holds(old, wanted):
            put(conditions, wanted, now)


def _still_holds(old: Condition, wanted: Condition) -> bool:
    known = wanted["status"] == "Unknown" != old.get("status")
    return known and old.get("observedGeneration") == wanted.get("observedGeneration")
