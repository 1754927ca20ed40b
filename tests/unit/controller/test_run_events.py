"""The story of a run: why it started, its phases, what came of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from runner.controller.run_events import RunEvents
from runner.engine.job import Job, Outcome, Recap, RunResult, TaskFailure
from runner.events.bodies import ApiEvent
from runner.events.recorder import EventRecorder
from runner.objects import ObjectRef
from runner.workqueue.request import ReconcileRequest, RunReason

RECAP = Recap(ok=3, changed=1, skipped=2, failures=0, completion="")
SUCCESS = RunResult(Outcome.SUCCEEDED, RECAP, (), "", None, 3.21)
FAILURES = (TaskFailure("Deploy", "no such image", "t.yml:3"), TaskFailure("Clean up", "gone", "t.yml:9"))


class Told:
    """Takes down what is told."""

    def __init__(self, job: Job, *, finalizing: bool = False) -> None:
        self.all: list[ApiEvent] = []
        about = ObjectRef(job.gvk, job.key, "uid")
        self.story = RunEvents(cast("EventRecorder", self), about, job, finalizing=finalizing)

    def record(self, what: ApiEvent) -> None:
        self.all.append(what)

    @property
    def lines(self) -> list[str]:
        return [f"{each.type} {each.reason}: {each.note}" for each in self.all]

    def task(self, name: str, event: str = "runner_on_ok") -> None:
        self.story.event({"event": event, "event_data": {"task": name}})


@pytest.fixture
def told(make_job: Callable[..., Job]) -> Told:
    return Told(make_job())


@pytest.mark.parametrize(
    ("reason", "details", "failures", "said"),
    [
        (RunReason.CREATED, (), 0, "created"),
        (RunReason.CHANGED, ("spec.size", "spec.image"), 0, "changed: spec.size, spec.image"),
        (RunReason.CHANGED, tuple("abcdefg"), 0, "changed: a, b, c, d, e and 2 more"),
        (RunReason.RETRY, (), 1, "retry after 1 failed run"),
        (RunReason.RETRY, (), 4, "retry after 4 failed runs"),
        (RunReason.RESYNC, (), 0, "periodic resync"),
    ],
)
def test_a_start_says_why(told: Told, reason: RunReason, details: tuple[str, ...], failures: int, said: str) -> None:
    key = told.story._about.key
    told.story.started(ReconcileRequest(key, reason, details, failures, failures, 0.0))
    assert told.lines == [f"Normal RunStarted: Run started, {said}"]


def test_retries_are_alike_whatever_their_number(told: Told) -> None:
    for failures in (1, 2):
        told.story.started(ReconcileRequest(told.story._about.key, RunReason.RETRY, (), failures, failures, 0.0))
    assert len({each.name for each in told.all}) == 1


def test_changes_of_different_fields_are_not_alike(told: Told) -> None:
    for field in ("spec.size", "spec.image"):
        told.story.started(ReconcileRequest(told.story._about.key, RunReason.CHANGED, (field,), 0, 0, 0.0))
    assert len({each.name for each in told.all}) == 2


def test_success_says_counts_and_duration_and_is_alike_whatever_it_took(told: Told) -> None:
    told.story.ended(SUCCESS)
    told.story.ended(RunResult(Outcome.SUCCEEDED, RECAP, (), "", None, 9.0))
    assert told.lines[0] == "Normal RunSucceeded: Run succeeded after 3.2 s: 3 ok, 1 changed, 2 skipped"
    assert len({each.name for each in told.all}) == 1


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (
            RunResult(Outcome.FAILED, RECAP, FAILURES, "", None, 1.0),
            "Warning RunFailed: no such image (task 'Deploy', t.yml:3); and 1 more failed task",
        ),
        (RunResult(Outcome.TIMED_OUT, None, (), "took too long", None, 1.0), "Warning RunTimedOut: took too long"),
        (RunResult(Outcome.DIED, None, (), "was killed", None, 1.0), "Warning RunFailed: was killed"),
        (RunResult(Outcome.NOT_STARTED, None, (), "no room", None, 0.0), "Warning RunFailed: no room"),
        (RunResult(Outcome.CANCELED, None, (), "it was changed", None, 1.0), "Normal RunCanceled: it was changed"),
    ],
)
def test_every_other_end_says_what_happened(told: Told, result: RunResult, line: str) -> None:
    told.story.ended(result)
    assert told.lines == [line]


def test_a_finalizers_story_is_its_own(make_job: Callable[..., Job]) -> None:
    told = Told(make_job(), finalizing=True)
    told.story.started(ReconcileRequest(told.story._about.key, RunReason.DELETED, (), 0, 0, 0.0))
    told.story.ended(SUCCESS)
    assert [each.reason for each in told.all] == ["FinalizerStarted", "FinalizerSucceeded"]


def test_each_phase_starts_and_ends(told: Told) -> None:
    told.task("phase: Install")
    told.task("Copy files")
    told.task("Phase:  Configure it ")
    told.story.ended(SUCCESS)
    assert told.lines[:-1] == [
        "Normal PhaseStarted: Phase Install started",
        "Normal PhaseEnded: Phase Install ended",
        "Normal PhaseStarted: Phase Configure it started",
        "Normal PhaseEnded: Phase Configure it ended",
    ]


def test_a_phase_that_fails_ends_with_a_warning_before_the_run(told: Told) -> None:
    told.task("phase: Install")
    told.story.ended(RunResult(Outcome.FAILED, RECAP, FAILURES, "", None, 1.0))
    assert told.lines[1] == "Warning PhaseEnded: Phase Install was cut short"
    assert told.all[2].reason == "RunFailed"


def test_a_phase_whose_failure_was_rescued_has_failed_and_the_next_one_has_not(told: Told) -> None:
    told.task("Before any phase", "runner_on_failed")
    for phase in ("Upload", "Undo", "Tidy"):
        told.task(f"Phase: {phase}")
        if phase == "Upload":
            told.task("Copy", "runner_on_failed")
    told.story.event({"event": "runner_on_failed", "event_data": {"task": "Probe", "ignore_errors": True}})
    told.story.ended(SUCCESS)
    assert [line for line in told.lines if "PhaseEnded" in line] == [
        "Warning PhaseEnded: Phase Upload failed",
        "Normal PhaseEnded: Phase Undo ended",
        "Normal PhaseEnded: Phase Tidy ended",
    ]


def test_the_last_phase_has_failed_where_the_run_goes_on_to_succeed(told: Told) -> None:
    told.task("Phase: Upload")
    told.task("Copy", "runner_on_failed")
    told.story.ended(SUCCESS)
    assert told.lines[1] == "Warning PhaseEnded: Phase Upload failed"


@pytest.mark.parametrize("event", ["runner_on_skipped", "playbook_on_task_start", "runner_on_failed"])
def test_a_phase_whose_task_did_not_run_is_none(told: Told, event: str) -> None:
    told.task("phase: Upgrade", event)
    told.story.ended(SUCCESS)
    assert [each.reason for each in told.all] == ["RunSucceeded"]


@pytest.mark.parametrize("data", [None, {}, {"task": None}, {"task": "phase:"}], ids=str)
def test_odd_events_are_no_phase(told: Told, data: Any) -> None:
    told.story.event({"event": "runner_on_ok", "event_data": data})
    assert told.all == []


def test_notes_hold_no_secret_of_the_run(make_job: Callable[..., Job]) -> None:
    job = make_job()
    job.secrets.masker.add("s3cr3t-value")
    told = Told(job)
    told.task("phase: with s3cr3t-value")
    told.story.ended(
        RunResult(Outcome.FAILED, None, (TaskFailure("t", "s3cr3t-value is wrong", ""),), "", None, 1.0),
    )
    assert len(told.all) == 3
    assert "s3cr3t" not in "".join(told.lines)
