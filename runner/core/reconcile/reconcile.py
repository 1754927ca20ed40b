"""Reconcile loop of one watch: one attempt at one object for each request.

Order: read the object from the cache, let the features decide about the run, report `Running`, and run Ansible. Then
write the result to the status, and let the features report. Every way out returns a `Result`. The controller turns it
into a requeue, a retry or nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from runner.base import log
from runner.core.engine import output
from runner.core.engine.artifacts import new_ident
from runner.core.kube.client import PatchType
from runner.core.kube.meaning import Request
from runner.core.queue.reasons import ReconcileRequest
from runner.core.reconcile import decisions
from runner.core.reconcile.attempt import Attempt
from runner.core.reconcile.decisions import Done, Result, Retry, Terminal
from runner.core.reconcile.feature import Kind
from runner.core.reconcile.hooks import NOTHING, REQUEST_BACKOFF, FinishedRun, Hooks, RequestFailedError, Skip
from runner.core.status import report
from runner.core.status.report import StatusReport
from runner.values.errors import (
    ApiError,
    ApiUnavailableError,
    EngineError,
    LeaseLostError,
    PodWaitsError,
    RunDetachedError,
    TerminalError,
)
from runner.values.lease_guard import LeaseGuard
from runner.values.objects import JSONPatch, Object, ObjectKey


class Reconciler:
    """Reconciles the objects of one watch."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._scope = kind.scope
        self._client = kind.operator.client
        self._hooks = kind.hooks
        self._refusals = kind.refusals
        self._log = log.get(__name__, gvk=str(kind.scope.watch.gvk))

    async def reconcile(self, request: ReconcileRequest) -> Result:
        """Make one attempt at the object, unless it is gone or another replica leads."""
        obj = self._scope.informer.get(request.key)
        if obj is None:
            return await self._forget(request.key)
        with self._scope.leadership.hold() as guard:
            if guard is None:
                return Done(None)
            try:
                async with guard.guard():
                    return await self._reconcile(obj, request, guard)
            except LeaseLostError as error:
                self._log.error("Lost the leader lease; canceled the attempt", why=str(error), **request.key._asdict())
                return Done(None)
            except RunDetachedError as error:
                self._log.info("The run continues without this operator", why=str(error), **request.key._asdict())
                return Done(None)
            except PodWaitsError as error:
                self._log.debug("The run still waits for its pod", why=str(error), **request.key._asdict())
                return Retry(decisions.POD_BACKOFF, ran=False)

    async def _forget(self, key: ObjectKey) -> Result:
        # First, before another object can have the name: its request must not be dropped.
        self._scope.registry.forget(key)
        for hooks in self._hooks:
            await hooks.gone(key)
        return Done(None)

    async def _reconcile(self, obj: Object, request: ReconcileRequest, guard: LeaseGuard) -> Result:
        executes = decisions.run_content(self._scope.watch, obj)
        if executes is None:
            return Done(None)
        try:
            resource = await self._kind.operator.discovery.find(self._scope.watch.gvk)
        except (ApiError, ApiUnavailableError) as error:
            return self._refusals.retry(request.key, error)
        attempt = Attempt(request, obj, executes, resource, guard, new_ident(datetime.now(UTC)))
        try:
            return await self._attempt(attempt)
        except RequestFailedError as failed:
            return await self._refusals.failed(attempt, failed.request, failed.error)
        except (ApiError, ApiUnavailableError) as error:
            return await self._refusals.failed(attempt, Request.READ, error)

    async def _attempt(self, attempt: Attempt) -> Result:
        """Run the object, unless a feature skips the run; then report the run."""
        try:
            for hooks in self._hooks:
                decided = await hooks.before(attempt)
                if isinstance(decided, Skip):
                    if decided.report is not NOTHING:
                        await self._write(attempt, attempt.obj, decided.report)
                    return decided.result
                attempt = decided
            attempt, run = await self._run(attempt)
        except TerminalError as error:
            return await self._refuse(attempt, str(error))
        except EngineError as error:
            return await self._refuse(attempt, str(error), Retry(REQUEST_BACKOFF, ran=False))
        return await self._report(attempt, await self._explained(attempt, run))

    async def _explained(self, attempt: Attempt, run: FinishedRun) -> FinishedRun:
        for hooks in self._hooks if run.result.failures else ():
            try:
                run = await hooks.explained(attempt, run)
            except Exception:  # noqa: BLE001 - see `_note_failure`
                self._note_failure(hooks, attempt)
        return run

    async def _run(self, attempt: Attempt) -> tuple[Attempt, FinishedRun]:
        async with self._kind.runs.prepare(attempt) as (job, grant):
            attempt = await self._announce(attempt)
            for hooks in self._hooks:
                hooks.begins(attempt)
            return attempt, await self._kind.runs.run(attempt, job, grant)

    async def _announce(self, attempt: Attempt) -> Attempt:
        """Add our finalizer and write the `Running` condition, as far as they are missing."""
        if attempt.executes.add_first is not None:
            attempt.guard.check()
            attempt = replace(attempt, obj=await self._add_finalizer(attempt, attempt.executes.add_first))
        if attempt.request.reason.is_announced:
            await self._write_running(attempt)
        return attempt

    async def _write_running(self, attempt: Attempt) -> None:
        """Write the `Running` condition. During an outage no run begins: it would fail."""
        fields = {name: interim.during for name, interim in attempt.interim.items()}
        change = report.observed(attempt.obj, replace(report.run_began(attempt.obj), fields=fields))
        try:
            await self._kind.status.write(attempt.resource, attempt.obj, change, attempt.guard, keeps=False)
        except (ApiError, ApiUnavailableError) as error:
            raise RequestFailedError(Request.RUNNING, error) from error

    async def _add_finalizer(self, attempt: Attempt, patch: JSONPatch) -> Object:
        try:
            return await self._client.patch(attempt.resource, attempt.key, patch, content_type=PatchType.JSON)
        except (ApiError, ApiUnavailableError) as error:
            raise RequestFailedError(Request.FINALIZER_ADDED, error) from error

    async def _report(self, attempt: Attempt, run: FinishedRun) -> Result:
        """Write the result of a run to the status, before the features do anything else."""
        ended = NOTHING
        if not attempt.is_stopped:
            final = isinstance(run.decision.result, Terminal)
            missing, advice = run.grant.stats.forbidden(), run.decision.advice
            failed = report.FailureDetails(
                missing,
                advice,
                output.pointer(run.job),
                final=final,
                runs=attempt.request.failed_runs + 1,
                deletes=attempt.executes.finalizing,
            )
            ended = report.run_ended(run.result, failed)
        ended = ended.with_conditions((*attempt.conditions, *report.ignored(attempt.obj, run.job.ignored_variables)))
        for hooks in self._hooks:
            try:
                ended = ended.joined(hooks.status(attempt, run))
            except Exception:  # noqa: BLE001 - see `_note_failure`
                self._note_failure(hooks, attempt)
        written = await self._write(attempt, self._scope.latest(attempt), ended)
        for sentence in run.decision.advice:
            self._log.warning("No further run", why=sentence, job=attempt.ident, **attempt.key._asdict())
        try:
            await self._kind.runs.recorded(run.job)
        except (ApiError, ApiUnavailableError):
            self._note_failure(self._kind.runs, attempt)
        return await self._add(attempt, run, written)

    async def _add(self, attempt: Attempt, run: FinishedRun, written: Object) -> Result:
        """Let the features act, and write what they add to the status. `written` is the object with the result."""
        added, result = NOTHING, run.decision.result
        for hooks in self._hooks:
            attempt.guard.check()
            try:
                addition = await hooks.after(attempt, run)
            except LeaseLostError:
                raise
            except Exception:  # noqa: BLE001 - see `_note_failure`
                self._note_failure(hooks, attempt)
            else:
                added, result = added.joined(addition.report), addition.result or result
        if added != NOTHING:
            await self._write(attempt, written, added)
        return result

    def _note_failure(self, hooks: Hooks, attempt: Attempt) -> None:
        """Log and count the failure of a feature after a run. The result of the run is kept, and it is not repeated."""
        name = type(hooks).__name__
        self._scope.metrics.feature_failures.labels(str(self._scope.watch.gvk), name).inc()
        self._log.exception(
            "A feature failed after the run; the result of the run is kept",
            feature=name,
            job=attempt.ident,
            **attempt.key._asdict(),
        )

    async def _refuse(self, attempt: Attempt, why: str, result: Retry | None = None) -> Result:
        """Report an object that cannot run as it is. Without a result it waits for a change."""
        fields = {name: interim.otherwise for name, interim in attempt.interim.items()}
        change = replace(report.unusable(why, final=result is None), fields=fields)
        await self._write(attempt, attempt.obj, change)
        self._scope.about(attempt.obj).record("Warning", "NotRunnable", "Wait", why)
        message = "Object cannot run; retrying" if result is not None else "Object cannot run; waiting for a change"
        self._log.error(message, error=why, **attempt.key._asdict())
        return result or Terminal(ran=False)

    async def _write(self, attempt: Attempt, obj: Object, change: StatusReport) -> Object:
        """Write a change to the status of `obj`; return the object with it."""
        return await self._kind.status.write(attempt.resource, obj, report.observed(attempt.obj, change), attempt.guard)
