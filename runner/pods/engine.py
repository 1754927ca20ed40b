"""Engine that runs each job in a pod of its own.

Order of a run: write the order, create the Secret that records the run, create the Job, receive the agent's lines, and
conclude. `recorded` ends the run after its outcome is in the status: only then the agent and the Secret go away. Until
then, a restarted operator, or the next holder of the shard, finds the Secret and continues the run.

Promises, beside those of `job.Engine`:

- An object has at most one run. Its name is that of the Secret, which the API server creates once.
- Each line of the agent is applied once for each run folder, and each run has one outcome.
- A run whose pod is lost is canceled, not failed; its token ends with the attempt, so that it writes nothing more.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner import log
from runner.config import duration as durations
from runner.engine import advice, artifacts, events, masked_files, redaction
from runner.engine.job import (
    SUPERSEDED,
    Event,
    EventSink,
    Job,
    Outcome,
    PodRun,
    RunRecord,
    RunResult,
    UnrecordedRun,
    canceled,
)
from runner.engine.retention import KeptRuns
from runner.errors import ApiError, ApiUnavailableError, ConflictError, EngineError, NotFoundError, RunDetachedError
from runner.kube.client import Client, PatchType
from runner.kube.discovery import ApiResource
from runner.objects import GVK, Object, ObjectKey, ObjectRef, metadata
from runner.pods import jobs, payload, states
from runner.pods.connection import MalformedError
from runner.pods.idle import IdleLink
from runner.pods.jobs import JOBS, PODS, SECRETS, Address
from runner.pods.links import Ending, Link, Links
from runner.pods.spool import Artifacts, Line, Spool
from runner.pods.states import Fault, Obstacle, ObstacleTimer, Patience, PodState
from runner.pods.stream import MalformedLineError, WorkerOutput, mark_of
from runner.pods.warm import WarmPods
from runner.pods.watching import PodWatch

_LOOK = 1.0
"""Seconds between two looks at the pod of a run."""
_WATCH_WITHIN = 2.0
"""Seconds within which the watch of pods reports why an agent was ended."""
_STOP_WITHIN = 20.0
"""Seconds in which an agent ends its run when it is told to."""
_RECONNECT_WITHIN = 20.0
"""Seconds that a resumed run has at least: it may have ended in time, while no operator could receive its result."""
_RESUMED = "withheld: the operator was restarted during this run, so that it may not know all secret values"
_log = log.get(__name__)


@dataclass(slots=True)
class _Run:
    """A run in progress."""

    job: Job
    name: str
    namespace: str
    spool: Spool
    artifacts: Artifacts
    link: Link
    stop: asyncio.Future[Outcome]
    ends_at: float | None
    """Deadline in seconds since the epoch; None is unlimited."""
    output: WorkerOutput
    place: ObjectKey
    """Namespace and name of its Job."""
    idle: IdleLink | None
    """Link by which the agent of a warm pod obtains the run; None: the pod was started for the run."""
    progress: events.Progress = field(default_factory=events.Progress)
    ending: Ending | None = None
    """The agent's report of its end."""
    state: PodState | None = None
    """The last known state of its pod."""
    has_log: bool = False
    """True if its pod remains although the agent did not report its end."""
    begun: float = field(default_factory=time.monotonic)
    pending: deque[int] = field(default_factory=deque)
    """Numbers of the lines whose events are being masked."""


class PodEngine:
    """Engine of the watches whose runs are in pods."""

    def __init__(
        self,
        client: Client,
        links: Links,
        pods: PodWatch,
        address: Callable[[], Address],
        namespace: str,
        kept: KeptRuns,
        started: Callable[[float], None],
    ) -> None:
        """`address` is that for new runs. `namespace` is that of Jobs for cluster-scoped resources.

        `started` receives the seconds from the creation of a run's objects to its first line.
        """
        self._client = client
        self._links = links
        self._pods = pods
        self._address = address
        self._namespace = namespace
        self._kept = kept
        self._started = started
        self._patience = Patience()
        self._unsettled: dict[str, _Run] = {}
        """Runs by ident, until their outcome is recorded."""
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
            "hit": sum(each.hits for each in pools),
            "miss": sum(each.misses for each in pools),
            "failed": sum(each.failures for each in pools),
            "unused": sum(each.unused for each in pools),
        }

    # Before a run.

    async def resume(self, owner: ObjectRef, generation: int, purpose: str) -> UnrecordedRun | None:
        """Return the run of the object that an earlier operator began; None if there is none to continue.

        Runs of another generation or purpose are ended: their tokens are unknown, so they write nothing more.
        """
        namespace = owner.key.namespace or self._namespace
        if not namespace:
            return None
        found = await self._recorded(namespace, owner.uid)
        going_on = next((each for each in found if _continues(each, generation, purpose)), None)
        for other in found:
            if other is not going_on:
                _log.info("Ending a run that an earlier operator began", run=other.name, **owner.key._asdict())
                await self._remove(other.name, other.namespace, self._place_of(other))
        return going_on

    def _place_of(self, run: UnrecordedRun) -> ObjectKey:
        """Return namespace and name of a run's Job."""
        warm = run.record.warm
        return ObjectKey(self._namespace, warm) if warm else ObjectKey(run.namespace, run.name)

    async def _recorded(self, namespace: str, uid: str) -> list[UnrecordedRun]:
        """Return the runs of an object whose outcome is not recorded, newest first."""
        items = await self._of_object(SECRETS, namespace, uid)
        found = [jobs.recorded(each, uid, _token(each), self._address().key) for each in items]
        return sorted(
            (each for each in found if each is not None), key=lambda each: jobs.run_number(each.name), reverse=True
        )

    async def _of_object(self, resource: ApiResource, namespace: str, uid: str) -> list[Object]:
        """Return the Secrets, Jobs or pods of an object's runs."""
        params = {"labelSelector": f"{jobs.RUN_OF}={uid}"}
        answer = await self._client.request("GET", resource.path(namespace), params=params)
        items: list[Object] = answer.get("items") or []
        return items

    # A run.

    async def run(self, job: Job, sink: EventSink) -> RunResult:
        """Run a job to its end.

        If the awaiting task is canceled with `SUPERSEDED`, the run ends first. If it is canceled otherwise, the run
        continues, and the next operator finds it.

        Raises:
            RunDetachedError: the operator stops; the run continues in its pod.
            ConflictError: another operator has begun a run of the object.
        """
        if self._closed or job.pod is None:
            raise RunDetachedError("the operator is shutting down; the run was not started")
        task = asyncio.create_task(self._whole(job, job.pod, sink))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise RunDetachedError("the operator is shutting down; the run continues in its pod") from error
            run = self._unsettled.get(job.ident)
            if SUPERSEDED in error.args and run is not None:
                _ask(run, Outcome.CANCELED)
                await asyncio.wait({task})
                await self.recorded(job)
            else:
                task.cancel()
                await asyncio.wait({task})
                self._let_go(job)
            raise

    async def recorded(self, job: Job) -> None:
        """End what remains of a run whose outcome is recorded. Calling it twice does no harm."""
        run = self._unsettled.pop(job.ident, None)
        if run is None:
            return
        try:
            if run.ending is None:
                run.link.fence()
                if run.has_log:
                    await self._forget(run.name, run.namespace)
                else:
                    await self._remove(run.name, run.namespace, run.place)
            else:
                # First the record: without it, no operator continues a run that has been reported.
                await self._forget(run.name, run.namespace)
                if not await run.link.recorded(_STOP_WITHIN):
                    _log.info("The agent of a run does not respond; deleting its Job", run=run.name)
                    await self._remove(run.name, run.namespace, run.place)
        finally:
            _close(run)
        await asyncio.to_thread(run.spool.remove)

    async def forget(self, run_dir: Path) -> None:
        """Remove the run folder of a deleted object."""
        await asyncio.to_thread(self._kept.remove, run_dir)

    async def close(self, grace: float) -> None:  # noqa: ARG002 - runs in pods need no time: they go on
        """Leave the runs in their pods to the next operator. No run starts afterwards."""
        self._closed = True
        tasks: set[asyncio.Task[Any]] = {*self._tasks, *self._labeling}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _let_go(self, job: Job) -> None:
        run = self._unsettled.pop(job.ident, None)
        if run is not None:
            _close(run)

    async def _whole(self, job: Job, pod: PodRun, sink: EventSink) -> RunResult:
        began = time.monotonic()
        await asyncio.to_thread(self._kept.begin, job.run_dir)
        try:
            try:
                run = await self._begin(job, pod)
            except EngineError as error:
                return _not_started(str(error), time.monotonic() - began)
            result = await self._follow(run, sink, began)
            masked = await redaction.result(result, job.secrets)
            return replace(masked, pod=self._place(run))
        finally:
            await asyncio.to_thread(self._leave, job)

    def _place(self, run: _Run) -> str:
        state = self._pods.state(run.place) or run.state
        if state is None:
            return ""
        return f"{run.place.namespace}/{state.name}" + (f" on {state.node}" if state.node else "")

    def _leave(self, job: Job) -> None:
        _order(job).unlink(missing_ok=True)
        folder = job.run_dir / "artifacts"
        if job.pod is None or job.pod.resumed is None:  # otherwise the events are withheld
            # Values that became known after an event was written.
            masked_files.mask(folder / job.ident, job.run_dir / "env", job.secrets)
        if folder.is_dir():
            artifacts.rotate(folder, job.max_artifacts)
        self._kept.end(job.run_dir, job.max_artifacts)

    async def _begin(self, job: Job, pod: PodRun) -> _Run:
        """Create the objects of a run as far as they are missing, and accept its agent."""
        namespace = pod.owner.key.namespace or self._namespace
        if not namespace:
            raise EngineError("a cluster-scoped resource needs --leader-election-namespace, where its pods run")
        spool = await asyncio.to_thread(Spool, job.run_dir, job.ident)
        order = _order(job)
        await asyncio.to_thread(payload.write, job, pod.token, order, os.environ, Path.cwd())
        name, idle, place = self._resumed(pod.resumed) if pod.resumed else await self._new(job, pod, namespace)
        loop = asyncio.get_running_loop()
        kept = await asyncio.to_thread(Artifacts, job.run_dir, job.ident, f"{place.namespace}/{place.name}")
        known = await asyncio.to_thread(lambda: list(spool.lines()))
        applied = known[-1].number if known else 0
        self._let_go(job)  # if its outcome could not be recorded
        link = self._links.open(name, pod.token, order, applied)
        output, stop = WorkerOutput(mark_of(pod.token)), loop.create_future()
        made = _Run(job, name, namespace, spool, kept, link, stop, _deadline(job), output, place, idle)
        run = self._unsettled[job.ident] = made
        if pod.resumed is not None:
            self.resumed_runs += 1
            job.secrets.exhaust(_RESUMED)
            _log.info("Continuing a run that an earlier operator began", run=name, lines=applied, job=job.ident)
        else:
            self.begun_runs += 1
        for line in known:
            _apply_known(run, line)
        if idle is None:
            await self._create_job(run, pod)
        else:
            idle.assign(name, pod.token)
            self._label(run, pod)
        return run

    async def _new(self, job: Job, pod: PodRun, namespace: str) -> tuple[str, IdleLink | None, ObjectKey]:
        """Create the Secret of a new run; return the run's name, its idle agent if one is ready, and its Job's key."""
        warm = self.warm.get(job.gvk)
        taken = warm.take() if warm is not None else None
        if warm is None or taken is None:
            name = await self._record(job, pod, namespace)
            return name, None, ObjectKey(namespace, name)
        try:
            name = await self._record(job, pod, namespace, taken.name)
        except BaseException:
            warm.give_back(taken)
            raise
        return name, taken.link, ObjectKey(self._namespace, taken.name)

    def _resumed(self, run: UnrecordedRun) -> tuple[str, IdleLink | None, ObjectKey]:
        """Return the same for a run that an earlier operator began. It may have ended before its agent got the run."""
        warm, idle = run.record.warm, None
        if warm:
            idle = self._links.expect(warm, jobs.warm_token(self._address(), warm), lambda: None)
        return run.name, idle, self._place_of(run)

    def _label(self, run: _Run, pod: PodRun) -> None:
        """Label the warm pod of a run in the background, for users, and delete those of earlier runs."""
        task = asyncio.create_task(self._label_pod(run, pod.owner.uid))
        self._labeling.add(task)
        task.add_done_callback(self._labeling.discard)

    async def _label_pod(self, run: _Run, uid: str) -> None:
        state = self._pods.state(run.place)
        if state is None:
            return
        meta = {"labels": {jobs.RUN_OF: uid}, "annotations": {jobs.RUN: f"{run.namespace}/{run.name}"}}
        key = ObjectKey(run.place.namespace, state.name)
        try:
            await self._client.patch(PODS, key, {"metadata": meta}, content_type=PatchType.MERGE)
        except (ApiError, ApiUnavailableError) as error:
            _log.warning("Cannot label the warm pod of a run", pod=state.name, run=run.name, error=str(error))
        try:
            for old in jobs.superfluous_warm(self._pods.ended_warm(uid)):
                await self._delete(JOBS, ObjectKey(run.place.namespace, old))
        except (ApiError, ApiUnavailableError) as error:
            _log.warning("Cannot delete the warm pods of earlier runs", run=run.name, error=str(error))

    async def _record(self, job: Job, pod: PodRun, namespace: str, warm: str = "") -> str:
        """Create the Secret of a new run; return the run's name."""
        try:
            # A pod can outlive its Job, for minutes on a lost node. Another run with its name would get its state.
            existing, pods = await asyncio.gather(
                *(self._of_object(each, namespace, pod.owner.uid) for each in (JOBS, PODS))
            )
            names = [str(metadata(each).get("name", "")) for each in existing]
            for old in jobs.superfluous(names):
                await self._delete(JOBS, ObjectKey(namespace, old))
            names += [str((metadata(each).get("labels") or {}).get(jobs.RUN, "")) for each in pods]
            name = jobs.run_name(pod.owner.uid, jobs.next_number(names))
            record = RunRecord(job.ident, pod.generation, pod.purpose, time.time(), warm)
            body = jobs.secret(pod, record, name, namespace, self._address())
            await self._client.create(SECRETS, namespace, body)
        except (ConflictError, ApiUnavailableError):
            raise
        except ApiError as error:
            raise EngineError(f"the pod of the run cannot be prepared in namespace {namespace}: {error}") from error
        return name

    async def _create_job(self, run: _Run, pod: PodRun) -> None:
        body = jobs.job(pod, run.name, run.namespace, run.job.deadline)
        try:
            await self._client.create(JOBS, run.namespace, body)
        except ConflictError:
            return  # the run goes on
        except ApiUnavailableError:
            self._let_go(run.job)
            raise
        except ApiError as error:
            await self.recorded(run.job)
            raise EngineError(f"the Job of the run cannot be created: {error}") from error

    async def _follow(self, run: _Run, sink: EventSink, began: float) -> RunResult:
        """Receive the run's lines until it ends, its pod fails, or it is to stop."""
        loop = asyncio.get_running_loop()
        left = _left(run)
        timer = loop.call_later(left, _ask, run, Outcome.TIMED_OUT) if left is not None else None
        reading = asyncio.create_task(self._read(run, sink))
        looking = asyncio.create_task(self._watch(run))
        ending: set[asyncio.Future[Any]] = {reading, looking, run.stop}
        fault: Fault | None = None
        try:
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
            if run.stop.done() and not reading.done():
                run.link.stop()
                await asyncio.wait({reading}, timeout=_STOP_WITHIN if run.link.is_connected else 0)
            if looking.done() and not reading.done():
                fault = looking.result()
                run.has_log = fault.has_log
        finally:
            if timer:
                timer.cancel()
            for task in (reading, looking):
                task.cancel()
            await asyncio.gather(reading, looking, return_exceptions=True)
        if reading.done() and not reading.cancelled() and (error := reading.exception()) is not None:
            fault = _unreadable(error)
        return await self._conclude(run, fault, time.monotonic() - began)

    async def _conclude(self, run: _Run, fault: Fault | None, seconds: float) -> RunResult:
        state = self._pods.state(run.place)
        ending = run.ending
        if ending is None:
            run.link.fence()
        lost = fault.lost if fault else ""
        if ending is not None and run.output.code is None and not run.stop.done():
            lost = await self._why_lost(run)  # Kubernetes ended the agent, unless Ansible failed to start
        if lost and run.ends_at is not None and time.time() >= run.ends_at:
            _ask(run, Outcome.TIMED_OUT)  # Kubernetes ends a pod that its Job's deadline exceeds, without an operator
            lost = ""
        if lost:
            run.ending = None
            await asyncio.to_thread(run.artifacts.end, "canceled", None)
            return canceled(f"The pod of the run was lost: {lost}. The run is repeated.", seconds)
        stopped = run.stop.result() if run.stop.done() else None
        if stopped is Outcome.TIMED_OUT and state is not None and state.waits and not run.progress.events:
            within = durations.format(run.job.deadline or 0)
            stopped, fault = None, Fault(f"the pod of the run did not start within {within}: {state.waits}")
        end = events.End(
            stopped=stopped,
            deadline=run.job.deadline,
            code=run.output.code,
            signal="",
            fault=fault.text if fault else _fault(run),
            duration=seconds,
        )
        result = events.conclude(run.progress, end)
        if ending is not None:
            result = advice.add_kills_in_pod(result, ending.oom_kills, ending.memory_limit)
        status = run.output.status or "error"
        await asyncio.to_thread(run.artifacts.end, status, run.output.code)
        return result

    async def _why_lost(self, run: _Run) -> str:
        """Return why a pod whose agent ended was lost, or an empty text. The agent can be faster than the watch."""
        until = time.monotonic() + _WATCH_WITHIN
        while True:
            state = self._pods.state(run.place)
            if state is None and run.state is not None:
                return "it was deleted"
            if (state is not None and state.lost) or time.monotonic() >= until:
                return state.lost if state is not None else ""
            await asyncio.sleep(_LOOK / 10)

    async def _read(self, run: _Run, sink: EventSink) -> None:
        if run.ending is not None:
            return
        async for event in redaction.events(self._lines(run), run.job.secrets):
            run.progress = events.fold(run.progress, event)
            await asyncio.to_thread(run.artifacts.add, event)
            sink(event)
            text = str(event.get("stdout") or "")
            run.link.acknowledge(run.pending.popleft(), f"{text}\n" if text else "")

    async def _lines(self, run: _Run) -> AsyncIterator[Event]:
        while True:
            frame = await run.link.receive()
            line = Line(frame.number, frame.payload, frame.end)
            await asyncio.to_thread(run.spool.add, line)
            if frame.number == 1:
                self._started(time.monotonic() - run.begun)
            if frame.end:
                run.ending = Ending.parse(frame.payload)
                if run.ending.unused and run.job.gvk in self.warm:
                    self.warm[run.job.gvk].preload_unused(run.ending.unused)
                return
            event = run.output.line(frame.payload)
            if event is None:
                run.link.acknowledge(frame.number, "")
            else:
                run.pending.append(frame.number)
                yield {**event, "runner_ident": run.job.ident}

    async def _watch(self, run: _Run) -> Fault:
        """Wait until it is certain that the run cannot continue; return the reason."""
        clock = asyncio.get_running_loop().time
        timer, known = ObstacleTimer(clock()), _resumed(run.job) is not None
        while True:
            await asyncio.sleep(_LOOK)
            if not self._pods.is_synced:
                continue
            state = self._pods.state(run.place)
            known, run.state = known or state is not None, state or run.state
            fault = timer.fault(_obstacle(run, state, self._patience, known=known), clock())
            if fault is not None:
                return fault

    # After a run.

    async def _remove(self, name: str, namespace: str, place: ObjectKey) -> None:
        """Delete a run's Job with its pod, and its Secret."""
        await self._delete(JOBS, place)
        await self._forget(name, namespace)

    async def _forget(self, name: str, namespace: str) -> None:
        await self._delete(SECRETS, ObjectKey(namespace, name))

    async def _delete(self, resource: ApiResource, key: ObjectKey) -> None:
        try:
            await self._client.delete(resource, key)
        except NotFoundError:
            return


def _obstacle(run: _Run, state: PodState | None, wait: Patience, *, known: bool) -> Obstacle | None:
    """Return the reason why a run makes no progress; None if it does."""
    link = run.link
    if run.idle is not None and not link.connects:
        patience = wait.ended if state is None or state.ended else wait.assigned
        return Obstacle("unassigned", patience, Fault(lost="the agent of its warm pod did not respond"))
    was_connected = bool(link.connects) or _resumed(run.job) is not None
    return states.obstacle(state, wait, known=known, is_connected=link.is_connected, was_connected=was_connected)


def _close(run: _Run) -> None:
    run.link.close()
    if run.idle is not None:
        run.idle.close()


def _unreadable(error: BaseException) -> Fault:
    """Return the fault for an error of reading a run's lines; raise other errors."""
    if isinstance(error, (MalformedError, MalformedLineError)):
        return Fault(f"the agent in the pod of the run sent invalid data ({error})")
    if isinstance(error, OSError):
        return Fault(f"the files of the run cannot be read or written ({error})")
    raise error


def _order(job: Job) -> Path:
    return job.run_dir / f".order-{job.ident}"


def _ask(run: _Run, reason: Outcome) -> None:
    """Ask for the end of a run; the first reason counts."""
    if not run.stop.done():
        run.stop.set_result(reason)


def _resumed(job: Job) -> UnrecordedRun | None:
    return job.pod.resumed if job.pod is not None else None


def _deadline(job: Job) -> float | None:
    """Return when a run that begins now, or that an earlier operator began, must end; seconds since the epoch."""
    if job.deadline is None:
        return None
    resumed = _resumed(job)
    return job.deadline + (time.time() if resumed is None else resumed.record.began)


def _left(run: _Run) -> float | None:
    """Return the seconds until the operator ends a run."""
    if run.ends_at is None:
        return None
    left = run.ends_at - time.time()
    return left if _resumed(run.job) is None else max(left, _RECONNECT_WITHIN)


def _continues(found: UnrecordedRun, generation: int, purpose: str) -> bool:
    record = found.record
    return record.purpose == purpose and record.generation == generation and purpose != "plan"


def _token(obj: Object) -> str:
    try:
        return base64.b64decode((obj.get("data") or {}).get("token", ""), validate=True).decode()
    except ValueError:
        return ""


def _apply_known(run: _Run, line: Line) -> None:
    """Apply a line that an earlier operator has applied: it is in the log already."""
    if line.is_last:
        run.ending = Ending.parse(line.content)
        return
    event = run.output.line(line.content)
    if event is not None:
        run.progress = events.fold(run.progress, event)


def _fault(run: _Run) -> str:
    """Return the error of the agent or of ansible-runner in a run without a result, as the end of a sentence."""
    if run.output.code is not None:
        return ""
    ending = run.ending
    if ending is None:
        return "the run ended without a result"
    if ending.error:
        return ending.error
    if run.output.explanation:
        return f"ansible-runner failed ({run.output.explanation})"
    last = ending.stderr.strip()[-500:]
    return f"ansible-runner ended with exit code {ending.code}" + (f" ({last})" if last else "")


def _not_started(message: str, seconds: float) -> RunResult:
    return RunResult(Outcome.NOT_STARTED, None, (), message, None, seconds)
