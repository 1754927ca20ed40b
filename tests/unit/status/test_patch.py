"""Conditions of kstatus after a change: those of roles, and results of runs, stay."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.status.own import OwnStatus
from runner.core.status.patch import merged

OWN = OwnStatus(reasons=frozenset({"RunSucceeded", "RunFailed", "RunStarted", "RunRequeued", "TrialFailed"}))
OWN = OwnStatus.joined(OWN, OwnStatus(passing=frozenset({"TrialFailed"})))


def ready(status: str, reason: str, generation: int = 1) -> dict[str, Any]:
    """Make a condition."""
    return {"type": "Ready", "status": status, "reason": reason, "message": "", "observedGeneration": generation}


ROLES = ready("False", "ClusterForming")
DONE, FAILED, TRIAL = ready("True", "RunSucceeded"), ready("False", "RunFailed"), ready("False", "TrialFailed")
STARTED, AGAIN = ready("Unknown", "RunStarted"), ready("Unknown", "RunRequeued")


@pytest.mark.parametrize(
    ("old", "wanted", "after"),
    [
        (None, None, None),
        (None, STARTED, STARTED),
        (ROLES, None, ROLES),
        (ROLES, DONE, ROLES),
        (DONE, None, None),
        (DONE, FAILED, FAILED),
        (STARTED, DONE, DONE),
        (STARTED, AGAIN, AGAIN),
        (DONE, STARTED, DONE),
        (FAILED, STARTED, FAILED),
        (TRIAL, STARTED, STARTED),
        (DONE, AGAIN, DONE),
        (FAILED, AGAIN, AGAIN),
        (DONE, ready("Unknown", "RunStarted", 2), ready("Unknown", "RunStarted", 2)),
    ],
)
def test_a_condition_after_a_change(old: Any, wanted: Any, after: Any) -> None:
    assert merged(old, wanted, OWN) == after
