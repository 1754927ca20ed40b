"""Hooks of the operator itself: pause, annotations, reports, refusals, the finalizer's removal, the owner's check."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from runner.base import log
from runner.core.kube.client import Client, PatchType
from runner.core.kube.discovery import ApiResource
from runner.core.kube.meaning import Follow, Request, follow
from runner.core.proxy.handlers.writes import ObjectReader
from runner.core.reconcile import decisions
from runner.core.reconcile.attempt import Attempt, WatchScope, overrides_of
from runner.core.reconcile.decisions import Done, Result, Retry
from runner.core.reconcile.hooks import REQUEST_BACKOFF, Addition, FinishedRun, Hooks, Skip
from runner.core.status import report
from runner.core.status.report import StatusReport
from runner.core.status.writer import StatusWriter
from runner.values.backoff import Backoff
from runner.values.errors import ApiError, ApiUnavailableError, ConflictError, NotFoundError, TerminalError
from runner.values.objects import ObjectKey, ObjectRef, OwnerState, is_paused, uid_of

_REFUSED_BACKOFF = Backoff(1.0, cap=600.0)
_CONFLICT_BACKOFF = Backoff(0.005, cap=1.0)

FailedAnswer: TypeAlias = ApiError | ApiUnavailableError


@dataclass(frozen=True, slots=True)
class Pause(Hooks):
    """Skips the runs of paused objects."""

    scope: WatchScope

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Skip the run while the object is paused."""
        if not is_paused(attempt.obj):
            return attempt
        self.scope.about(attempt.obj).record("Normal", "Paused", "Wait", report.PAUSED_MESSAGE)
        return Skip(Done(None), report.paused())


@dataclass(frozen=True, slots=True)
class Annotations(Hooks):
    """Values of annotations, and the condition that names those beyond their limits."""

    scope: WatchScope

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Read the annotations.

        Raises:
            TerminalError: an annotation is invalid, or the object has too many levels or values for a run. This comes
                first, since the features after it would compare an object without its spec.
        """
        if excess := self.scope.informer.excess(attempt.key):
            raise TerminalError(excess)
        overrides = overrides_of(attempt.obj, self.scope.bounds)
        limited = report.limited(attempt.obj, overrides.limited)
        return replace(attempt, overrides=overrides, conditions=(*attempt.conditions, *limited))


@dataclass(frozen=True, slots=True)
class RunReports(Hooks):
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


class Refusals(Hooks):
    """Reports of one watch's objects.

    `runner.core.kube.meaning` decides. No run takes place for a repetition, and the wait for it holds no worker.
    """

    def __init__(self, scope: WatchScope, writer: StatusWriter) -> None:
        self._scope = scope
        self._writer = writer
        self._reported: dict[ObjectKey, str] = {}
        """What the last Event about an object, and the log, reported."""
        self._logged = log.Once()
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))
        scope.registry.subscribe(lambda key: self._reported.pop(key, None))

    def status(self, attempt: Attempt, run: FinishedRun) -> StatusReport:  # noqa: ARG002 - see Hooks
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
        if self._reported.get(attempt.key) != message:
            self._reported[attempt.key] = message
            self._log.warning(
                "The API server refuses a request about the object; retrying with backoff",
                request=what,
                error=message,
                **attempt.key._asdict(),
            )
            self._scope.about(attempt.obj).refused(f"The API server refuses the {what}: {message}")
        reason = report.FINALIZER_RAN if request is Request.FINALIZER_REMOVED else "Refused"
        change = report.observed(attempt.obj, report.request_refused(what, message, reason))
        await self._writer.write(attempt.resource, self._scope.latest(attempt), change, attempt.guard)


_MOST_CONFLICTS = 5
"""Conflicts in a row until the removal is retried with backoff."""


class FinalizerRemoval(Hooks):
    """Removes the finalizer of one watch, and remembers from which objects: the cache may still show it there.

    A finalizer that has run is not run again: if the removal fails, only the removal is repeated.

    Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/
    """

    def __init__(self, scope: WatchScope, client: Client, refusals: Refusals) -> None:
        self._scope = scope
        self._client = client
        self._refusals = refusals
        self._name = scope.watch.finalizer.name if scope.watch.finalizer else ""
        self._released: dict[ObjectKey, tuple[str, bool]] = {}
        """Uids of objects whose finalizer has run, and whether it was removed."""
        scope.registry.subscribe(lambda key: self._released.pop(key, None))

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Skip the run if the finalizer has run, and remove it if that failed before."""
        uid, is_removed = self._released.get(attempt.key, (None, False))
        is_known = uid == uid_of(attempt.obj)
        if not attempt.executes.finalizing or not (is_known or report.finalizer_has_run(attempt.obj)):
            return attempt
        return Skip(Done(None) if is_known and is_removed else await self._release(attempt))

    async def after(self, attempt: Attempt, run: FinishedRun) -> Addition:
        """Remove the finalizer if the run succeeded, or reached its limit."""
        if not run.decision.release:
            return Addition()
        self._released[attempt.key] = uid_of(attempt.obj), False
        return Addition(result=await self._release(attempt))

    async def _release(self, attempt: Attempt) -> Result:
        try:
            await self._remove(attempt)
        except (ApiError, ApiUnavailableError) as error:
            return await self._refusals.failed(attempt, Request.FINALIZER_REMOVED, error)
        self._released[attempt.key] = uid_of(attempt.obj), True
        return Done(None)

    async def _remove(self, attempt: Attempt) -> None:
        """Remove the finalizer from the object as it is: other controllers write finalizers too."""
        obj, failure = self._scope.latest(attempt), None
        for _ in range(_MOST_CONFLICTS):
            attempt.guard.check()
            patch = decisions.finalizer_removed(self._name, obj)
            if patch is None or uid_of(obj) != uid_of(attempt.obj):
                return
            try:
                await self._client.patch(attempt.resource, attempt.key, patch, content_type=PatchType.JSON)
            except (ConflictError, NotFoundError) as error:
                failure = error
            else:
                return
            try:
                obj = await self._client.get(attempt.resource, attempt.key)
            except NotFoundError:
                return
        if failure is not None:
            raise failure


def removal(scope: WatchScope, client: Client, refusals: Refusals) -> FinalizerRemoval | None:
    """Return the removal of the finalizer of a watch; None if it has none."""
    return FinalizerRemoval(scope, client, refusals) if scope.watch.finalizer else None


_NO_READ = (None, OwnerState.EXISTS, 0)


class OwnerCheck(Hooks):
    """Checks if the API server still has an object under the UID that the cache shows.

    The cache can lag: an object may have been deleted, and created again under its name. A run for the old UID creates
    objects that the garbage collector deletes, and each deletion triggers the next run. One read ends this. It does not
    use the API server's cache.
    """

    def __init__(self, scope: WatchScope, reader: ObjectReader) -> None:
        self._reader = reader
        self._cached = scope.informer
        self._period = scope.bounds.period
        self._last: dict[ObjectKey, tuple[str, OwnerState, int]] = {}
        """By object: the UID of the last read, what it found, and the cache's revision before it."""
        self._logged = log.Once()
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))
        scope.registry.subscribe(lambda key: self._last.pop(key, None))

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Skip the run of an object that was deleted. The event that the watch delivers later starts what follows.

        If a read did not find the object, it is read again until this event: the object may exist nevertheless.
        """
        state = OwnerState.EXISTS if attempt.resumed is not None else await self.before_run(attempt)
        if state is OwnerState.EXISTS:
            return attempt
        self._log.info(
            "Run skipped: the object was deleted, and the watch has not delivered the event yet",
            reason=attempt.request.reason.value,
            uid=uid_of(attempt.obj),
            state=state.value,
            **attempt.key._asdict(),
        )
        if state is OwnerState.GONE:
            return Skip(Retry(REQUEST_BACKOFF, ran=False))
        return Skip(Done(self._period or None))

    async def before_run(self, attempt: Attempt) -> OwnerState:
        """Return the state of the attempt's object. Read it if no event shows that it exists, or if a finalizer runs.

        A missing UID is read each time: an API server may fail to find an object for a moment.
        """
        key, uid = attempt.key, uid_of(attempt.obj)
        last_uid, state, _ = self._last.get(key, _NO_READ)
        was_missing = last_uid == uid and state is not OwnerState.EXISTS
        if was_missing or attempt.executes.finalizing or not attempt.request.reason.shows_object:
            return await self._read(attempt.resource, key, uid)
        return OwnerState.EXISTS

    async def during_run(self, resource: ApiResource, owner: ObjectRef) -> OwnerState:
        """Return the state of a run's object. Read it only if the cache does not have it under this UID."""
        key, uid = owner.key, owner.uid
        last_uid, state, revision = self._last.get(key, _NO_READ)
        is_last = last_uid == uid
        if self._cached_uid(key) == uid or (
            is_last and state is OwnerState.EXISTS and revision == self._cached.revision
        ):
            return OwnerState.EXISTS
        if is_last and state is OwnerState.REPLACED:
            return OwnerState.REPLACED
        try:
            return await self._read(resource, key, uid)
        except (ApiError, ApiUnavailableError) as error:
            self._log.info("Cannot check whether the object of a run still exists", error=str(error), **key._asdict())
            return OwnerState.EXISTS

    async def _read(self, resource: ApiResource, key: ObjectKey, uid: str) -> OwnerState:
        revision = self._cached.revision
        try:
            state = OwnerState.EXISTS if uid_of(await self._reader.get(resource, key)) == uid else OwnerState.REPLACED
        except NotFoundError:
            state = OwnerState.GONE
        except ApiError as error:
            if follow(Request.OWNER, error) is not Follow.PROCEED:
                raise
            if self._logged.is_new(key.namespace):
                self._log.warning(
                    "Cannot check whether objects still exist: runs for deleted ones are not prevented",
                    error=str(error),
                    needs=f"verb get on {resource.qualified}",
                )
            return OwnerState.EXISTS
        self._last[key] = uid, state, revision
        return state

    def _cached_uid(self, key: ObjectKey) -> str:
        summary = self._cached.summary(key)
        if summary is not None:
            return summary.uid
        deselected = self._cached.get(key)
        return uid_of(deselected) if deselected is not None else ""
