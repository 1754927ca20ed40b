"""The fault suite as a developer starts it, and proof that it notices what is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import journal
from tests.faults.journal import Line, Logged

ROOT = Path(__file__).resolve().parents[2]


def _suite(**settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.faults"],
        cwd=ROOT,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_whatever_happens_every_object_converges_no_run_is_lost_or_doubled_and_nothing_leaks() -> None:
    found = _suite()
    assert found.returncode == 0, found.stdout + found.stderr
    sys.stdout.write(found.stdout)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("promise", "faults", "seen"),
    [
        ("retry", "child of a run: SIGKILL", "waited 45 s in vain: all to converge"),
        ("reaping", "child of a run: SIGKILL", "(zombie)"),
        ("relisting", "410 after a gap", "waited 45 s in vain: all to converge"),
    ],
)
def test_a_broken_promise_is_noticed(promise: str, faults: str, seen: str) -> None:
    # A change may mend what was broken before anybody looked: it is looked at after each round, until it shows.
    rounds = {"FAULTS_ROUNDS": "60", "FAULTS_REST": "1", "FAULTS_PATIENCE": "45"}
    found = _suite(FAULTS_BREAK=promise, FAULTS_ONLY=faults, **rounds)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "all is well" in found.stdout, found.stdout + found.stderr
    assert seen in found.stdout, found.stdout + found.stderr


def _line(job: str, what: str, uid: str = "u", generation: int = 1, *, finalizing: bool = False) -> Line:
    return Line("1:1", job, "obj", uid, generation, what, finalizing)


def test_two_runs_of_an_object_at_once_are_seen() -> None:
    one_after_the_other = [_line("a", "begin"), _line("a", "end"), _line("b", "begin"), _line("b", "end")]
    assert journal.overlaps(one_after_the_other) == []
    at_once = [_line("a", "begin"), _line("b", "begin"), _line("a", "end")]
    assert len(journal.overlaps(at_once)) == 1
    of_two_objects = [_line("a", "begin"), _line("b", "begin", uid="v"), _line("a", "end")]
    assert journal.overlaps(of_two_objects) == []


def test_a_run_that_never_was_or_never_ended_is_seen() -> None:
    assert journal.lost([_line("a", "begin"), _line("a", "end")], {"u": 1}) == []
    assert len(journal.lost([_line("a", "begin"), _line("a", "end")], {"u": 2})) == 1
    assert len(journal.lost([_line("a", "begin")], {"u": 1})) == 1
    assert len(journal.lost([], {"u": 1})) == 1


def test_a_run_without_a_cause_is_seen() -> None:
    lines = [_line("a", "begin"), _line("b", "begin")]
    succeeded, retried = Logged("created", "succeeded"), Logged("retry", "succeeded")
    assert len(journal.doubled(lines, {"a": succeeded, "b": retried})) == 1
    assert journal.doubled(lines, {"a": Logged("created", "failed"), "b": retried}) == []
    assert journal.doubled(lines, {"a": succeeded, "b": Logged("dependent changed", "succeeded")}) == []
    assert journal.doubled([_line("a", "begin"), _line("b", "begin", generation=2)], {"a": succeeded}) == []
    finalized = [_line("a", "begin", finalizing=True), _line("b", "begin", finalizing=True)]
    assert len(journal.doubled(finalized, {"a": succeeded, "b": Logged("dependent changed", "succeeded")})) == 1


def test_an_object_that_went_without_its_finalizer_is_seen() -> None:
    ran = [_line("a", "begin"), _line("a", "end")]
    finalized = [*ran, _line("b", "begin", finalizing=True), _line("b", "end", finalizing=True)]
    assert journal.unfinalized(finalized, ["u"]) == []
    assert journal.unfinalized(ran, ["other"]) == []
    assert len(journal.unfinalized(ran, ["u"])) == 1
