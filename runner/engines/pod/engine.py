"""Engine that runs each job in a pod of its own.

Order of a run: write the order, create the Secret that records the run, create the Job, receive the agent's lines, and
conclude. `recorded` ends the run after its outcome is in the status: only then the agent and the Secret go away. Until
then, a restarted operator, or the next leader, finds the Secret and continues the run.

Promises, beside those of `job.Engine`:

- An object has at most one run. Its name is that of the Secret, which the API server creates once.
- Each line of the agent is applied once for each run folder, and each run has one outcome.
- A run whose pod is lost is canceled, not failed; its token ends with the attempt, so that it writes nothing more.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from runner.base import log
from runner.base.config import atomic_file
from runner.core.engine.job import SUPERSEDED, EventSink, Job, Outcome, RunResult
from runner.core.engine.params import convert
from runner.core.engine.pipeline import Pipeline, Stop
from runner.core.engine.run_dir import private_folder
from runner.core.engine.run_root import RunRoot
from runner.core.kube.client import Client, PatchType
from runner.engines.pod import execution, jobs, payload, states
from runner.engines.pod.execution import STOP_WITHIN, PodExecution, PodObjects, Waiting
from runner.engines.pod.idle import IdleLink
from runner.engines.pod.jobs import PODS, RecordedRun
from runner.engines.pod.links import Links
from runner.engines.pod.records import APPLY, PLAN, Records
from runner.engines.pod.spool import Space, Spool
from runner.engines.pod.states import Patience
from runner.engines.pod.stream import WorkerOutput, mark_of
from runner.engines.pod.warm import WarmPods
from runner.engines.pod.watching import PodWatch
from runner.values.backoff import JitteredBackoff
from runner.values.errors import PASSING, ApiError, ApiUnavailableError, EngineError, PodWaitsError, RunDetachedError
from runner.values.objects import GVK, ObjectKey, ObjectRef, type_name

_RESUMED = "withheld: the operator was restarted during this run, so that it may not know all secret values"
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0
"""Seconds between attempts to delete the objects of an ended run."""
_log = log.get(__name__)


class PodEngine:
    """Engine of the watches whose runs are in pods."""

    def __init__(
        self,
        client: Client,
        links: Links,
        pods: PodWatch,
        records: Records,
        root: RunRoot,
        started: Callable[[float], None],
    ) -> None:
        """`started` receives the seconds from the creation of a run's objects to its first line."""
        self._client = client
        self._links = links
        self._pods = pods
        self.records = records
        self._root = root
        self._space = Space()
        self._pipeline = Pipeline(root.kept)
        self._shared = PodObjects(pods, self.records, Patience(), started, self._preload_unused)
        # By the UID of the resource, which has at most one run.
        self._unsettled: dict[str, PodExecution] = {}
        """Runs whose outcome is not recorded yet."""
        self._waiting: dict[str, Waiting] = {}
        """Runs that wait for their pod without a worker."""
        self._deletions: dict[str, asyncio.Task[None]] = {}
        """Deletions of the objects of ended runs, which failed at first. The resources have no run meanwhile."""
        self._elsewhere: set[str] = set()
        """Resources whose finalizer gets no pod in their namespace, as for a quota of the resource's pods."""
        self._tasks: set[asyncio.Task[RunResult]] = set()
        self._closed = False
        self.warm: dict[GVK, WarmPods] = {}
        """Warm pods of the watches that have them."""
        self._labeling: set[asyncio.Task[None]] = set()
        self.begun_runs = 0
        """Number of runs that this operator began."""
        self.resumed_runs = 0
        """Number of runs that an earlier operator began."""

    def warm_counts(self) -> dict[str, int]:
        """Return how many runs got a warm pod or found none, and how many warm pods failed, for metrics."""
        pools = self.warm.values()
        return {
            "hit": sum(pool.hits for pool in pools),
            "miss": sum(pool.misses for pool in pools),
            "failed": sum(pool.failures for pool in pools),
            "unused": sum(pool.unused for pool in pools),
        }

    # Before a run.

    async def resume(self, owner: ObjectRef, generation: int, purpose: str) -> RecordedRun | None:
        """Return the run of the object that an earlier operator began; None if there is none to continue.

        Runs of another generation or purpose are ended: their tokens are unknown, so they write nothing more.
        """
        waiting = self._waiting.get(owner.uid)
        moves = waiting is not None and self._moves(waiting.run, waiting.since)
        if waiting is not None and not moves and _is_for(waiting, generation, purpose) and self._has_no_node(waiting):
            await self._renew(waiting)
            raise PodWaitsError(waiting.why)
        if owner.uid in self._deletions:
            raise PodWaitsError("the objects of the last run are not deleted yet")  # the next one can have its name
        runs = await self.records.of_owner(owner, purpose)
        going_on = next((run for run in runs if execution.continues(run, generation, purpose)), None)
        for other in runs:
            if other is not going_on:
                _log.info("Ending an unfinished run of the object", run=other.name, **owner.key._asdict())
                await self.records.remove(other.name, other.namespace, self.records.place_of(other))
        if going_on is None or (waiting is not None and waiting.run.name != going_on.name):
            self._waiting.pop(owner.uid, None)
        return going_on

    def _has_no_node(self, waiting: Waiting) -> bool:
        """Return True while a run has to wait for its pod, and its time is not over."""
        run, state = waiting.run, self._pods.state(waiting.run.place)
        if state is None and waiting.had_pod:
            return False
        is_over = run.ends_at is not None and time.time() >= run.ends_at
        lasted = asyncio.get_running_loop().time() - waiting.since
        no_node = states.without_node(state, self._shared.patience, waiting.why)
        return no_node is not None and not is_over and lasted < self._shared.patience.start

    async def _renew(self, waiting: Waiting) -> None:
        """Create the Job of a refused pod again. Kubernetes itself tries again after up to a minute only."""
        run, place, now = waiting.run, waiting.run.place, asyncio.get_running_loop().time()
        is_absent = self._pods.state(place) is None and self._pods.is_known(place.namespace)
        is_refused = run.fault is not None and run.fault.is_refused
        if is_absent and is_refused and now - waiting.renewed >= self._shared.patience.renewal:
            await self.records.remove_job(place)
            await self.records.create_job(run.job, run.name, run.namespace)
            self._waiting[run.job.uid] = replace(waiting, renewed=now)

    def _moves(self, run: PodExecution, since: float) -> bool:
        """Return True for a finalizer whose pod was refused for long enough. It runs in the operator's namespace.

        A quota can be used by objects that Kubernetes deletes only after the finalizer.
        """
        fault = run.fault
        if run.job.purpose in {APPLY, PLAN} or fault is None or not fault.is_refused:
            return False
        is_away = self.records.namespace not in {"", run.namespace}
        return is_away and asyncio.get_running_loop().time() - since >= self._shared.patience.finalizer

    # A run.

    async def run(self, job: Job, sink: EventSink) -> RunResult:
        """Run a job to its end.

        If the awaiting task is canceled with `SUPERSEDED`, the run ends first. If it is canceled otherwise, the run
        continues, and the next operator finds it.

        Raises:
            RunDetachedError: the operator stops; the run continues in its pod.
            ConflictError: another operator has begun a run of the object.
        """
        if self._closed:
            raise RunDetachedError("the operator is shutting down; the run was not started")
        stop = Stop()
        task = asyncio.create_task(self._pipeline.run(job, partial(self._begin, job), sink, stop))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            result = await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise RunDetachedError("the operator is shutting down; the run continues in its pod") from error
            if SUPERSEDED in error.args and self._is_unsettled(job):
                stop.ask(Outcome.CANCELED)
                await asyncio.wait({task})
                await self.recorded(job)
            else:
                task.cancel()
                await asyncio.wait({task})
                self._let_go(job.uid)
            raise
        if result.waits:
            self._let_wait(job)
        return result

    def _is_unsettled(self, job: Job) -> bool:
        return job.uid in self._unsettled and self._unsettled[job.uid].job.ident == job.ident

    def _let_wait(self, job: Job) -> None:
        """Let another attempt continue a run that waits for its pod.

        The next attempt begins another run for plans, and for runs beyond `maxPods`, whose pods could start at once.
        """
        run, now = self._unsettled[job.uid], asyncio.get_running_loop().time()
        others = (other for other in self._waiting.values() if other.run.job.gvk == job.gvk)
        waiting = sum(now - other.since < self._shared.patience.start for other in others)
        is_full = waiting >= self.records.policies[job.gvk].most
        if job.purpose == PLAN or is_full or run.link.connects or run.fault is None:
            return
        since = run.waited.since if run.waited is not None else now - (time.monotonic() - run.begun)
        if self._moves(run, since):
            self._elsewhere.add(job.uid)
            return
        self._waiting[job.uid] = Waiting(run, since, run.state is not None, run.fault.waits, renewed=now)
        self._let_go(job.uid)

    async def recorded(self, job: Job) -> None:
        """End what remains of a run whose outcome is recorded. Calling it twice does no harm.

        Objects that cannot be deleted now are deleted later: the run is not reported again.
        """
        if not self._is_unsettled(job):
            return
        run = self._unsettled.pop(job.uid)
        try:
            if run.report is None:
                run.link.fence()
                await self._delete(run, None if run.has_log else run.place)
            else:
                self._elsewhere.discard(run.job.uid)
                # First the record: without it, no operator continues a run that has been reported.
                await self._delete(run, None)
                has_left, state = await run.link.recorded(STOP_WITHIN), self._pods.state(run.place)
                if not has_left:
                    _log.info("The agent of a run does not respond; deleting its Job", run=run.name)
                elif state is not None and state.has_others:
                    _log.info("Other containers keep the pod of an ended run running; deleting its Job", run=run.name)
                if not has_left or (state is not None and state.has_others):
                    await self._delete(run, run.place)
        finally:
            _close(run)
        try:
            await asyncio.to_thread(run.spool.remove)
        except OSError as error:
            _log.warning("Cannot remove the received lines of a run", run=run.name, error=str(error))

    async def _delete(self, run: PodExecution, job: ObjectKey | None) -> None:
        """Delete the Secret of an ended run, and its Job if given. Continue in the background after an error."""
        try:
            await self.records.remove(run.name, run.namespace, job)
        except (ApiError, ApiUnavailableError) as error:
            _log.warning("Cannot delete the objects of an ended run; trying again", run=run.name, error=str(error))
            later = self._delete_later(run, job, self._deletions.get(run.job.uid))
            self._deletions[run.job.uid] = asyncio.create_task(later)

    async def _delete_later(self, run: PodExecution, job: ObjectKey | None, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        backoff = JitteredBackoff(_FIRST_RETRY, _LONGEST_RETRY)
        while True:
            await asyncio.sleep(backoff.next())
            try:
                await self.records.remove(run.name, run.namespace, job)
            except (ApiError, ApiUnavailableError) as error:
                _log.debug("Cannot delete the objects of an ended run yet", run=run.name, error=str(error))
            else:
                if self._deletions.get(run.job.uid) is asyncio.current_task():
                    del self._deletions[run.job.uid]
                return

    async def forget(self, run_dir: Path) -> None:
        """Remove the run folder of a deleted object except its last run, and what remains of its runs elsewhere."""
        for run in [run for run in self._unsettled.values() if run.job.run_dir == run_dir]:
            await self.recorded(run.job)
        for uid, waiting in list(self._waiting.items()):
            if waiting.run.job.run_dir == run_dir:
                del self._waiting[uid]
                await self._delete(waiting.run, waiting.run.place)
        await asyncio.to_thread(self._root.kept.retire, run_dir)

    async def sweep(self, gvk: GVK, is_gone: Callable[[ObjectKey, str], bool], *, finalizes: bool) -> None:
        """End the unrecorded runs of objects that are gone. From now on, their ended warm pods are deleted too."""
        if gvk in self.warm:
            self.warm[gvk].orphans = lambda: [
                name for name, key, uid in self._pods.ended_warm_of(gvk) if is_gone(key, uid)
            ]
        if finalizes:  # other runs are never in the namespace of the operator, where it may lack the rights
            await self.records.sweep(gvk, is_gone)

    async def close(self, grace: float) -> None:  # noqa: ARG002 - runs in pods need no time: they go on
        """Leave the runs in their pods to the next operator. No run starts afterwards."""
        self._closed = True
        tasks: set[asyncio.Task[Any]] = {*self._tasks, *self._labeling, *self._deletions.values()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _let_go(self, uid: str) -> None:
        run = self._unsettled.pop(uid, None)
        if run is not None:
            _close(run)

    def _preload_unused(self, job: Job, reason: str) -> None:
        if job.gvk in self.warm:
            self.warm[job.gvk].preload_unused(reason)

    async def _begin(self, job: Job) -> PodExecution:
        """Create the objects of a run as far as they are missing, and accept its agent."""
        order = job.run_dir / f"{payload.ORDER}{job.ident}"
        try:
            spool = await asyncio.to_thread(_open, job, self._space)
        except OSError as error:
            raise EngineError(f"the run folder {job.run_dir} cannot be written: {error}") from error
        await convert(payload.write, job, order, os.environ, Path.cwd(), self._root.callbacks, large=job.is_large)
        resumed, begun = jobs.continued(job), time.monotonic()
        if resumed is not None:
            begun -= max(time.time() - resumed.record.began, 0.0)
        had_pod = resumed is not None and (bool(spool.last) or await self.records.had_pod(resumed, job.uid))
        name, namespace, idle, place = await (self._resumed(job, resumed) if resumed else self._new(job))
        self._let_go(job.uid)  # if its outcome could not be recorded
        link, mark = self._links.open(name, job.token, order, spool.last), mark_of(job.token)
        job.secrets.add_initial([str(mark)])  # it is in the environment of each task
        waited = self._waiting.pop(job.uid, None)
        run = PodExecution(
            *(job, name, namespace, place, self._shared, spool, order, link, WorkerOutput(mark), idle),
            *(execution.deadline_of(job), waited, had_pod, begun),
        )
        self._unsettled[job.uid] = run
        if resumed is None:
            self.begun_runs += 1
        elif waited is None:
            self.resumed_runs += 1
            _log.info("Continuing a run that an earlier operator began", run=name, lines=spool.last, job=job.ident)
        if run.is_continued:
            job.secrets.exhaust(_RESUMED)
        if idle is not None:
            idle.assign(name, job.token)
            self._label(run)
        return run

    async def _new(self, job: Job) -> tuple[str, str, IdleLink | None, ObjectKey]:
        """Create the objects of a new run.

        Returns the run's name and namespace, its idle agent if one is ready, and its Job's key.
        """
        warm = self.warm.get(job.gvk)
        taken = warm.take() if warm is not None else None
        if warm is None or taken is None:
            name, namespace = await self.records.create(job, elsewhere=job.uid in self._elsewhere)
            return name, namespace, None, ObjectKey(namespace, name)
        try:
            name, namespace = await self.records.create(job, taken.name)
        except (*PASSING, asyncio.CancelledError):
            # A Secret that names the pod may exist. The agent connects again, and can get only the run of that Secret.
            taken.link.close()
            raise
        except BaseException:
            warm.give_back(taken)
            raise
        return name, namespace, taken.link, ObjectKey(self.records.namespace, taken.name)

    async def _resumed(self, job: Job, run: RecordedRun) -> tuple[str, str, IdleLink | None, ObjectKey]:
        """Return the same for a run that an earlier operator began. It may have ended before its agent got the run."""
        idle = None
        if run.record.warm:
            idle = self._links.expect(run.record.warm, self.records.warm_token(run.record.warm), lambda: None)
        else:
            await self.records.create_job(job, run.name, run.namespace)
        return run.name, run.namespace, idle, self.records.place_of(run)

    def _label(self, run: PodExecution) -> None:
        """Label the warm pod of a run in the background, for users, and delete those of earlier runs."""
        task = asyncio.create_task(self._label_pod(run, run.job.owner))
        self._labeling.add(task)
        task.add_done_callback(self._labeling.discard)

    async def _label_pod(self, run: PodExecution, owner: ObjectRef) -> None:
        state = self._pods.state(run.place)
        if state is None:
            return
        resource = f"{type_name(owner.gvk)}/{owner.key.namespace}/{owner.key.name}"
        annotations = {jobs.RUN: f"{run.namespace}/{run.name}", jobs.RUN_OF: resource}
        meta = {"labels": {jobs.RUN_OF: owner.uid}, "annotations": annotations}
        key = ObjectKey(run.place.namespace, state.name)
        try:
            await self._client.patch(PODS, key, {"metadata": meta}, content_type=PatchType.MERGE)
        except (ApiError, ApiUnavailableError) as error:
            _log.warning("Cannot label the warm pod of a run", pod=state.name, run=run.name, error=str(error))
        try:
            for old in jobs.superfluous(self._pods.ended_warm(owner.uid)):
                await self.records.remove_job(ObjectKey(run.place.namespace, old))
        except (ApiError, ApiUnavailableError) as error:
            _log.warning("Cannot delete the warm pods of earlier runs", run=run.name, error=str(error))


def _open(job: Job, space: Space) -> Spool:
    """Open the received lines of a run, and remove the orders that a killed operator left. Raises OSError."""
    for left in job.run_dir.glob(f"{payload.ORDER}*"):
        shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
    spool = Spool(job.run_dir, job.ident, space)
    private_folder(job.run_dir / "env")
    atomic_file.write(job.run_dir / "env" / "envvars", "{}")  # by which folders of runs are found
    return spool


def _close(run: PodExecution) -> None:
    run.link.close()
    run.spool.close()
    if run.idle is not None:
        run.idle.close()


def _is_for(waiting: Waiting, generation: int, purpose: str) -> bool:
    job = waiting.run.job
    return (job.generation, job.purpose) == (generation, purpose)
