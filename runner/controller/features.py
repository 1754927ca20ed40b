"""Features of a reconciler: the protocol, and the small ones that need no module of their own.

A feature acts around the run of an object: it skips or prepares the run before, and reports after. The reconciler uses
only this protocol. `runner.app.controllers` contains the list of features in the order in which they are called.

Guarantees to a feature: `before` of all features was called before the run, `status` and `after` are called once after
it. The result of the run is written before any `after`. If the API server does not accept it, the writer keeps it. A
failure of `status` or `after` is logged and counted. It neither changes the result nor repeats the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runner.controller.annotations import overrides_of
from runner.controller.attempt import Attempt, WatchScope
from runner.controller.decisions import Decision, Done, Result
from runner.controller.run_access import Grant
from runner.controller.run_events import RunEvents
from runner.engine.job import Job, RunResult
from runner.errors import TerminalError
from runner.kube import decode
from runner.objects import ObjectKey, is_paused
from runner.references.state import references_of
from runner.status import report
from runner.status.report import StatusReport

NOTHING = StatusReport(())
_TOO_DEEP = f"the object nests deeper than {decode.MAX_DEPTH} levels, so a run cannot receive it; flatten it"


@dataclass(frozen=True, slots=True)
class Skip:
    """No run. The report, if any, is written to the status."""

    result: Result
    report: StatusReport = NOTHING


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that has ended, and what follows it."""

    job: Job
    result: RunResult
    grant: Grant
    """Access of the run, which is closed."""
    events: RunEvents
    decision: Decision


@dataclass(frozen=True, slots=True)
class Addition:
    """Changes by a feature after a run."""

    report: StatusReport = NOTHING
    """Written in a second change of the status."""
    result: Result | None = None
    """Result of the attempt; None: that of the run's decision."""


class Feature:
    """Optional part of a reconcile. Each method does nothing unless a feature overrides it."""

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Skip the run, or return the attempt with the feature's part. An error repeats the attempt.

        Raises:
            TerminalError: the object cannot be run until it changes.
        """
        return attempt

    def status(self, attempt: Attempt, run: FinishedRun) -> StatusReport:  # noqa: ARG002 - for features
        """Return what is written together with the result. No requests: they belong in `after`."""
        return NOTHING

    async def after(self, attempt: Attempt, run: FinishedRun) -> Addition:  # noqa: ARG002 - as above
        """Do what the feature does after a run, once its result is in the status."""
        return Addition()

    async def gone(self, key: ObjectKey) -> None:
        """Remove the data of an object that no longer exists."""

    async def sweep(self) -> None:
        """At the start, remove the data of objects that no longer exist."""


@dataclass(frozen=True, slots=True)
class Pause(Feature):
    """Skips the runs of paused objects."""

    scope: WatchScope

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Skip the run while the object is paused."""
        if not is_paused(attempt.obj):
            return attempt
        self.scope.about(attempt.obj).paused()
        return Skip(Done(None), report.paused())


@dataclass(frozen=True, slots=True)
class Annotations(Feature):
    """Settings by annotations, and the condition that names those beyond their limits."""

    scope: WatchScope

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Read the annotations.

        Raises:
            TerminalError: an annotation is invalid, or the object has too many levels for a run. This comes first,
                since the features after it would compare an object without its spec.
        """
        if self.scope.informer.is_cut(attempt.key):
            raise TerminalError(_TOO_DEEP)
        overrides = overrides_of(attempt.obj, self.scope.bounds)
        limited = report.limited(attempt.obj, overrides.limited)
        return replace(attempt, overrides=overrides, conditions=(*attempt.conditions, *limited))


@dataclass(frozen=True, slots=True)
class IgnoredReferences(Feature):
    """The condition that names references that are not watched."""

    scope: WatchScope

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Add the condition."""
        found = references_of(self.scope.watch.references, attempt.obj)
        foreign, excess = [*map(str, found.foreign)], [*map(str, found.excess)]
        conditions = report.ignored_references(attempt.obj, foreign, excess)
        return replace(attempt, conditions=(*attempt.conditions, *conditions))


@dataclass(frozen=True, slots=True)
class RunReports(Feature):
    """Events and metrics about the results of runs."""

    scope: WatchScope

    async def after(self, attempt: Attempt, run: FinishedRun) -> Addition:
        """Record the result."""
        stats = run.grant.stats
        run.events.ended(run.result, stats.forbidden())
        self.scope.metrics.run_ended(run.job.gvk, attempt.key.namespace, run.result, stats.calls)
        for sentence in run.decision.advice:
            self.scope.about(attempt.obj).given_up(sentence)
        return Addition()
