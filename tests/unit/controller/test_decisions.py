"""What comes after a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runner.core.engine.job import HostRecap, Outcome, RunResult, TaskFailure
from runner.core.queue import reasons
from runner.core.queue.reasons import RunReason
from runner.core.reconcile import decisions
from runner.core.reconcile.decisions import Decision, Done, RequeueAfter, Result, Retry, RetryTerms, Terminal
from runner.core.watches import policy
from runner.core.watches.policy import FinalizerLimit, RetryPolicy
from runner.values.backoff import Backoff
from tests.kit.reasons import REASONS

BACKOFF = Backoff(3.0, 2.0, 60.0)
TERMS = RetryTerms(RetryPolicy(BACKOFF, attempts=0), resync_after=100.0, finalizing=False, limit=None, deleted_for=0.0)
GOOD = RunResult(Outcome.SUCCEEDED, None, (), "", None, 1.0)
RECAP = HostRecap("web", 0, 0, 0, 1)
BAD = replace(GOOD, outcome=Outcome.FAILED, failures=(TaskFailure("a", "no", ""),))


FINAL = replace(BAD, failures=(TaskFailure("a", "no", ""), TaskFailure("b", "never", "", terminal=True)))
LOST = replace(BAD, failures=(TaskFailure("a", "no", "", host="web", unreachable=True),), hosts=(RECAP,))
WAITS = replace(GOOD, requeue_after=30.0, unfinished=True)
RETRIED, UNCOUNTED = Retry(BACKOFF, ran=True), Retry(BACKOFF, ran=False)


def _attempts(most: int, cap: float = BACKOFF.cap) -> RetryTerms:
    return replace(TERMS, retry=RetryPolicy(replace(BACKOFF, cap=cap), attempts=most))


def _finalizing(limit: FinalizerLimit | None = None, **different: Any) -> RetryTerms:
    """Terms of a finalizer, to which the attempts of ordinary runs do not apply."""
    return replace(_attempts(1), finalizing=True, limit=limit, **different)


def _limit(attempts: int, time: float | None = None, *, release: bool = False) -> FinalizerLimit:
    return FinalizerLimit(attempts, time, release=release)


OWN: dict[str, Any] = {"has_own_finalizer": True}
DYING = replace(TERMS, terminating=True)
CASES: dict[str, tuple[RunResult, RetryTerms, int, Result, bool, str]] = {
    "a success": (GOOD, TERMS, 0, Done(100.0), False, ""),
    "a success without a period": (GOOD, replace(TERMS, resync_after=None), 0, Done(None), False, ""),
    "a requeue that the role requests": (replace(GOOD, requeue_after=30.0), TERMS, 0, RequeueAfter(30.0), False, ""),
    "a run that was ended": (replace(BAD, outcome=Outcome.CANCELED), _attempts(1), 0, UNCOUNTED, False, ""),
    "a failure before the last attempt": (BAD, _attempts(3), 1, RETRIED, False, ""),
    "the last attempt": (
        *(BAD, _attempts(3), 2, Terminal(), False),
        "3 runs failed in a row: the operator does not run the object again until the object changes.",
    ),
    "a terminal failure": (FINAL, TERMS, 0, Terminal(), False, "terminal failure"),
    "hosts that were not reached": (
        *(LOST, _attempts(1, cap=1800.0), 9, Retry(replace(BACKOFF, cap=300.0), ran=False), False, ""),
    ),
    "hosts that were not reached, and a short cap": (LOST, _attempts(1), 0, UNCOUNTED, False, ""),
    "hosts that a finalizer did not reach": (LOST, _finalizing(_limit(1, release=True)), 0, Done(None), True, "limit"),
    "a finalizer": (GOOD, _finalizing(), 0, Done(None), True, ""),
    "an own finalizer that requests another run": (WAITS, _finalizing(**OWN), 0, RequeueAfter(30.0), False, ""),
    "an own finalizer that is done": (
        replace(WAITS, unfinished=False),
        _finalizing(**OWN),
        0,
        Done(None),
        True,
        "",
    ),
    "the role of the watch as finalizer": (WAITS, _finalizing(), 0, Done(None), True, ""),
    "an own finalizer at its limit": (
        *(WAITS, _finalizing(_limit(0, 60.0, release=True), deleted_for=61.0, **OWN), 0, Done(None), True, "limit"),
    ),
    "a finalizer without a limit": (BAD, _finalizing(), 50, RETRIED, False, ""),
    "a finalizer within its attempts": (BAD, _finalizing(_limit(2), deleted_for=1e6), 0, RETRIED, False, ""),
    "a finalizer at its attempts": (BAD, _finalizing(_limit(2)), 1, Terminal(), False, "limit"),
    "a finalizer within its time": (BAD, _finalizing(_limit(0, 60), deleted_for=59), 50, RETRIED, False, ""),
    "a finalizer at its time": (BAD, _finalizing(_limit(0, 60), deleted_for=60), 0, Terminal(), False, "limit"),
    "a finalizer that is released": (
        *(BAD, _finalizing(_limit(1, release=True)), 0, Done(None), True),
        "Finalizer removed before it succeeded: 1 run of the finalizer failed in a row, the limit.",
    ),
    "a terminal failure of a finalizer": (FINAL, _finalizing(), 0, RETRIED, False, ""),
    "a terminal failure of a finalizer within its limit": (FINAL, _finalizing(_limit(2)), 0, RETRIED, False, ""),
    "a failure in a namespace that is being deleted": (BAD, DYING, 0, Terminal(), False, "namespace is being deleted"),
    "a success in a namespace that is being deleted": (GOOD, DYING, 0, Done(100.0), False, ""),
    "a finalizer in a namespace that is being deleted": (
        *(BAD, _finalizing(terminating=True), 0, RETRIED, False, "finalizer.limit"),
    ),
    "a finalizer at its limit in a namespace that is being deleted": (
        *(BAD, _finalizing(_limit(2, release=True), terminating=True), 1, Done(None), True, "finalizer"),
    ),
}


@pytest.mark.parametrize(("ended", "terms", "failed", "result", "release", "advice"), CASES.values(), ids=CASES)
def test_what_follows_a_run(
    ended: RunResult, terms: RetryTerms, failed: int, result: Result, *, release: bool, advice: str
) -> None:
    decision = decisions.after_run(ended, terms, failed_runs=failed)
    assert (decision.result, decision.release) == (result, release)
    assert advice in " ".join(decision.advice)
    assert bool(decision.advice) == bool(advice)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT, Outcome.DIED, Outcome.NOT_STARTED])
def test_a_failed_run_is_retried_with_backoff(outcome: Outcome) -> None:
    assert decisions.after_run(replace(BAD, outcome=outcome), TERMS, failed_runs=1000) == Decision(RETRIED)


@pytest.mark.parametrize(("result", "terms"), [(FINAL, TERMS), (BAD, _attempts(1)), (BAD, _finalizing(_limit(1)))])
def test_the_advice_after_a_terminal_failure_names_the_next_change_that_counts(
    result: RunResult, terms: RetryTerms
) -> None:
    (alone,) = decisions.after_run(result, terms, failed_runs=0).advice
    terms = replace(terms, next_change="the object, or a Secret, changes")
    (beside,) = decisions.after_run(result, terms, failed_runs=0).advice
    assert alone.endswith("again until the object changes.")
    assert beside.endswith("again until the object, or a Secret, changes.")


EAGER = replace(policy.DEFAULT, change_cancels=True, deletion_cancels=True)


@pytest.mark.parametrize("reason", REASONS)
def test_only_a_change_or_a_deletion_supersedes_a_run_if_the_watch_enables_it(reason: RunReason) -> None:
    assert bool(decisions.superseded(EAGER, reason, terminating=False)) is (
        reason in {reasons.CHANGED, reasons.DELETED}
    )
    assert decisions.superseded(policy.DEFAULT, reason, terminating=False) == ""


def test_an_object_that_can_only_fail_costs_few_runs() -> None:
    at, moments = 0.0, []
    for failures in range(20):
        moments.append(at)
        at += policy.DEFAULT.retry.backoff.after(failures)
    assert sum(moment <= 30 for moment in moments) <= 6
    assert sum(moment <= 3600 for moment in moments) <= 12


@pytest.mark.parametrize("terminating", [True, False])
def test_only_a_deletion_ends_a_run_in_a_namespace_that_is_being_deleted(*, terminating: bool) -> None:
    assert bool(decisions.superseded(policy.DEFAULT, reasons.DELETED, terminating=terminating)) is terminating
    assert not decisions.superseded(policy.DEFAULT, reasons.CHANGED, terminating=terminating)
