"""What starts a run, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.core.kube.cache import Change, Summary
from runner.core.queue import reasons
from runner.core.queue.reasons import RunReason
from runner.core.reconcile import decisions
from runner.core.watches.watch import Finalizer, Watch
from runner.features.plan import feature as planning
from runner.features.plan.plan_status import APPROVE
from runner.values.objects import MODE, RUN_REQUESTED, ObjectKey
from tests.kit.watch_values import watch_value

NAME = "cache.example.com/finalizer"
PLAIN = watch_value()
FINALIZED = watch_value(finalizer=Finalizer(NAME, PLAIN.content, {}, None))
ANNOTATIONS = watch_value(watch_annotations_changes=True)
SEEN = Summary(
    uid="u1",
    resource_version="1",
    generation=1,
    deleting=False,
    paused=False,
    finalizers=(),
    annotations_digest=b"a",
    content_digest=b"",
)
ANNOTATED = replace(SEEN, annotations_digest=b"b")
SECRET = replace(SEEN, generation=None, content_digest=b"c")
FIRST, SECOND, APPROVAL, PLAN = {RUN_REQUESTED: "1"}, {RUN_REQUESTED: "2"}, {APPROVE: "h"}, {MODE: "plan"}
REQUESTED, APPROVED, PLANNED = (replace(SEEN, marks=marks) for marks in (FIRST, APPROVAL, PLAN))
HELD = replace(SEEN, finalizers=(NAME,))
PAUSED = replace(HELD, paused=True)
DELETING = replace(HELD, deleting=True)
FOREIGN = replace(DELETING, finalizers=("other/one",))
CREATED, CHANGED, DELETED = reasons.CREATED, reasons.CHANGED, reasons.DELETED


def _reason(
    watch: Watch, old: Summary | None, new: Summary | None, *, initial: bool = False, waits: bool = False
) -> RunReason | None:
    change = Change(ObjectKey("ns", "a"), old, new, initial=initial)
    return decisions.run_reason(watch, change, (*planning.MARKS, reasons.RUN_MARK), waits=waits)


CASES = {
    "a creation": (PLAIN, None, SEEN, CREATED),
    "another object under the same name": (PLAIN, SEEN, replace(SEEN, uid="u2"), CREATED),
    "a new generation": (PLAIN, SEEN, replace(SEEN, generation=2), CHANGED),
    "labels and status": (PLAIN, SEEN, replace(SEEN, resource_version="2"), None),
    "annotations": (PLAIN, SEEN, ANNOTATED, None),
    "annotations if the watch enables it": (ANNOTATIONS, SEEN, ANNOTATED, CHANGED),
    "content of a kind without generation": (PLAIN, SECRET, replace(SECRET, content_digest=b"d"), CHANGED),
    "other data of a kind without generation": (PLAIN, SECRET, replace(SECRET, resource_version="2"), None),
    "a pause": (FINALIZED, HELD, PAUSED, CHANGED),
    "the end of a pause": (FINALIZED, PAUSED, HELD, CHANGED),
    "a pause during the deletion": (FINALIZED, DELETING, replace(DELETING, paused=True), DELETED),
    "the end of a pause during the deletion": (FINALIZED, replace(DELETING, paused=True), DELETING, DELETED),
    "a request": (FINALIZED, SEEN, REQUESTED, reasons.REQUESTED),
    "another request": (FINALIZED, REQUESTED, replace(SEEN, marks=SECOND), reasons.REQUESTED),
    "status after a request": (FINALIZED, REQUESTED, replace(REQUESTED, resource_version="2"), None),
    "a withdrawn request": (FINALIZED, REQUESTED, SEEN, None),
    "a request with a new generation": (FINALIZED, REQUESTED, replace(SEEN, marks=SECOND, generation=2), CHANGED),
    "a request during the deletion": (FINALIZED, DELETING, replace(DELETING, marks=FIRST), DELETED),
    "an approval": (FINALIZED, SEEN, APPROVED, reasons.REQUESTED),
    "a withdrawn approval": (FINALIZED, APPROVED, SEEN, None),
    "an approval during the deletion": (FINALIZED, DELETING, replace(DELETING, marks=APPROVAL), DELETED),
    "a withdrawn approval during the deletion": (FINALIZED, replace(DELETING, marks=APPROVAL), DELETING, None),
    "another mode": (FINALIZED, SEEN, PLANNED, CHANGED),
    "another mode with a request": (FINALIZED, SEEN, replace(SEEN, marks={**FIRST, **PLAN}), CHANGED),
    "the mode of the watch again": (FINALIZED, PLANNED, SEEN, CHANGED),
    "another mode during the deletion": (FINALIZED, DELETING, replace(DELETING, marks=PLAN), DELETED),
    "the mode of the watch during the deletion": (FINALIZED, replace(DELETING, marks=PLAN), DELETING, DELETED),
    "a deletion": (FINALIZED, HELD, replace(DELETING, generation=2), DELETED),
    "status during the deletion": (FINALIZED, DELETING, replace(DELETING, resource_version="9"), None),
    "a corrected spec during the deletion": (FINALIZED, DELETING, replace(DELETING, generation=2), DELETED),
    "a deletion with another finalizer": (FINALIZED, SEEN, FOREIGN, None),
    "a deletion of a watch without finalizer": (PLAIN, SEEN, DELETING, None),
    "an object that is gone": (PLAIN, SEEN, None, reasons.GONE),
}


@pytest.mark.parametrize(("watch", "old", "new", "reason"), CASES.values(), ids=CASES)
def test_a_change_starts_a_run_or_none(
    watch: Watch, old: Summary | None, new: Summary | None, reason: RunReason | None
) -> None:
    assert _reason(watch, old, new) is reason


@pytest.mark.parametrize(("found", "reason"), [(SEEN, reasons.PRESENT), (DELETING, DELETED)], ids=["kept", "deleting"])
def test_an_object_of_the_first_list_runs_as_present_or_is_finalized(found: Summary, reason: RunReason) -> None:
    assert _reason(FINALIZED, None, found, initial=True) is reason


def test_a_corrected_annotation_starts_a_run_after_a_terminal_failure() -> None:
    assert _reason(PLAIN, SEEN, ANNOTATED, waits=True) is CHANGED
