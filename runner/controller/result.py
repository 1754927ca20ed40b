"""What comes after an attempt at an object: nothing, another look later, a retry, or nothing until it changes. Pure.

Owns the four verdicts, and how a run's result and what the watch allows become one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from runner.engine.job import Outcome, RunResult
from runner.watches.policy import Backoff, FinalizerLimit, RetryPolicy, RunPolicy
from runner.workqueue.queue import Reason


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing failed. `again`: seconds until the periodic run; None: only when something happens."""

    again: float | None


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """The role asked to be run again in `delay` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after a delay that grows from failure to failure."""

    backoff: Backoff
    ran: bool
    """Whether it was a run that failed."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """Do not try again until the object changes."""


_DOOMED = (
    "The object's namespace is being deleted, so nothing can be created in it any more: the object is not run again "
    "until it changes or is deleted."
)
_FINALIZER_CREATES = (
    "The object's namespace is being deleted, so nothing can be created in it any more: let the finalizer do without, "
    "or give it a limit (finalizer.limit in watches.yaml, with `then: release`)."
)

Verdict: TypeAlias = Done | RequeueAfter | Retry | Terminal


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for one run."""

    retry: RetryPolicy
    again: float | None
    """Seconds until the periodic run, should this one succeed; None: there is none."""
    finalizing: bool
    limit: FinalizerLimit | None
    """How long the finalizer is tried; None: for ever."""
    deleted_for: float
    """Seconds since the object's deletion was asked for; 0 where it was not."""
    terminating: bool = False
    """Whether the run could not create something, since the object's namespace is being deleted."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What comes next, and what is to be told of it beside the run's own failure."""

    verdict: Verdict
    advice: tuple[str, ...] = ()
    release: bool = False
    """Whether our finalizer comes off now."""


def decide(result: RunResult, terms: Terms, *, failed_runs: int) -> Decision:
    """Decide after a run. `failed_runs`: how many failed in a row before it."""
    if result.outcome is Outcome.SUCCEEDED:
        return _succeeded(result, terms)
    if result.outcome is Outcome.CANCELED:
        # Whoever ended it has asked for the next one, or is about to stop.
        return Decision(Retry(terms.retry.backoff, ran=False))
    failed_runs += 1
    if not terms.finalizing:
        over = Decision(Terminal(), (_DOOMED,)) if terms.terminating else _is_over(result, terms.retry, failed_runs)
        return over or Decision(Retry(terms.retry.backoff, ran=True))
    advice = (_FINALIZER_CREATES,) if terms.terminating else ()
    over = _finalizer_is_over(terms, failed_runs) or Decision(Retry(terms.retry.backoff, ran=True))
    return replace(over, advice=(*advice, *over.advice))


def superseded(policy: RunPolicy, reason: Reason, *, terminating: bool) -> str:
    """Say why a run that goes on is pointless now; empty when it is to go on.

    `terminating`: the object's namespace is being deleted; such a run can do nothing but keep the finalizer waiting.
    """
    if reason is Reason.DELETED and terminating:
        return "the object and its namespace are being deleted; its finalizer comes next"
    if reason is Reason.DELETED and policy.deletion_cancels:
        return "the object was deleted meanwhile; its finalizer comes next"
    if reason is Reason.CHANGED and policy.change_cancels:
        return "the object was changed meanwhile; it is run again as it is now"
    return ""


def _succeeded(result: RunResult, terms: Terms) -> Decision:
    if terms.finalizing:
        return Decision(Done(None), release=True)
    if result.requeue_after is not None:
        return Decision(RequeueAfter(result.requeue_after))
    return Decision(Done(terms.again))


def _is_over(result: RunResult, retry: RetryPolicy, failed_runs: int) -> Decision | None:
    if result.is_terminal:
        return Decision(Terminal(), ("The role ended for good: it is not run again until the object changes.",))
    if 0 < retry.attempts <= failed_runs:
        sentence = f"{_count(failed_runs)} failed in a row: the object is not run again until it changes."
        return Decision(Terminal(), (sentence,))
    return None


def _finalizer_is_over(terms: Terms, failed_runs: int) -> Decision | None:
    if terms.limit is None:
        return None
    reached = _reached(terms.limit, failed_runs, terms.deleted_for)
    if not reached:
        return None
    if terms.limit.release:
        return Decision(Done(None), (f"Released unfinished: {reached}.",), release=True)
    return Decision(Terminal(), (f"Kept: {reached}. It is tried again when the object changes.",))


def _reached(limit: FinalizerLimit, failed_runs: int, deleted_for: float) -> str:
    """Say which limit of a finalizer has been reached; empty when none has."""
    if 0 < limit.attempts <= failed_runs:
        return f"{_count(failed_runs)} of the finalizer failed in a row, the limit"
    if limit.time is not None and deleted_for >= limit.time:
        return f"the finalizer has not succeeded for {deleted_for:.0f} s since the deletion, beyond its limit"
    return ""


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"
