"""Runs of one watch's objects: the job of a run, its execution and cancellation, and the run folders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from runner.base import log
from runner.base.config import paths
from runner.base.config.settings import Settings
from runner.core.engine import artifacts, params
from runner.core.engine.job import SUPERSEDED, Engine, Event, EventSink, Job, RunResult, canceled
from runner.core.kube.discovery import ApiResource
from runner.core.kube.watch_health import ABSENT
from runner.core.proxy.identity import ObjectView, RunStats
from runner.core.queue import reasons
from runner.core.queue.reasons import RunReason
from runner.core.reconcile import decisions
from runner.core.reconcile.attempt import AnnotationBounds, AnnotationOverrides, Attempt, WatchScope
from runner.core.reconcile.hooks import FinishedRun, Hooks, Skip
from runner.core.reconcile.run_access import Grant, RunAccess
from runner.core.reconcile.run_log import RunEvents, RunObserver
from runner.core.status import report
from runner.core.watches.watch import Watch
from runner.values.errors import TerminalError
from runner.values.objects import Object, ObjectKey, ObjectRef, OwnerState, key_of, uid_of

_MOST_NAMED = 100
"""Ignored variables that the log names."""
_LONGEST_NAME = 100
_T = TypeVar("_T")
_TRIAL = "plan"
"""Purpose of runs that change nothing."""
_TRIALS = ".plans"
"""Folder of these runs, apart from the kept folders of runs."""


def bounds_of(watch: Watch, settings: Settings) -> AnnotationBounds:
    """Return the limits of annotations. Values that the watch itself uses are always within them."""
    period = _or(watch.reconcile_period, settings.reconcile_period)
    shortest = watch.min_reconcile_period
    return AnnotationBounds(
        period=period,
        shortest_period=min(shortest, period) if period else shortest,
        longest_run=_or(watch.policy.timeout, settings.run_timeout),
        mode=watch.mode,
        highest_verbosity=max(watch.max_verbosity, settings.verbosity_for(watch.gvk)),
    )


class JobFactory:
    """Makes the jobs of one watch, and warns once per object about its spec and annotations."""

    def __init__(self, scope: WatchScope, settings: Settings, environment: Mapping[str, str]) -> None:
        """`environment` is added to the operator's own environment."""
        self.runner_dir = settings.runner_dir
        self._watch = scope.watch
        self._settings = settings
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))
        self._warned: dict[ObjectKey, str] = {}
        """Uids."""
        self._bounds = scope.bounds
        self._environment = environment
        scope.registry.subscribe(lambda key: self._warned.pop(key, None))

    async def make(self, attempt: Attempt, grant: Grant) -> Job:
        """Build the job of an attempt. A thread converts the spec, because a large one needs much CPU time.

        Raises:
            TerminalError: the object cannot become variables.
        """
        watch, settings, overrides = self._watch, self._settings, attempt.overrides
        cause = attempt.request.cause
        large = params.is_large(attempt.obj)
        finalizing = attempt.executes.finalizing
        parameters = await params.convert(
            params.build, attempt.obj, watch, cause=cause, finalizing=finalizing, large=large
        )
        job = Job(
            ident=attempt.ident,
            gvk=watch.gvk,
            key=attempt.key,
            content=attempt.executes.content,
            run_dir=paths.run_dir(self.runner_dir, watch.gvk, attempt.key),
            extra_vars=parameters.extra_vars,
            unsafe_keys=parameters.unsafe_keys,
            is_large=large,
            ignored_variables=parameters.reserved,
            verbosity=_or(overrides.verbosity, settings.verbosity_for(watch.gvk)),
            raised=bool(overrides.verbosity) or settings.is_raised(watch.gvk),
            ansible_args=settings.ansible_args,
            max_artifacts=_or(overrides.max_runner_artifacts, watch.max_runner_artifacts),
            environment=self._environment,
            kubeconfig=grant.kubeconfig,
            uid=uid_of(attempt.obj),
            generation=attempt.generation,
            purpose=attempt.purpose,
            token=grant.token,
            resumed=attempt.resumed,
            keeps_worker=attempt.bounds is not None,
            secrets=grant.secrets,
            deadline=_or(overrides.run_timeout, self._bounds.longest_run) or None,
            more=attempt.more,
        )
        for complete in attempt.completes:
            job = complete(attempt, job)
        await self._warn(attempt.obj, replace(parameters, reserved=job.ignored_variables), overrides, large=large)
        return job

    async def _warn(
        self, obj: Object, parameters: params.Parameters, overrides: AnnotationOverrides, *, large: bool
    ) -> None:
        if self._warned.get(key_of(obj)) == uid_of(obj):
            return
        self._warned[key_of(obj)] = uid_of(obj)
        bound = self._log.bind(**key_of(obj)._asdict())
        if not isinstance(spec := obj.get("spec"), dict | None):
            bound.warning("The spec is not a map; the run receives no variables of it", type=type(spec).__name__)
        for collision in parameters.collisions:
            bound.warning("Two keys of the spec map to the same variable", collision=str(collision))
        if parameters.reserved:
            named = [name[:_LONGEST_NAME] for name in parameters.reserved[:_MOST_NAMED]]
            more = len(parameters.reserved) - len(named)
            bound.warning(report.IGNORED_VARIABLES_ADVICE, variables=named, **({"more": more} if more else {}))
        for warning in overrides.warnings:
            bound.warning("Invalid annotation value; ignoring it", problem=warning)
        if overrides.limited:
            bound.warning(report.LIMITED_ANNOTATIONS_ADVICE, problems=list(overrides.limited))
        marked = self._watch.mark_unsafe
        template = await params.convert(params.has_template, obj.get("spec"), large=large) if marked else None
        if template is not None:
            bound.info(
                "A string of the spec looks like a template and is not evaluated; "
                "set `markUnsafe: false` in watches.yaml to evaluate it",
                path=template,
            )


@dataclass(slots=True)
class _Running:
    """A run in progress."""

    task: asyncio.Task[RunResult]
    finalizing: bool
    stats: RunStats
    deleted: bool = False
    """Whether the object's deletion was requested during the run."""
    canceled_because: str = ""

    def cancel(self, why: str) -> None:
        if not self.canceled_because:
            self.canceled_because = why
            self.task.cancel(SUPERSEDED)


class Runs(Hooks):
    """Executes the runs of one watch's objects, at most one per object, and removes the files of former objects."""

    def __init__(
        self,
        scope: WatchScope,
        engine: Engine,
        recorders: Sequence[RunObserver],
        access: RunAccess,
        owner_state: Callable[[ApiResource, ObjectRef], Awaitable[OwnerState]],
        jobs: JobFactory,
    ) -> None:
        """`owner_state` returns the state of the object of a run."""
        self._scope = scope
        self._engine = engine
        self._recorders = recorders
        self._access = access
        self._owner_state = owner_state
        self._jobs = jobs
        self._running: dict[ObjectKey, _Running] = {}

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Continue the run that an earlier operator began. One with another purpose is ended."""
        applies = attempt.overrides.mode == "apply" and not attempt.request.reason.is_check
        ref = ObjectRef.of(self._scope.watch.gvk, attempt.obj)
        resumed = await self._engine.resume(ref, attempt.generation, attempt.purpose if applies else _TRIAL)
        return attempt if resumed is None else replace(attempt, ident=resumed.ident, resumed=resumed)

    async def recorded(self, job: Job) -> None:
        """End what remains of a run after its outcome is in the status."""
        await self._engine.recorded(job)

    @asynccontextmanager
    async def prepare(self, attempt: Attempt, view: ObjectView | None = None) -> AsyncIterator[tuple[Job, Grant]]:
        """Open the access of a run to the API server, and make its job. With `view`, the run is a trial.

        Raises:
            TerminalError: the object cannot be run.
        """
        watch = self._scope.watch
        terminates = partial(self._namespace_terminates, attempt.key)
        owner = partial(self._owner_state, attempt.resource, ObjectRef.of(watch.gvk, attempt.obj))
        async with self._access.open(watch, attempt, terminates, owner, view) as grant:
            yield await self._jobs.make(attempt, grant), grant

    async def run(self, attempt: Attempt, job: Job, grant: Grant) -> FinishedRun:
        """Run a prepared job to its end, or until `supersede` cancels it; decide what follows."""
        records = [recorder.start(job, attempt.request) for recorder in self._recorders]
        about = ObjectRef.of(job.gvk, attempt.obj)
        events = RunEvents(self._scope.events, about, job, finalizing=attempt.executes.finalizing)
        events.started(attempt.request)
        sinks = (*(record.event for record in records), events.event, *attempt.sinks)
        result = await self._execute(job, attempt, grant, sinks)
        for record in records:
            record.end(result, grant.stats)
        if result.refused:
            await self._engine.recorded(job)
        _check(result)
        terms = self._scope.terms(attempt, terminating=attempt.key.namespace in grant.stats.terminating)
        decision = decisions.after_run(result, terms, failed_runs=attempt.request.failed_runs)
        return FinishedRun(job, result, grant, events, decision)

    async def trial(
        self, attempt: Attempt, view: ObjectView, change: Callable[[Job], Job], sink: EventSink
    ) -> tuple[RunResult, Grant]:
        """Run so that nothing is written. The run has no Events, no log and no kept folder.

        `change` receives the job of a run, and returns that of the trial.
        """
        async with self.prepare(attempt, view) as (real, grant):
            job = replace(
                change(real),
                run_dir=paths.run_dir(self._jobs.runner_dir / _TRIALS, real.gvk, real.key),
                max_artifacts=artifacts.KEEP_NONE,
                purpose=_TRIAL,
            )
            result = await self._execute(job, attempt, grant, (sink, *attempt.sinks))
            await self._engine.recorded(job)
        _check(result)
        return result, grant

    async def _execute(self, job: Job, attempt: Attempt, grant: Grant, sinks: Sequence[EventSink]) -> RunResult:
        finalizing = attempt.executes.finalizing

        def receive(event: Event) -> None:
            for sink in sinks:
                sink(event)

        running = _Running(asyncio.create_task(self._engine.run(job, receive)), finalizing, grant.stats)
        self._running[job.key] = running
        began = asyncio.get_running_loop().time()
        try:
            result = await running.task
            if result.lost:
                result = decisions.lost(result, attempt.obj, self._scope.informer.get(job.key), finalizing=finalizing)
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if not running.canceled_because or (this is not None and this.cancelling()):
                raise
            result = canceled(running.canceled_because, asyncio.get_running_loop().time() - began)
        finally:
            del self._running[job.key]
        return result

    def supersede(self, key: ObjectKey, reason: RunReason) -> None:
        """Cancel the object's run in progress if a change of the object makes it pointless."""
        running = self._running.get(key)
        if running is None or running.finalizing:
            return
        running.deleted = running.deleted or reason is reasons.DELETED
        terminating = key.namespace in running.stats.terminating
        why = decisions.superseded(self._scope.watch.policy, reason, terminating=terminating)
        if why:
            running.cancel(why)

    def end(self, key: ObjectKey, why: str) -> None:
        """End the object's run in progress."""
        if (running := self._running.get(key)) is not None:
            running.cancel(why)

    def _namespace_terminates(self, key: ObjectKey) -> None:
        """Cancel the run of a deleted object that cannot create anything, since its finalizer waits for the run."""
        running = self._running.get(key)
        if running is not None and running.deleted:
            self.supersede(key, reasons.DELETED)

    async def gone(self, key: ObjectKey) -> None:
        """Remove the run folder of an object that is gone, and what remains of its runs."""
        for root in self._roots:
            await self._engine.forget(paths.run_dir(root, self._scope.watch.gvk, key))

    async def sweep(self) -> None:
        """Remove the run folders of objects that are gone, as soon as the objects of a namespace are known.

        Folders of namespaces that are not watched stay, as do those of kinds that are no longer watched.
        """
        watch = self._scope.watch
        try:
            async for _ in self._scope.informer.known_namespaces():
                await self._engine.sweep(watch.gvk, self._is_gone, finalizes=watch.finalizer is not None)
                for root in self._roots:
                    await self._sweep(paths.run_dir(root, watch.gvk, ObjectKey("", "")))
        except OSError as error:
            log.get(__name__, gvk=str(self._scope.watch.gvk)).warning(
                "Cannot remove the run folders of objects that are gone", error=str(error)
            )

    async def _sweep(self, base: Path) -> None:
        for run_dir in await asyncio.to_thread(lambda: list(artifacts.run_folders(base))):
            *namespace, name = run_dir.relative_to(base).parts
            if self._is_gone(ObjectKey("".join(namespace[:1]), name)):
                await self._engine.forget(run_dir)

    def _is_gone(self, key: ObjectKey, uid: str = "") -> bool:
        """Return True if a watched object does not exist. With `uid`: or if another one has its name."""
        return self._scope.informer.presence(key, uid) is ABSENT

    @property
    def _roots(self) -> tuple[Path, Path]:
        return self._jobs.runner_dir, self._jobs.runner_dir / _TRIALS


def _check(result: RunResult) -> None:
    """Raise TerminalError if a callback of the operator ended the run."""
    if result.refused:
        raise TerminalError(f"{result.message}. The object is not run until it changes")


def _or(value: _T | None, default: _T) -> _T:
    return default if value is None else value
