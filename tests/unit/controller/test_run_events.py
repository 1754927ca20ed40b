"""Events of a run: its reason, its phases and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from runner.base.events.bodies import ApiEvent
from runner.base.events.recorder import EventRecorder
from runner.core.engine.job import Job, Outcome, Recap, RunResult, TaskFailure
from runner.core.queue import reasons
from runner.core.queue.reasons import ReconcileRequest, RunReason
from runner.core.reconcile.run_log import RunEvents
from runner.values.objects import ObjectRef

RECAP = Recap(ok=3, changed=1, skipped=2, failures=0, completion="")
SUCCESS = RunResult(Outcome.SUCCEEDED, RECAP, (), "", None, 3.21)
FAILURES = (TaskFailure("Deploy", "no such image", "t.yml:3"), TaskFailure("Clean up", "gone", "t.yml:9"))


class RecordedEvents:
    """Records the Events of a run."""

    def __init__(self, job: Job, *, finalizing: bool = False) -> None:
        self.all: list[ApiEvent] = []
        about = ObjectRef(job.gvk, job.key, "uid")
        self.run_events = RunEvents(cast("EventRecorder", self), about, job, finalizing=finalizing)

    def record(self, what: ApiEvent) -> None:
        self.all.append(what)

    @property
    def lines(self) -> list[str]:
        return [f"{each.type} {each.reason}: {each.note}" for each in self.all]

    def started(self, reason: RunReason, *details: str, failures: int = 0, attempts: int = 0) -> None:
        key, attempts = self.run_events._about.key, max(attempts, failures)
        self.run_events.started(ReconcileRequest(key, reason, details, attempts, failures, 0.0))

    def task(self, name: str, event: str = "runner_on_ok") -> None:
        self.run_events.event({"event": event, "event_data": {"task": name}})


@pytest.fixture
def recorded(make_job: Callable[..., Job]) -> RecordedEvents:
    return RecordedEvents(make_job())


@pytest.mark.parametrize(
    ("reason", "details", "failures", "reason_text"),
    [
        (reasons.CREATED, (), 0, "created"),
        (reasons.CHANGED, ("spec.size", "spec.image"), 0, "changed: spec.size, spec.image"),
        (reasons.CHANGED, tuple("abcdefg"), 0, "changed: a, b, c, d, e and 2 more"),
        (reasons.RETRY, (), 1, "retry after 1 failed run"),
        (reasons.RETRY, (), 4, "retry after 4 failed runs"),
        (reasons.RESYNC, (), 0, "periodic resync"),
    ],
)
def test_the_event_of_a_start_contains_the_reason(
    recorded: RecordedEvents, reason: RunReason, details: tuple[str, ...], failures: int, reason_text: str
) -> None:
    recorded.started(reason, *details, failures=failures)
    assert recorded.lines == [f"Normal RunStarted: Run started, {reason_text}"]


def test_a_retry_without_a_failed_run_counts_attempts(recorded: RecordedEvents) -> None:
    for attempts in (0, 1, 2):
        recorded.started(reasons.RETRY, attempts=attempts)
    assert [each.rpartition(", ")[2] for each in recorded.lines] == [
        "retry",
        "retry after 1 attempt",
        "retry after 2 attempts",
    ]


def test_retries_are_alike_whatever_their_number(recorded: RecordedEvents) -> None:
    for failures in (1, 2):
        recorded.started(reasons.RETRY, failures=failures)
    assert len({each.name for each in recorded.all}) == 1


def test_changes_of_different_fields_are_not_alike(recorded: RecordedEvents) -> None:
    for field in ("spec.size", "spec.image"):
        recorded.started(reasons.CHANGED, field)
    assert len({each.name for each in recorded.all}) == 2


def test_the_event_of_a_success_has_counts_and_duration_and_one_identity(recorded: RecordedEvents) -> None:
    recorded.run_events.ended(SUCCESS)
    recorded.run_events.ended(RunResult(Outcome.SUCCEEDED, RECAP, (), "", None, 9.0))
    assert recorded.lines[0] == "Normal RunSucceeded: Run succeeded after 3.2 s: 3 ok, 1 changed, 2 skipped"
    assert len({each.name for each in recorded.all}) == 1


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (
            RunResult(Outcome.FAILED, RECAP, FAILURES, "", None, 1.0),
            "Warning RunFailed: no such image (task 'Deploy', t.yml:3); and 1 more failed task",
        ),
        (RunResult(Outcome.TIMED_OUT, None, (), "took too long", None, 1.0), "Warning RunTimedOut: took too long"),
        (RunResult(Outcome.DIED, None, (), "was killed", None, 1.0), "Warning RunFailed: was killed"),
        (
            RunResult(Outcome.SUCCEEDED, None, (), "", 30.0, 1.0, unfinished=True),
            "Normal RunSucceeded: Run succeeded and requested another run after 1.0 s",
        ),
        (RunResult(Outcome.NOT_STARTED, None, (), "no room", None, 0.0), "Warning RunFailed: no room"),
        (RunResult(Outcome.CANCELED, None, (), "it was changed", None, 1.0), "Normal RunCanceled: it was changed"),
    ],
)
def test_the_event_of_any_other_end_contains_the_cause(recorded: RecordedEvents, result: RunResult, line: str) -> None:
    recorded.run_events.ended(result)
    assert recorded.lines == [line]


def test_runs_of_finalizers_have_their_own_event_reasons(make_job: Callable[..., Job]) -> None:
    recorded = RecordedEvents(make_job(), finalizing=True)
    recorded.started(reasons.DELETED)
    recorded.run_events.ended(SUCCESS)
    assert [each.reason for each in recorded.all] == ["FinalizerStarted", "FinalizerSucceeded"]


def test_each_phase_starts_and_ends(recorded: RecordedEvents) -> None:
    recorded.task("phase: Install")
    recorded.task("Copy files")
    recorded.task("Phase:  Configure it ")
    recorded.run_events.ended(SUCCESS)
    assert recorded.lines[:-1] == [
        "Normal PhaseStarted: Phase Install started",
        "Normal PhaseEnded: Phase Install ended",
        "Normal PhaseStarted: Phase Configure it started",
        "Normal PhaseEnded: Phase Configure it ended",
    ]


def test_a_phase_whose_failure_was_rescued_has_failed_and_the_next_one_has_not(recorded: RecordedEvents) -> None:
    recorded.task("Before any phase", "runner_on_failed")
    for phase in ("Upload", "Undo", "Tidy"):
        recorded.task(f"Phase: {phase}")
        if phase == "Upload":
            recorded.task("Copy", "runner_on_failed")
    recorded.run_events.event({"event": "runner_on_failed", "event_data": {"task": "Probe", "ignore_errors": True}})
    recorded.run_events.ended(SUCCESS)
    assert [line for line in recorded.lines if "PhaseEnded" in line] == [
        "Warning PhaseEnded: Phase Upload failed",
        "Normal PhaseEnded: Phase Undo ended",
        "Normal PhaseEnded: Phase Tidy ended",
    ]


@pytest.mark.parametrize("event", ["runner_on_skipped", "playbook_on_task_start", "runner_on_failed"])
def test_a_phase_whose_task_did_not_run_has_no_event(recorded: RecordedEvents, event: str) -> None:
    recorded.task("phase: Upgrade", event)
    recorded.run_events.ended(SUCCESS)
    assert [each.reason for each in recorded.all] == ["RunSucceeded"]


@pytest.mark.parametrize("data", [None, {}, {"task": None}, {"task": "phase:"}], ids=str)
def test_invalid_events_are_not_phases(recorded: RecordedEvents, data: Any) -> None:
    recorded.run_events.event({"event": "runner_on_ok", "event_data": data})
    assert recorded.all == []


def test_notes_hold_no_secret_of_the_run(make_job: Callable[..., Job]) -> None:
    job = make_job()
    job.secrets.masker.add("s3cr3t-value")
    recorded = RecordedEvents(job)
    recorded.task("phase: with s3cr3t-value")
    recorded.run_events.ended(
        RunResult(Outcome.FAILED, None, (TaskFailure("t", "s3cr3t-value is wrong", ""),), "", None, 1.0),
    )
    assert len(recorded.all) == 3
    assert "s3cr3t" not in "".join(recorded.lines)


def test_a_phase_that_fails_ends_with_a_warning_before_the_run(recorded: RecordedEvents) -> None:
    recorded.task("phase: Install")
    recorded.run_events.ended(RunResult(Outcome.FAILED, RECAP, FAILURES, "", None, 1.0))
    assert recorded.lines[1] == "Warning PhaseEnded: Phase Install was cut short"
    assert recorded.all[2].reason == "RunFailed"
