"""The fields of a watch that say what its runs may cost."""

from __future__ import annotations

import pytest

from runner.core.watches.policy import FinalizerLimit
from runner.features.plan.drift_fields import DRIFT_POLICY, DriftPolicy
from runner.values.backoff import MAX_BACKOFF, Backoff
from tests.unit.watches.sample import HEAD, Errors, One


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("off", 0), ("0s", 0), ("", None)])
def test_a_runs_time_is_limited_by_the_watch_or_left_to_the_flag(one: One, text: str, seconds: float | None) -> None:
    assert one(f"  runTimeout: {text}\n").policy.timeout == seconds


def test_a_first_delay_beyond_the_usual_longest_raises_that(one: One) -> None:
    assert one("  retry: {delay: 2h}\n").policy.retry.backoff == Backoff(7200, 2, 7200)
    assert one("  retry: {delay: 2s}\n").policy.retry.backoff == Backoff(2, 2, MAX_BACKOFF)


def test_a_finalizer_with_a_limit_is_kept_unless_release_is_written(one: One) -> None:
    finalizer = one("  finalizer: {name: e.com/f, vars: {a: 1}, limit: {attempts: 2}}\n").finalizer
    assert finalizer is not None
    assert finalizer.limit == FinalizerLimit(attempts=2, time=None, release=False)


@pytest.mark.parametrize(
    ("rest", "policy"),
    [
        ("", None),
        ("  drift:\n", None),
        ("  drift: {period: 1h}\n", DriftPolicy(3600, repair=False)),
        ("  drift: {period: 90s, then: report}\n", DriftPolicy(90, repair=False)),
        ("  drift: {period: 1h, then: repair}\n", DriftPolicy(3600, repair=True)),
    ],
)
def test_drift_is_checked_only_with_a_period_and_only_reported_by_default(
    one: One, rest: str, policy: DriftPolicy | None
) -> None:
    assert one(rest).more.get(DRIFT_POLICY) == policy


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("", "auto"),
        ("auto", "auto"),
        ("AUTO", "auto"),
        ("true", "all"),
        ("yes", "all"),
        ("false", "off"),
        ("off", "off"),
    ],
)
def test_changes_of_a_status_that_mean_something_start_runs_by_default(one: One, text: str, trigger: str) -> None:
    assert one(f"  watchDependentStatus: {text}\n").watch_dependent_status == trigger


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("  runTimeout: -1s\n", "runTimeout: invalid duration '-1s': use a positive duration such as 10m, or off"),
        ("  runTimeout: soon\n", "invalid duration 'soon'"),
        ("  onChange: restart\n", "onChange: invalid value 'restart': use wait"),
        ("  watchDependentStatus: never\n", "watchDependentStatus: invalid value 'never': use auto, true or false"),
        ("  watchDependentStatus: 'true'\n", "watchDependentStatus: invalid value 'true': use auto, true or false"),
        ("  mode: dry-run\n", "mode: invalid value 'dry-run': use apply, plan"),
        ("  mode: approve\n  manageStatus: false\n", "mode: approve needs the status"),
        ("  onDelete: [cancel]\n", "onDelete: found a list, expected text"),
        ("  retry: {delay: 0s}\n", "retry.delay: invalid duration '0s': use a positive duration such as 5s"),
        ("  retry: {delay: 1m, maxDelay: 5s}\n", "retry.maxDelay: shorter than delay"),
        ("  retry: {factor: 0.5}\n", "retry.factor: invalid factor '0.5': use a number from 1"),
        ("  retry: {factor: nan}\n", "retry.factor: invalid factor 'nan'"),
        ("  retry: {attempts: -1}\n", "retry.attempts: invalid number -1"),
        ("  drift: {then: repair}\n", "drift.period: missing or empty: set the time between two checks, such as 1h"),
        ("  drift: {period: 0s}\n", "drift.period: invalid duration '0s': use a positive duration such as 5s"),
        ("  drift: {period: 1h, then: fix}\n", "drift.then: invalid value 'fix': use report"),
        ("  finalizer: {name: e.com/f, vars: {a: 1}, limit: {}}\n", "finalizer.limit: no limit"),
        ("  finalizer: {name: e.com/f, vars: {a: 1}, limit: {attempts: 1, then: drop}}\n", "invalid value 'drop'"),
    ],
)
def test_an_invalid_policy_is_refused_with_a_correction(errors: Errors, rest: str, message: str) -> None:
    assert [message in error for error in errors(HEAD + rest)] == [True]
