"""What starts a run, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from runner.controller import decisions
from runner.kube.cache import Change, Summary
from runner.objects import ObjectKey
from runner.watches.watch import Finalizer, Watch
from runner.workqueue.request import RunReason

KEY = ObjectKey("ns", "a")
NAME = "cache.example.com/finalizer"
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
SECRET = replace(SEEN, generation=None, content_digest=b"c")

MakeWatch = Callable[..., Watch]


def _decide(watch: Watch, old: Summary | None, new: Summary | None, **how: bool) -> RunReason | None:
    change = Change(KEY, old, new, initial=how.get("initial", False))
    return decisions.run_reason(watch, change, waits=how.get("waits", False))


@pytest.fixture
def finalized(make_watch: MakeWatch) -> Watch:
    return make_watch(finalizer=Finalizer(NAME, make_watch().content, {}, None))


def test_creation_starts_a_run(make_watch: MakeWatch) -> None:
    assert _decide(make_watch(), None, SEEN) is RunReason.CREATED


def test_each_object_of_the_first_list_runs_as_present(make_watch: MakeWatch) -> None:
    assert _decide(make_watch(), None, SEEN, initial=True) is RunReason.PRESENT


def test_another_object_under_the_same_name_is_a_creation(make_watch: MakeWatch) -> None:
    assert _decide(make_watch(), SEEN, replace(SEEN, uid="u2")) is RunReason.CREATED


def test_a_new_generation_starts_a_run(make_watch: MakeWatch) -> None:
    assert _decide(make_watch(), SEEN, replace(SEEN, generation=2)) is RunReason.CHANGED


def test_labels_and_status_start_none(make_watch: MakeWatch) -> None:
    assert _decide(make_watch(), SEEN, replace(SEEN, resource_version="2")) is None


def test_annotations_start_a_run_only_if_the_watch_enables_it(make_watch: MakeWatch) -> None:
    annotated = replace(SEEN, annotations_digest=b"b")
    assert _decide(make_watch(), SEEN, annotated) is None
    assert _decide(make_watch(watch_annotations_changes=True), SEEN, annotated) is RunReason.CHANGED


@pytest.mark.parametrize("paused", [True, False])
def test_pausing_and_resuming_an_object_start_a_run_at_once(finalized: Watch, *, paused: bool) -> None:
    before = replace(SEEN, paused=not paused, finalizers=(NAME,))
    assert _decide(finalized, before, replace(before, paused=paused)) is RunReason.CHANGED
    deleting = replace(before, deleting=True)
    assert _decide(finalized, deleting, replace(deleting, paused=paused)) is RunReason.DELETED


def test_each_new_request_starts_a_run_and_its_withdrawal_none(finalized: Watch) -> None:
    asked, again = replace(SEEN, run_requested="1"), replace(SEEN, run_requested="2")
    assert _decide(finalized, SEEN, asked) is RunReason.REQUESTED
    assert _decide(finalized, asked, again) is RunReason.REQUESTED
    assert _decide(finalized, asked, replace(asked, resource_version="2")) is None
    assert _decide(finalized, asked, SEEN) is None
    assert _decide(finalized, asked, replace(again, generation=2)) is RunReason.CHANGED


def test_an_approval_and_another_mode_start_a_run(finalized: Watch) -> None:
    for state, reason in (
        (SEEN, RunReason.REQUESTED),
        (replace(SEEN, deleting=True, finalizers=(NAME,)), RunReason.DELETED),
    ):
        approved = replace(state, approved="hash")
        assert _decide(finalized, state, approved) is reason
        assert _decide(finalized, approved, state) is None
        mode = RunReason.CHANGED if reason is RunReason.REQUESTED else reason
        assert _decide(finalized, state, replace(state, mode="plan")) is mode
        assert _decide(finalized, replace(state, mode="plan"), state) is mode


def test_a_run_of_a_waiting_finalizer_can_be_requested(finalized: Watch) -> None:
    deleting = replace(SEEN, deleting=True, finalizers=(NAME,))
    assert _decide(finalized, deleting, replace(deleting, run_requested="1")) is RunReason.DELETED


def test_a_corrected_annotation_starts_a_run_after_a_terminal_failure(make_watch: MakeWatch) -> None:
    annotated = replace(SEEN, annotations_digest=b"b")
    assert _decide(make_watch(), SEEN, annotated, waits=True) is RunReason.CHANGED


def test_a_kind_without_generation_runs_for_any_change_of_its_content(make_watch: MakeWatch) -> None:
    assert _decide(make_watch(), SECRET, replace(SECRET, content_digest=b"d")) is RunReason.CHANGED
    assert _decide(make_watch(), SECRET, replace(SECRET, resource_version="2")) is None


def test_a_deletion_with_the_operators_finalizer_starts_one_run(finalized: Watch) -> None:
    held = replace(SEEN, finalizers=(NAME,))
    deleting = replace(held, deleting=True, generation=2)
    assert _decide(finalized, held, deleting) is RunReason.DELETED
    assert _decide(finalized, deleting, replace(deleting, resource_version="9")) is None


def test_an_object_found_being_deleted_at_start_is_finalized(finalized: Watch) -> None:
    deleting = replace(SEEN, finalizers=(NAME,), deleting=True)
    assert _decide(finalized, None, deleting, initial=True) is RunReason.DELETED


def test_a_corrected_spec_during_deletion_runs_the_finalizer_again(finalized: Watch) -> None:
    deleting = replace(SEEN, finalizers=(NAME,), deleting=True)
    assert _decide(finalized, deleting, replace(deleting, generation=2)) is RunReason.DELETED


def test_a_deletion_without_the_operators_finalizer_starts_no_run(finalized: Watch, make_watch: MakeWatch) -> None:
    deleting = replace(SEEN, finalizers=("other/one",), deleting=True)
    assert _decide(finalized, SEEN, deleting) is None
    assert _decide(make_watch(), SEEN, replace(deleting, finalizers=(NAME,))) is None


def test_a_deleted_object_causes_a_cleanup(make_watch: MakeWatch) -> None:
    assert _decide(make_watch(), SEEN, None) is RunReason.GONE
