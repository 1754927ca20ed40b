"""Failed requests of the operator itself about one object: reported, and followed by a retry.

`runner.kube.meaning` decides. No run takes place for a repetition, and the wait for it holds no worker.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from runner import log
from runner.controller.attempt import Attempt, WatchScope
from runner.controller.decisions import Retry
from runner.controller.features import Feature, FinishedRun
from runner.errors import ApiError, ApiUnavailableError, KindNotFoundError, OperatorError
from runner.kube.meaning import Follow, Request, follow
from runner.objects import ObjectKey
from runner.status import report
from runner.status.report import StatusReport
from runner.status.writer import StatusWriter
from runner.watches.policy import Backoff

REQUEST_BACKOFF = Backoff(1.0, cap=60.0, jitter=0.5)
"""Before the next attempt if a request to the API server failed, and not the run."""
_REFUSED_BACKOFF = Backoff(1.0, cap=600.0)
_CONFLICT_BACKOFF = Backoff(0.005, cap=1.0)

FailedAnswer: TypeAlias = ApiError | ApiUnavailableError | KindNotFoundError


class RequestFailedError(OperatorError):
    """A request about an object that failed, with its kind."""

    def __init__(self, request: Request, error: ApiError | ApiUnavailableError) -> None:
        super().__init__(str(error))
        self.request = request
        self.error = error


class Refusals(Feature):
    """Reports of one watch's objects."""

    def __init__(self, scope: WatchScope, writer: StatusWriter) -> None:
        self._scope = scope
        self._writer = writer
        self._reported: dict[ObjectKey, str] = {}
        """What the last Event about an object reported."""
        self._logged = log.Once()
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))
        scope.registry.subscribe(lambda key: self._reported.pop(key, None))

    def status(self, attempt: Attempt, run: FinishedRun) -> StatusReport:  # noqa: ARG002 - see Feature
        """End the report of a refusal: a run that ended needed no refused request, or it was accepted."""
        self._reported.pop(attempt.key, None)
        return report.request_accepted(attempt.obj)

    async def failed(self, attempt: Attempt, request: Request, error: FailedAnswer) -> Retry:
        """Report a failed request, and return when it is repeated."""
        match follow(request, error):
            case Follow.READ_AGAIN:
                self._log.info("Conflict with another writer; retrying", error=str(error), **attempt.key._asdict())
                return Retry(_CONFLICT_BACKOFF, ran=False)
            case Follow.REPORT:
                await self._report(attempt, request, error)
                return Retry(_REFUSED_BACKOFF, ran=False, refused=True)
            case _:
                return self.retry(attempt.key, error)

    def retry(self, key: ObjectKey, error: FailedAnswer) -> Retry:
        """Return when a request is repeated that failed for a reason outside the object. Log each reason once."""
        if self._logged.is_new((key, type(error))):
            self._log.warning("Request to the API server failed; retrying", error=str(error), **key._asdict())
        delay = getattr(error, "retry_after", None) or 0.0
        return Retry(replace(REQUEST_BACKOFF, delay=max(REQUEST_BACKOFF.delay, delay)), ran=False)

    async def _report(self, attempt: Attempt, request: Request, error: FailedAnswer) -> None:
        what, message = request.value, str(error)
        if self._logged.is_new(message):
            self._log.warning(
                "The API server refuses a request about the object; retrying with backoff",
                request=what,
                error=message,
                **attempt.key._asdict(),
            )
        if self._reported.get(attempt.key) != message:
            self._reported[attempt.key] = message
            self._scope.about(attempt.obj).refused(f"The API server refuses the {what}: {message}")
        reason = report.FINALIZER_RAN if request is Request.FINALIZER_REMOVED else "Refused"
        change = report.observed(attempt.obj, report.request_refused(what, message, reason))
        await self._writer.write(attempt.resource, self._scope.latest(attempt), change, attempt.guard)
