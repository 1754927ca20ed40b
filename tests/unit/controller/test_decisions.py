"""What runs for an object, what comes after a run, and when the next periodic one is due."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from runner.core.engine.job import HostRecap, Outcome, RunResult, TaskFailure, canceled
from runner.core.queue import reasons
from runner.core.queue.reasons import RunReason
from runner.core.reconcile import decisions
from runner.core.reconcile.decisions import Decision, Done, RequeueAfter, Result, Retry, RetryTerms, Terminal
from runner.core.watches import policy
from runner.core.watches.policy import FinalizerLimit, RetryPolicy
from runner.core.watches.watch import Finalizer, Role, Watch
from runner.values.backoff import Backoff
from runner.values.objects import Object
from tests.kit.reasons import REASONS
from tests.kit.watch_values import watch_value

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


NAME = "cache.example.com/finalizer"
ROLE = Role("main", Path("/roles/main"))
CLEANUP = Role("cleanup", Path("/roles/cleanup"))


def _object(*names: str, deleting: bool = False) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": "a", "uid": "u1"}
    if names:
        meta["finalizers"] = list(names)
    if deleting:
        meta["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    return {"metadata": meta}


PLAIN = watch_value(content=ROLE)
FINALIZED = watch_value(content=ROLE, finalizer=Finalizer(NAME, CLEANUP, {"state": "absent"}, None))


@pytest.mark.parametrize(
    ("watch", "obj", "added"),
    [
        (FINALIZED, _object("other/one"), ["other/one", NAME]),
        (FINALIZED, _object(NAME), None),
        (PLAIN, _object(), None),
    ],
    ids=["a new object", "an object that has it", "a watch without finalizer"],
)
def test_an_object_gets_the_finalizer_before_its_first_run(watch: Watch, obj: Object, added: list[str] | None) -> None:
    plan = decisions.run_content(watch, obj)
    assert plan is not None
    assert (plan.content, plan.finalizing) == (ROLE, False)
    assert (plan.add_first[-1] if plan.add_first else None) == (
        {"op": "add", "path": "/metadata/finalizers", "value": added} if added else None
    )


def test_deletion_runs_the_finalizers_content() -> None:
    plan = decisions.run_content(FINALIZED, _object(NAME, deleting=True))
    assert plan is not None
    assert (plan.content, plan.finalizing) == (CLEANUP, True)


@pytest.mark.parametrize("watch", [FINALIZED, PLAIN], ids=["with finalizer", "without"])
def test_a_deletion_without_the_operators_finalizer_starts_no_run(watch: Watch) -> None:
    assert decisions.run_content(watch, _object("other/one", deleting=True)) is None


def test_the_removal_keeps_other_finalizers_and_tests_uid_and_finalizers() -> None:
    patch = decisions.finalizer_removed(NAME, _object("other/one", NAME, deleting=True))
    assert patch == [
        {"op": "test", "path": "/metadata/uid", "value": "u1"},
        {"op": "test", "path": "/metadata/finalizers", "value": ["other/one", NAME]},
        {"op": "add", "path": "/metadata/finalizers", "value": ["other/one"]},
    ]


def test_a_missing_finalizer_is_not_removed() -> None:
    assert decisions.finalizer_removed(NAME, _object("other/one", deleting=True)) is None


def test_the_lost_run_of_a_finalizer_is_repeated_and_another_run_is_not() -> None:
    obj = _object(NAME, deleting=True)
    run = replace(canceled("The pod of the run was lost: it was deleted.", 1.0), lost=True)
    assert decisions.lost(run, obj, obj, finalizing=True).message.endswith("deleted. The run is repeated.")
    assert decisions.lost(run, obj, obj, finalizing=False) is run
    assert decisions.lost(run, obj, None, finalizing=True) is run


pytestmark = pytest.mark.virtual_time


PERIOD = 3600.0
EPOCH = 1_750_000_000.0


def uids(seed: int, number: int) -> list[str]:
    rng = random.Random(seed)
    return [str(UUID(int=rng.getrandbits(128))) for _ in range(number)]


def fullest(began: list[tuple[str, float]], parts: int = 60) -> int:
    """How many runs begin in the fullest of so many parts of a period."""
    return max(Counter(int(at % PERIOD / PERIOD * parts) for _, at in began).values())


def test_objects_that_are_present_at_start_resync_spread_over_the_period_and_a_restart_moves_no_resync() -> None:
    due = []
    for uid in uids(1, 3000):
        first, second = (
            now + decisions.resync_delay(PERIOD, uid, now, settled=False) for now in (EPOCH, EPOCH + 1.7 * PERIOD)
        )
        assert first - EPOCH <= PERIOD
        assert second % PERIOD == pytest.approx(first % PERIOD, abs=0.01)
        due.append(("", first))
    # 50 to a minute, were they spread evenly; by chance, some more.
    assert fullest(due) < 90


def test_after_a_change_the_resync_comes_within_the_period_and_not_before_half_of_it() -> None:
    for number, uid in enumerate(uids(3, 2000)):
        seconds = decisions.resync_delay(PERIOD, uid, EPOCH + number, settled=True)
        assert PERIOD / 2 <= seconds <= PERIOD


def test_each_object_settles_on_a_resync_time_of_its_own() -> None:
    uid = uids(4, 1)[0]
    times = []
    for start in range(0, int(PERIOD), 97):
        now = EPOCH + start
        for _ in range(4):
            now += decisions.resync_delay(PERIOD, uid, now, settled=True)
        times.append(now % PERIOD)
        assert decisions.resync_delay(PERIOD, uid, now, settled=True) == pytest.approx(PERIOD, abs=0.01)
    assert max(times) - min(times) < 0.01


def test_objects_that_changed_at_once_do_not_resync_at_once() -> None:
    waits = [("", decisions.resync_delay(PERIOD, uid, EPOCH, settled=True)) for uid in uids(5, 3000)]
    # All in the second half of the period, most in its first half: 3 of 4 in a quarter.
    assert fullest(waits) < 200
