"""Hooks around the run of an object: how features and parts of the controller take part in a reconcile.

Hooks skip or prepare the run before, and report after. The reconciler uses only this protocol.
`runner.app.features` contains the list of hooks in the order in which they are called.

Guarantees: `before` of all hooks was called before the run, `status` and `after` are called once after it. The result
of the run is written before any `after`. If the API server does not accept it, the writer keeps it. A failure of
`status` or `after` is logged and counted. It neither changes the result nor repeats the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runner.core.engine.job import Job, RunResult
from runner.core.kube.cache import Change
from runner.core.kube.meaning import Request
from runner.core.reconcile.attempt import Attempt
from runner.core.reconcile.decisions import Decision, Result
from runner.core.reconcile.run_access import Grant
from runner.core.reconcile.run_log import RunEvents
from runner.core.status.conditions import Condition
from runner.core.status.report import StatusReport
from runner.values.backoff import Backoff
from runner.values.errors import ApiError, ApiUnavailableError, OperatorError
from runner.values.objects import ObjectKey
from runner.values.slots import Slot

REQUEST_BACKOFF = Backoff(1.0, cap=60.0, jitter=0.5)
"""Before the next attempt if a request to the API server failed, and not the run."""
NOTHING = StatusReport(())
UP_TO_DATE: Slot[Callable[[], tuple[Condition, ...]]] = Slot("up to date", tuple)
"""Slot of an attempt: conditions to write if it ends without a run, because a run would change nothing."""


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
    """Changes by hooks after a run."""

    report: StatusReport = NOTHING
    """Written in a second change of the status."""
    result: Result | None = None
    """Result of the attempt; None: that of the run's decision."""


class Hooks:
    """Part of a reconcile. Each method does nothing unless it is overridden."""

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Skip the run, or return the attempt with the part of these hooks. An error repeats the attempt.

        Raises:
            TerminalError: the object cannot be run until it changes.
        """
        return attempt

    async def must_run(self, attempt: Attempt) -> bool:  # noqa: ARG002 - for hooks
        """Return whether the object needs its run although nothing has changed since the last one."""
        return False

    async def before_trial(self, attempt: Attempt) -> Attempt:
        """Prepare a run that takes place to learn what the run of the object would change. Errors: see `before`."""
        return attempt

    async def after_trial(self, attempt: Attempt, result: RunResult, effect: str) -> None:
        """Do the work after such a run. `effect`: the end of a sentence that names its effect; empty: it has none."""

    def begins(self, attempt: Attempt) -> None:
        """Note that the run begins: nothing that comes before it can fail any more. No requests."""

    async def explained(self, attempt: Attempt, run: FinishedRun) -> FinishedRun:  # noqa: ARG002 - for hooks
        """Return a failed run with more about its cause. Its result is not written yet: requests must end soon."""
        return run

    def status(self, attempt: Attempt, run: FinishedRun) -> StatusReport:  # noqa: ARG002 - for hooks
        """Return what is written together with the result. No requests: they belong in `after`."""
        return NOTHING

    async def after(self, attempt: Attempt, run: FinishedRun) -> Addition:  # noqa: ARG002 - as above
        """Do the work after a run, once its result is in the status."""
        return Addition()

    def changed(self, change: Change) -> None:
        """Handle a change of an object, before it starts a run. No requests. An error does not prevent the run."""

    async def ready(self, key: ObjectKey) -> None:
        """Wait until everything is known that an attempt at an object needs."""

    def inputs(self, key: ObjectKey) -> str | None:  # noqa: ARG002 - for hooks
        """Identify the state of what else an object's run reads, across restarts; None: unknown; empty: nothing."""
        return ""

    async def gone(self, key: ObjectKey) -> None:
        """Remove the data of an object that no longer exists."""

    async def sweep(self) -> None:
        """At the start, remove the data of objects that no longer exist. Then work in the background, if necessary."""


class RequestFailedError(OperatorError):
    """A request about an object that failed, with its kind."""

    def __init__(self, request: Request, error: ApiError | ApiUnavailableError) -> None:
        super().__init__(str(error))
        self.request = request
        self.error = error
