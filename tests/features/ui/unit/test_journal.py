"""What is noted of runs while the operator lives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.core.engine.job import Job, Outcome, RunResult, TaskFailure
from runner.core.proxy.identity import RunStats
from runner.core.queue import reasons
from runner.core.queue.reasons import ReconcileRequest
from runner.core.watches.watch import Role
from runner.features.ui import journal as journals
from runner.features.ui.journal import ABANDONED, Journal, RunRecorder
from runner.values.objects import ObjectKey
from tests.kit.page_values import ended, start

KEY = ObjectKey("default", "sample")
CALLS = RunStats(calls=3, seconds=0.5, hits=1)


def begin(journal: Journal, job: Job) -> RunRecorder:
    return journal.start(job, ReconcileRequest(job.key, reasons.CHANGED, ("spec.size",), 0, 0, 2.5))


def result(outcome: Outcome, *failures: TaskFailure, message: str = "") -> RunResult:
    return RunResult(outcome, None, failures, message, None, 4.0)


def test_a_run_is_live_until_it_ends_and_then_among_the_latest(make_job: Callable[..., Job]) -> None:
    clock = iter(range(100, 200))
    journal = Journal(lambda: next(clock))
    job = make_job(content=Role("sample", Path("/roles/sample")))
    notes = begin(journal, job)
    (live,) = journal.of(job.gvk, job.key)
    assert (live.outcome, live.reason, live.details, live.waited) == ("", "changed", ("spec.size",), 2.5)
    assert (live.content, live.began) == ("sample", 100)

    notes.end(result(Outcome.SUCCEEDED), CALLS)
    assert not journal.live
    (run,) = reversed(journal.ended)
    assert (run.outcome, run.message, run.ended) == ("succeeded", "", 102)
    assert (run.calls, run.call_seconds, run.cache_hits) == (3, 0.5, 1)


def test_a_failed_run_has_task_place_and_message_of_its_failure(make_job: Callable[..., Job]) -> None:
    journal = Journal(lambda: 0.0)
    job = make_job()
    job.secrets.add_initial(["hunter2-hunter2"])
    failure = TaskFailure("Deploy", "no such image; password hunter2-hunter2", "/r/main.yml:7")
    begin(journal, job).end(result(Outcome.FAILED, failure), CALLS)
    (run,) = reversed(journal.ended)
    assert (run.outcome, run.task, run.place) == ("failed", "Deploy", "/r/main.yml:7")
    assert run.message.startswith("no such image")
    assert "hunter2" not in run.message


def test_each_recorded_event_increments_the_revision(make_job: Callable[..., Job]) -> None:
    journal = Journal(lambda: 0.0)
    seen = [journal.revision]
    notes = begin(journal, make_job())
    seen.append(journal.revision)
    for event in (start("a"), ended("on_ok")):
        notes.event(event)
        seen.append(journal.revision)
    notes.end(result(Outcome.SUCCEEDED), CALLS)
    seen.append(journal.revision)
    assert seen == sorted(set(seen))
    notes.event({"event": "verbose"})
    assert journal.revision == seen[-1]


def test_a_run_without_an_end_is_abandoned(make_job: Callable[..., Job]) -> None:
    journal = Journal(lambda: 7.0)
    begin(journal, make_job(ident="one")).event(start("a"))
    journal.settle(lambda _gvk, _key: True)
    assert [run.ident for run in journal.live.values()] == ["one"]
    begin(journal, make_job(ident="two"))
    assert [run.ident for run in journal.live.values()] == ["two"]
    journal.settle(lambda _gvk, _key: False)
    assert not journal.live
    assert [(run.ident, run.outcome) for run in reversed(journal.ended)] == [("two", ABANDONED), ("one", ABANDONED)]
    assert [task.state for task in list(reversed(journal.ended))[1].timeline.tasks] == ["cut short"]


def test_the_oldest_runs_are_dropped_if_the_journal_is_too_large(
    make_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "MOST_WEIGHT", 12)
    journal = Journal(lambda: 0.0)
    for number in range(6):
        notes = begin(journal, make_job(ident=str(number)))
        for name in "abc":
            notes.event(start(name))
        notes.end(result(Outcome.SUCCEEDED), CALLS)
    assert [run.ident for run in reversed(journal.ended)] == ["5", "4", "3"]


def test_a_run_larger_than_the_limit_is_kept_alone(
    make_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "MOST_WEIGHT", 1)
    journal = Journal(lambda: 0.0)
    for ident in ("one", "two"):
        notes = begin(journal, make_job(ident=ident))
        notes.event(start("a"))
        notes.end(result(Outcome.SUCCEEDED), CALLS)
    assert [run.ident for run in reversed(journal.ended)] == ["two"]


def test_failed_runs_are_counted_until_one_succeeds_or_the_object_is_gone(make_job: Callable[..., Job]) -> None:
    clock = iter(range(100, 200))
    journal = Journal(lambda: next(clock))
    job = make_job()
    outcomes = (Outcome.FAILED, Outcome.CANCELED, Outcome.TIMED_OUT, Outcome.SUCCEEDED, Outcome.DIED)
    counted = []
    for outcome in outcomes:
        begin(journal, job).end(result(outcome), CALLS)
        streak = journal.streaks.get((job.gvk, job.key))
        counted.append(streak and (streak.runs, streak.since))
    assert counted == [(1, 100), (1, 100), (2, 100), None, (1, 112)]
    journal.forget(lambda _gvk, key: key == job.key)
    assert journal.streaks
    journal.forget(lambda _gvk, _key: False)
    assert not journal.streaks


def test_failures_are_grouped_by_task_and_message_apart_from_names_and_numbers(make_job: Callable[..., Job]) -> None:
    journal = Journal(lambda: 0.0)
    for name, message in (
        ("bread", "quota of bread exceeded: pod bread-7f9c has 3"),
        ("milk", "quota of milk exceeded: pod milk-88b1 has 14"),
        ("eggs", "no such image"),
    ):
        failure = TaskFailure("Deploy", message, "/r/main.yml:7")
        begin(journal, make_job(ident=name, key=ObjectKey("shop", name))).end(
            RunResult(Outcome.FAILED, None, (failure,), "", None, 1.0), CALLS
        )
    groups = journal.failure_groups()
    assert [(group.latest.message, [key.name for key in group.failing], group.runs) for group in groups] == [
        ("no such image", ["eggs"], 1),
        ("quota of milk exceeded: pod milk-88b1 has 14", ["milk", "bread"], 2),
    ]
