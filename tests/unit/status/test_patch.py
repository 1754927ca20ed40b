"""Conditions of kstatus after a change: those of roles, and results of runs, stay."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.status.patch import merged, patch
from runner.core.status.report import OwnStatus, StatusReport

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


NOT_READY, UNKNOWN = ready("False", "PartsNotReady"), ready("Unknown", "PartsUnknown")
LATER = ready("True", "RunSucceeded", 2)
FOLLOWS = frozenset({"RunSucceeded", "PartsNotReady", "PartsUnknown"})


def follows(condition: dict[str, Any]) -> StatusReport:
    return StatusReport((), {"Ready": condition}, 1, follows=FOLLOWS)


@pytest.mark.parametrize(
    ("old", "wanted", "after"),
    [
        (DONE, NOT_READY, NOT_READY),
        (DONE, UNKNOWN, UNKNOWN),
        (NOT_READY, DONE, DONE),
        (None, NOT_READY, None),
        (ROLES, NOT_READY, ROLES),
        (FAILED, NOT_READY, FAILED),
        (STARTED, DONE, STARTED),
        (LATER, NOT_READY, LATER),
    ],
)
def test_what_follows_a_run_replaces_only_its_success_for_the_same_generation(
    old: Any, wanted: dict[str, Any], after: Any
) -> None:
    own = OwnStatus.joined(OWN, OwnStatus(reasons=FOLLOWS))
    obj = {"metadata": {"uid": "1"}, "status": {"observedGeneration": 1, "conditions": [old] if old else []}}
    operations = patch(obj, follows(wanted), own, 0)
    if after is old:
        assert operations is None
    else:
        assert operations is not None
        [written] = operations[-1]["value"]
        assert {**written, "lastTransitionTime": ""} == {**after, "lastTransitionTime": ""}


@pytest.mark.parametrize(
    ("first", "second", "health", "does_follow"),
    [
        (StatusReport((), {"Ready": DONE}), follows(NOT_READY), NOT_READY, False),
        (StatusReport((), {"Ready": FAILED}), follows(NOT_READY), FAILED, False),
        (StatusReport((), {"Ready": LATER}), follows(NOT_READY), LATER, False),
        (follows(NOT_READY), follows(DONE), DONE, True),
        (follows(NOT_READY), StatusReport((), {"Ready": FAILED}), FAILED, False),
        (follows(NOT_READY), StatusReport(()), NOT_READY, True),
        (StatusReport(()), follows(NOT_READY), NOT_READY, True),
    ],
)
def test_a_kept_write_and_a_later_one_are_joined_in_their_order(
    first: StatusReport, second: StatusReport, health: dict[str, Any], *, does_follow: bool
) -> None:
    joined = first.joined(second)
    assert joined.health["Ready"] == health
    assert bool(joined.follows) is does_follow
