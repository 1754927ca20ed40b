"""What comes after a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.core.engine.job import HostRecap, Outcome, RunResult, TaskFailure
from runner.core.queue import reasons
from runner.core.queue.reasons import RunReason
from runner.core.reconcile import decisions
from runner.core.reconcile.decisions import Decision, Done, RequeueAfter, Retry, RetryTerms, Terminal
from runner.core.watches import policy
from runner.core.watches.policy import FinalizerLimit, RetryPolicy
from runner.values.backoff import Backoff
from tests.kit.reasons import REASONS

BACKOFF = Backoff(3.0, 2.0, 60.0)
TERMS = RetryTerms(RetryPolicy(BACKOFF, attempts=0), resync_after=100.0, finalizing=False, limit=None, deleted_for=0.0)
GOOD = RunResult(Outcome.SUCCEEDED, None, (), "", None, 1.0)
RECAP = HostRecap("web", 0, 0, 0, 1)
BAD = replace(GOOD, outcome=Outcome.FAILED, failures=(TaskFailure("a", "no", ""),))


def _decide(result: RunResult, terms: RetryTerms = TERMS, failed_runs: int = 0) -> Decision:
    return decisions.after_run(result, terms, failed_runs=failed_runs)


def test_after_a_success_the_periodic_run_comes_in_its_time() -> None:
    assert _decide(GOOD) == Decision(Done(100.0))


def test_without_a_period_nothing_comes_after_a_success() -> None:
    assert _decide(GOOD, replace(TERMS, resync_after=None)) == Decision(Done(None))


def test_a_requeue_requested_by_the_role_is_scheduled() -> None:
    assert _decide(replace(GOOD, requeue_after=30.0)) == Decision(RequeueAfter(30.0))


def test_a_finalizer_whose_own_role_requests_another_run_is_not_done() -> None:
    terms, waits = replace(TERMS, finalizing=True), replace(GOOD, requeue_after=30.0, unfinished=True)
    own = replace(terms, has_own_finalizer=True)
    assert _decide(waits, own) == Decision(RequeueAfter(30.0))
    released = Decision(Done(None), release=True)
    assert _decide(replace(waits, unfinished=False), own) == released, "with `done: true`"
    assert _decide(waits, terms) == released, "the role of the watch can request its next run each time"
    late = _decide(waits, replace(own, limit=FinalizerLimit(0, 60.0, release=True), deleted_for=61.0))
    assert late.release, "the limit counts"


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT, Outcome.DIED, Outcome.NOT_STARTED])
def test_a_failed_run_is_retried_with_backoff(outcome: Outcome) -> None:
    assert _decide(replace(BAD, outcome=outcome), failed_runs=1000) == Decision(Retry(BACKOFF, ran=True))


def test_a_run_that_was_ended_counts_as_no_failure() -> None:
    terms = replace(TERMS, retry=RetryPolicy(BACKOFF, attempts=1))
    assert _decide(replace(BAD, outcome=Outcome.CANCELED), terms) == Decision(Retry(BACKOFF, ran=False))


def test_the_last_failed_attempt_is_terminal_and_has_advice() -> None:
    terms = replace(TERMS, retry=RetryPolicy(BACKOFF, attempts=3))
    assert _decide(BAD, terms, failed_runs=1).result == Retry(BACKOFF, ran=True)
    last = _decide(BAD, terms, failed_runs=2)
    assert last.result == Terminal()
    assert last.advice == (
        "3 runs failed in a row: the operator does not run the object again until the object changes.",
    )


def test_a_run_that_could_not_reach_hosts_does_not_count_as_an_attempt() -> None:
    lost = replace(BAD, failures=(TaskFailure("a", "no", "", host="web", unreachable=True),), hosts=(RECAP,))
    terms = replace(TERMS, retry=RetryPolicy(replace(BACKOFF, cap=1800.0), attempts=1))
    assert _decide(lost, terms, failed_runs=9).result == Retry(replace(BACKOFF, cap=300.0), ran=False)
    short = replace(TERMS, retry=RetryPolicy(replace(BACKOFF, cap=60.0), attempts=1))
    assert _decide(lost, short).result == Retry(replace(BACKOFF, cap=60.0), ran=False)
    limited = replace(TERMS, finalizing=True, limit=FinalizerLimit(1, None, release=True))
    assert _decide(lost, limited).release


def test_a_terminal_failure_is_not_retried() -> None:
    final = replace(BAD, failures=(TaskFailure("a", "no", ""), TaskFailure("b", "never", "", terminal=True)))
    assert _decide(final).result == Terminal()
    assert "terminal failure" in _decide(final).advice[0]


FINAL = replace(BAD, failures=(TaskFailure("a", "never", "", terminal=True),))


@pytest.mark.parametrize(
    ("result", "terms"),
    [
        (FINAL, TERMS),
        (BAD, replace(TERMS, retry=RetryPolicy(BACKOFF, attempts=1))),
        (BAD, replace(TERMS, finalizing=True, limit=FinalizerLimit(1, None, release=False))),
    ],
)
def test_the_advice_after_a_terminal_failure_names_the_next_change_that_counts(
    result: RunResult, terms: RetryTerms
) -> None:
    (alone,) = _decide(result, terms).advice
    (beside,) = _decide(result, replace(terms, next_change="the object, or a Secret, changes")).advice
    assert alone.endswith("again until the object changes.")
    assert beside.endswith("again until the object, or a Secret, changes.")


class TestFinalizers:
    TERMS = replace(TERMS, finalizing=True, retry=RetryPolicy(BACKOFF, attempts=1))

    def test_a_successful_finalizer_is_removed(self) -> None:
        assert _decide(GOOD, self.TERMS) == Decision(Done(None), release=True)

    def test_the_attempts_of_ordinary_runs_do_not_limit_a_finalizer(self) -> None:
        assert _decide(BAD, self.TERMS, failed_runs=50) == Decision(Retry(BACKOFF, ran=True))

    @pytest.mark.parametrize(
        ("limit", "failed", "since", "reached"),
        [
            (FinalizerLimit(2, None, release=False), 0, 1e6, False),
            (FinalizerLimit(2, None, release=False), 1, 0, True),
            (FinalizerLimit(0, 60, release=False), 50, 59, False),
            (FinalizerLimit(0, 60, release=False), 0, 60, True),
        ],
    )
    def test_a_finalizer_is_retried_until_its_limit(
        self, limit: FinalizerLimit, failed: int, since: float, *, reached: bool
    ) -> None:
        decision = _decide(BAD, replace(self.TERMS, limit=limit, deleted_for=since), failed_runs=failed)
        assert isinstance(decision.result, Terminal) is reached
        assert not decision.release

    def test_at_its_limit_the_finalizer_is_removed_if_the_watch_requests_it(self) -> None:
        decision = _decide(BAD, replace(self.TERMS, limit=FinalizerLimit(1, None, release=True)))
        assert (decision.result, decision.release) == (Done(None), True)
        assert decision.advice == (
            "Finalizer removed before it succeeded: 1 run of the finalizer failed in a row, the limit.",
        )

    @pytest.mark.parametrize("limit", [None, FinalizerLimit(2, None, release=False)])
    def test_a_terminal_failure_of_a_finalizer_is_handled_like_any_other_failure(
        self, limit: FinalizerLimit | None
    ) -> None:
        final = replace(BAD, failures=(TaskFailure("a", "no", "", terminal=True),))
        assert _decide(final, replace(self.TERMS, limit=limit)).result == Retry(BACKOFF, ran=True)


class TestSuperseded:
    EAGER = replace(policy.DEFAULT, change_cancels=True, deletion_cancels=True)

    @pytest.mark.parametrize("reason", REASONS)
    def test_only_a_change_or_a_deletion_supersedes_a_run_if_the_watch_enables_it(self, reason: RunReason) -> None:
        assert bool(decisions.superseded(self.EAGER, reason, terminating=False)) is (
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


class TestNamespaceBeingDeleted:
    TERMS = replace(TERMS, terminating=True)

    def test_a_run_that_could_create_nothing_is_not_repeated_until_the_deletion_comes(self) -> None:
        decision = _decide(BAD, self.TERMS)
        assert decision.result == Terminal()
        assert "namespace is being deleted" in decision.advice[0]

    def test_a_failed_finalizer_is_retried_with_advice(self) -> None:
        decision = _decide(BAD, replace(self.TERMS, finalizing=True))
        assert decision.result == Retry(BACKOFF, ran=True)
        assert "finalizer.limit" in decision.advice[0]

    def test_a_finalizers_limit_holds(self) -> None:
        limit = FinalizerLimit(attempts=2, time=None, release=True)
        decision = _decide(BAD, replace(self.TERMS, finalizing=True, limit=limit), failed_runs=1)
        assert decision.release
        assert len(decision.advice) == 2

    def test_a_success_is_one(self) -> None:
        assert _decide(GOOD, self.TERMS) == Decision(Done(100.0))

    @pytest.mark.parametrize("terminating", [True, False])
    def test_only_a_deletion_ends_such_a_run(self, *, terminating: bool) -> None:
        assert bool(decisions.superseded(policy.DEFAULT, reasons.DELETED, terminating=terminating)) is terminating
        assert not decisions.superseded(policy.DEFAULT, reasons.CHANGED, terminating=terminating)
