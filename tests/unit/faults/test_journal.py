"""The fault suite's checks of what runs wrote down."""

from __future__ import annotations

from tests.faults import journal
from tests.faults.journal import Line, Logged


def _line(job: str, what: str, uid: str = "u", generation: int = 1, *, finalizing: bool = False) -> Line:
    return Line("1:1", job, "obj", uid, generation, what, finalizing)


def test_two_concurrent_runs_of_an_object_are_detected() -> None:
    one_after_the_other = [_line("a", "begin"), _line("a", "end"), _line("b", "begin"), _line("b", "end")]
    assert journal.overlaps(one_after_the_other) == []
    at_once = [_line("a", "begin"), _line("b", "begin"), _line("a", "end")]
    assert len(journal.overlaps(at_once)) == 1
    of_two_objects = [_line("a", "begin"), _line("b", "begin", uid="v"), _line("a", "end")]
    assert journal.overlaps(of_two_objects) == []


def test_a_missing_run_and_a_run_without_an_end_are_detected() -> None:
    assert journal.lost([_line("a", "begin"), _line("a", "end")], {"u": 1}) == []
    assert len(journal.lost([_line("a", "begin"), _line("a", "end")], {"u": 2})) == 1
    assert len(journal.lost([_line("a", "begin")], {"u": 1})) == 1
    assert len(journal.lost([], {"u": 1})) == 1


def test_a_run_without_a_cause_is_detected() -> None:
    lines = [_line("a", "begin"), _line("b", "begin")]
    succeeded, retried = Logged("created", "succeeded"), Logged("retry", "succeeded")
    assert len(journal.doubled(lines, {"a": succeeded, "b": retried})) == 1
    assert journal.doubled(lines, {"a": Logged("created", "failed"), "b": retried}) == []
    assert journal.doubled(lines, {"a": succeeded, "b": Logged("dependent changed", "succeeded")}) == []
    assert journal.doubled([_line("a", "begin"), _line("b", "begin", generation=2)], {"a": succeeded}) == []
    finalized = [_line("a", "begin", finalizing=True), _line("b", "begin", finalizing=True)]
    assert len(journal.doubled(finalized, {"a": succeeded, "b": Logged("dependent changed", "succeeded")})) == 1


def test_an_object_deleted_without_its_finalizer_is_detected() -> None:
    ran = [_line("a", "begin"), _line("a", "end")]
    finalized = [*ran, _line("b", "begin", finalizing=True), _line("b", "end", finalizing=True)]
    assert journal.unfinalized(finalized, ["u"]) == []
    assert journal.unfinalized(ran, ["other"]) == []
    assert len(journal.unfinalized(ran, ["u"])) == 1
