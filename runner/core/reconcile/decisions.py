"""Decisions of a controller: why an object runs, what runs, and what follows a run. Pure.

These events start a run:
- the creation of an object, and its presence in the first list
- a change of `metadata.generation`, or any change of a kind that has no generation
- the deletion of an object that has our finalizer
- a change of annotations if the watch sets `watchAnnotationsChanges`
- a change of an annotation that pauses the object, or that is a `Mark`

Changes of labels or status alone start no run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from runner.base.page import plural
from runner.core.engine.job import Outcome, RunResult
from runner.core.kube.cache import Change, Summary
from runner.core.queue import reasons
from runner.core.queue.reasons import Mark, RunReason
from runner.core.watches.policy import FinalizerLimit, RetryPolicy, RunPolicy
from runner.core.watches.watch import NEXT_CHANGE, Content, Watch
from runner.values.backoff import Backoff
from runner.values.objects import JSONPatch, LastResult, Object, finalizers_of, is_deleting, uid_of

_DIGEST_SIZE = 8
_LONGEST_UNREACHABLE = 300.0
"""Maximum seconds until hosts that could not be reached are tried again."""
POD_BACKOFF = Backoff(1.0, cap=15.0)
"""Before the next attempt of a run that waits for its pod."""

_NAMESPACE_TERMINATING = (
    "The object's namespace is being deleted, so nothing can be created in it any more: the object is not run again "
    "until it changes or is deleted."
)
_FINALIZER_CREATES = (
    "The object's namespace is being deleted, so nothing can be created in it any more: change the finalizer so that "
    "it creates nothing, or give it a limit (finalizer.limit in watches.yaml, with `then: release`)."
)


# Before a run: what starts it, and what it executes.


def run_reason(watch: Watch, change: Change, marks: Sequence[Mark], *, waits: bool) -> RunReason | None:
    """Return why `change` starts a run, or None if it starts none. Of several `marks`, the first one counts.

    `waits`: the last attempt ended with "not run until the object changes", or a request was refused. A changed
    annotation then starts a run too, because an annotation may be the cause.
    """
    old, new = change.old, change.new
    if new is None:
        return reasons.GONE
    if new.deleting:
        return _deletion_reason(watch, old, new, marks, waits=waits)
    if old is None or old.uid != new.uid:
        return reasons.PRESENT if change.initial else reasons.CREATED
    if _content_changed(old, new) or old.paused != new.paused:
        return reasons.CHANGED
    if (marked := _marked(marks, old, new)) is not None:
        return marked.reason
    counts = waits or watch.watch_annotations_changes
    return reasons.CHANGED if counts and old.annotations_digest != new.annotations_digest else None


def result_at_start(watch: Watch, obj: Summary | None) -> LastResult:
    """Return the result of the last run of an object that is present at start, if its status contains one."""
    return obj.result if obj is not None and watch.manage_status else LastResult.SUCCEEDED


def _deletion_reason(
    watch: Watch, old: Summary | None, new: Summary, marks: Sequence[Mark], *, waits: bool
) -> RunReason | None:
    """Ignore an object that is being deleted, unless it has our finalizer."""
    if watch.finalizer is None or watch.finalizer.name not in new.finalizers:
        return None
    if old is None or old.uid != new.uid or not old.deleting:
        return reasons.DELETED
    changed = old.paused != new.paused or _content_changed(old, new) or _marked(marks, old, new) is not None
    is_corrected = waits and old.annotations_digest != new.annotations_digest
    return reasons.DELETED if changed or is_corrected else None


def _marked(marks: Sequence[Mark], old: Summary, new: Summary) -> Mark | None:
    return next((mark for mark in marks if mark.differs(old.marks, new.marks)), None)


def _content_changed(old: Summary, new: Summary) -> bool:
    """Compare generations, or the whole content for kinds that have none (Secret, ConfigMap, Namespace)."""
    if new.generation is not None:
        return old.generation != new.generation
    return old.content_digest != new.content_digest


@dataclass(frozen=True, slots=True)
class RunContent:
    """Content of a run, and the finalizer's part in it."""

    content: Content
    add_first: JSONPatch | None
    """Patch that adds our finalizer to the object before the run."""
    finalizing: bool
    """Whether the run's success removes our finalizer."""


def run_content(watch: Watch, obj: Object) -> RunContent | None:
    """Return what to run for `obj`; None if it needs no run."""
    finalizer = watch.finalizer
    if not is_deleting(obj):
        add_first = finalizer_added(finalizer.name, obj) if finalizer is not None else None
        return RunContent(watch.content, add_first=add_first, finalizing=False)
    if finalizer is None or finalizer.name not in finalizers_of(obj):
        return None
    return RunContent(finalizer.content, add_first=None, finalizing=True)


def finalizer_added(name: str, obj: Object) -> JSONPatch | None:
    """Build the patch that adds `name` to `obj`; None if it is there."""
    names = finalizers_of(obj)
    return _replacing_finalizers(obj, [*names, name]) if name not in names else None


def finalizer_removed(name: str, obj: Object) -> JSONPatch | None:
    """Build the patch that removes `name` from `obj`; None if it is not there."""
    names = finalizers_of(obj)
    return _replacing_finalizers(obj, [other for other in names if other != name]) if name in names else None


def _replacing_finalizers(obj: Object, names: list[str]) -> JSONPatch:
    """Replace the list only if the list and the object are still the same: other controllers write finalizers too."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid_of(obj)},
        {"op": "test", "path": "/metadata/finalizers", "value": finalizers_of(obj) or None},
        {"op": "add", "path": "/metadata/finalizers", "value": names},
    ]


# During a run.


def superseded(policy: RunPolicy, reason: RunReason, *, terminating: bool) -> str:
    """Return why to cancel the run in progress; empty if it continues.

    `terminating`: the object's namespace is being deleted, so the run only delays the finalizer.
    """
    if reason is reasons.DELETED and terminating:
        return "the object and its namespace are being deleted; its finalizer comes next"
    if reason is reasons.DELETED and policy.deletion_cancels:
        return "the object was deleted meanwhile; its finalizer comes next"
    if reason is reasons.CHANGED and policy.change_cancels:
        return "the object was changed meanwhile; it is run again as it is now"
    return ""


# After a run.


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing failed."""

    resync_after: float | None
    """Seconds until the periodic run; None: only an event starts the next run."""


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """The role, or `reason`, requested another run after `delay` seconds."""

    delay: float
    reason: RunReason = reasons.REQUEUED


@dataclass(frozen=True, slots=True)
class Retry:
    """Retry with backoff."""

    backoff: Backoff
    ran: bool
    """True if a run failed, False if a request before or after it did."""
    refused: bool = False
    """Whether the API server refused a request, so that any change of the object ends the backoff."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """No retry until the object changes."""

    ran: bool = True
    """Whether a run decided this. Otherwise a change during the attempt counts too."""


Result: TypeAlias = Done | RequeueAfter | Retry | Terminal
"""Result of an attempt."""


@dataclass(frozen=True, slots=True)
class RetryTerms:
    """Limits that apply to one run's result."""

    retry: RetryPolicy
    resync_after: float | None
    """Seconds until the periodic run if this one succeeds; None: there is none."""
    finalizing: bool
    limit: FinalizerLimit | None
    """Limit of the finalizer; None: it is retried without limit."""
    deleted_for: float
    """Seconds since the object's deletion was requested; 0 if it was not."""
    terminating: bool = False
    """Whether the run failed to create an object because the namespace is being deleted."""
    has_own_finalizer: bool = False
    """Whether the finalizer has a role or playbook of its own, so that its `requeue_after` is about the deletion."""
    next_change: str = NEXT_CHANGE.default
    """The event that ends the wait after a terminal failure."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Result of an attempt, with sentences for the user beside the run's own failure."""

    result: Result
    advice: tuple[str, ...] = ()
    release: bool = False
    """Whether our finalizer is removed now."""


def after_run(run: RunResult, terms: RetryTerms, *, failed_runs: int) -> Decision:
    """Decide what follows a run. `failed_runs`: how many failed in a row before it."""
    if run.outcome is Outcome.SUCCEEDED:
        return _succeeded(run, terms, failed_runs)
    if run.outcome is Outcome.CANCELED:
        # The cause of the cancellation has queued the next run, or stops the operator.
        return Decision(Retry(POD_BACKOFF if run.waits else terms.retry.backoff, ran=False))
    failed_runs += 1
    if run.unreachable and not terms.finalizing:
        # Neither the object nor the role is wrong, so this does not count as an attempt.
        backoff = terms.retry.backoff
        return Decision(Retry(replace(backoff, cap=min(backoff.cap, _LONGEST_UNREACHABLE)), ran=False))
    if not terms.finalizing:
        final = (
            Decision(Terminal(), (_NAMESPACE_TERMINATING,)) if terms.terminating else _final(run, terms, failed_runs)
        )
        return final or Decision(Retry(terms.retry.backoff, ran=True))
    advice = (_FINALIZER_CREATES,) if terms.terminating else ()
    final = _finalizer_final(terms, failed_runs) or Decision(Retry(terms.retry.backoff, ran=True))
    return replace(final, advice=(*advice, *final.advice))


def lost(run: RunResult, obj: Object, latest: Object | None, *, finalizing: bool) -> RunResult:
    """Add to the result of a run whose pod was lost that it is repeated, unless a finalizer's run or nothing follows.

    `obj` is the object at the start of the run, `latest` the same now, None if it is gone.
    """
    if latest is None or uid_of(latest) != uid_of(obj) or (is_deleting(latest) and not finalizing):
        return run
    return replace(run, message=f"{run.message} The run is repeated.")


def _succeeded(run: RunResult, terms: RetryTerms, failed_runs: int) -> Decision:
    """Decide what follows a success. A finalizer whose role requested another run is not done.

    A role that also runs for existing objects is an exception: it can request the next run each time.
    """
    again = None if run.requeue_after is None else Decision(RequeueAfter(run.requeue_after))
    if not terms.finalizing:
        return again or Decision(Done(terms.resync_after))
    if again is None or not run.unfinished or not terms.has_own_finalizer:
        return Decision(Done(None), release=True)
    return _finalizer_final(terms, failed_runs) or again


def _final(run: RunResult, terms: RetryTerms, failed_runs: int) -> Decision | None:
    change = terms.next_change
    if run.is_terminal:
        return Decision(
            Terminal(), (f"The role reported a terminal failure: the operator does not run it again until {change}.",)
        )
    if 0 < terms.retry.attempts <= failed_runs:
        sentence = (
            f"{plural(failed_runs, 'run')} failed in a row: the operator does not run the object again until {change}."
        )
        return Decision(Terminal(), (sentence,))
    return None


def _finalizer_final(terms: RetryTerms, failed_runs: int) -> Decision | None:
    if terms.limit is None:
        return None
    reached = _reached(terms.limit, failed_runs, terms.deleted_for)
    if not reached:
        return None
    if terms.limit.release:
        return Decision(Done(None), (f"Finalizer removed before it succeeded: {reached}.",), release=True)
    return Decision(
        Terminal(), (f"Finalizer kept: {reached}. The operator does not run it again until {terms.next_change}.",)
    )


def _reached(limit: FinalizerLimit, failed_runs: int, deleted_for: float) -> str:
    """Return which limit of a finalizer is reached; empty if none is."""
    if 0 < limit.attempts <= failed_runs:
        return f"{plural(failed_runs, 'run')} of the finalizer failed in a row, the limit"
    if limit.time is not None and deleted_for >= limit.time:
        return f"the finalizer has not succeeded for {deleted_for:.0f} s since the deletion, beyond its limit"
    return ""


def resync_delay(period: float, uid: str, now: float, *, settled: bool) -> float:
    """Return the seconds from `now` until the object's next periodic run: more than 0, at most `period`.

    The uid determines the times of an object, a period apart. This spreads the runs of many objects over the whole
    period, even if one cause starts them all. Neither a restart nor another replica changes the times. Until a run
    falls on such a time, the next one is due after half a period to a whole one.

    `now` is in seconds since the epoch. `settled`: the last run was not for the operator's start, so that less than
    half a period is too soon. At the operator's start, the time of the object's last run is not known.
    """
    phase = int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=_DIGEST_SIZE).digest()) / (1 << 8 * _DIGEST_SIZE)
    distance = period - (now - phase * period) % period
    if settled and distance < period / 2:
        # The time after that is too far; half the way to it leaves as much for the other half.
        return (distance + period) / 2
    return distance
