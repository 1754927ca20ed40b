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
    RunResult,
    UnrecordedRun,
    canceled,
)
from runner.engine.retention import KeptRuns
from runner.errors import ApiError, ApiUnavailableError, EngineError, PodWaitsError, RunDetachedError
from runner.kube.client import Client, PatchType
from runner.objects import GVK, ObjectKey, ObjectRef
from runner.pods import jobs, payload, states
from runner.pods.connection import MalformedError
from runner.pods.idle import IdleLink
from runner.pods.jobs import PODS, Address
from runner.pods.links import Ending, Link, Links
from runner.pods.records import PLAN, Records
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
    waited: _Waiting | None = None
    """How the run has waited for its pod without a worker."""

    @property
    def is_continued(self) -> bool:
        """True if an earlier operator began the run, so that Ansible may have started."""
        return _resumed(self.job) is not None and self.waited is None


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A run that waits for its pod without a worker. Its Secret and Job remain; nothing was executed."""

    name: str
    namespace: str
    place: ObjectKey
    job: Job
    since: float
    ends_at: float | None
    had_pod: bool
    why: str


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
        self._records = Records(client, address, namespace)
        self._kept = kept
        self._started = started
        self._patience = Patience()
        self._unsettled: dict[str, _Run] = {}
        """Runs by ident, until their outcome is recorded."""
        self._waiting: dict[str, _Waiting] = {}
        """Runs that wait for their pod without a worker, by the UID of their resource."""
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
        waiting = self._waiting.get(owner.uid)
        if waiting is not None and _is_for(waiting, generation, purpose) and self._has_no_node(waiting):
            raise PodWaitsError(waiting.why)
        found = await self._records.of_owner(owner, purpose)
        going_on = next((each for each in found if _continues(each, generation, purpose)), None)
        for other in found:
            if other is not going_on:
                _log.info("Ending an unfinished run of the object", run=other.name, **owner.key._asdict())
                await self._records.remove(other.name, other.namespace, self._records.place_of(other))
        if going_on is None or (waiting is not None and waiting.name != going_on.name):
            self._waiting.pop(owner.uid, None)
        return going_on

    def _has_no_node(self, waiting: _Waiting) -> bool:
        """Return True while a run has to wait for its pod, and its time is not over."""
        state = self._pods.state(waiting.place)
        if state is None and waiting.had_pod:
            return False
        is_over = waiting.ends_at is not None and time.time() >= waiting.ends_at
        lasted = asyncio.get_running_loop().time() - waiting.since
        no_node = states.without_node(state, self._patience, waiting.why)
        return no_node is not None and not is_over and lasted < self._patience.start

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
                    await self._records.forget(run.name, run.namespace)
                else:
                    await self._records.remove(run.name, run.namespace, run.place)
            else:
                # First the record: without it, no operator continues a run that has been reported.
                await self._records.forget(run.name, run.namespace)
                if not await run.link.recorded(_STOP_WITHIN):
                    _log.info("The agent of a run does not respond; deleting its Job", run=run.name)
                    await self._records.remove(run.name, run.namespace, run.place)
        finally:
            _close(run)
        await asyncio.to_thread(run.spool.remove)

    async def forget(self, run_dir: Path) -> None:
        """Remove the run folder of a deleted object, and what remains of its runs."""
        for run in [each for each in self._unsettled.values() if each.job.run_dir == run_dir]:
            await self.recorded(run.job)
        for uid, waiting in list(self._waiting.items()):
            if waiting.job.run_dir == run_dir:
                del self._waiting[uid]
                await self._records.remove(waiting.name, waiting.namespace, waiting.place)
        await asyncio.to_thread(self._kept.remove, run_dir)

    async def sweep(self, gvk: GVK, is_gone: Callable[[ObjectKey, str], bool]) -> None:
        """End the unrecorded runs of objects that are gone, as far as Kubernetes does not."""
        await self._records.sweep(gvk, is_gone)

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
        spool = await asyncio.to_thread(Spool, job.run_dir, job.ident)
        order = _order(job)
        await asyncio.to_thread(payload.write, job, pod.token, order, os.environ, Path.cwd())
        name, namespace, idle, place = await (self._resumed(job, pod) if pod.resumed else self._new(job, pod))
        loop = asyncio.get_running_loop()
        kept = await asyncio.to_thread(Artifacts, job.run_dir, job.ident, f"{place.namespace}/{place.name}")
        known = await asyncio.to_thread(lambda: list(spool.lines()))
        applied = known[-1].number if known else 0
        self._let_go(job)  # if its outcome could not be recorded
        link = self._links.open(name, pod.token, order, applied)
        output, stop = WorkerOutput(mark_of(pod.token)), loop.create_future()
        run = _Run(job, name, namespace, spool, kept, link, stop, _deadline(job), output, place, idle)
        self._unsettled[job.ident] = run
        run.waited = self._waiting.pop(pod.owner.uid, None)
        if run.is_continued:
            self.resumed_runs += 1
            job.secrets.exhaust(_RESUMED)
            _log.info("Continuing a run that an earlier operator began", run=name, lines=applied, job=job.ident)
        elif pod.resumed is None:
            self.begun_runs += 1
        for line in known:
            _apply_known(run, line)
        if idle is not None:
            idle.assign(name, pod.token)
            self._label(run, pod)
        return run

    async def _new(self, job: Job, pod: PodRun) -> tuple[str, str, IdleLink | None, ObjectKey]:
        """Create the objects of a new run.

        Returns the run's name and namespace, its idle agent if one is ready, and its Job's key.
        """
        warm = self.warm.get(job.gvk)
        taken = warm.take() if warm is not None else None
        if warm is None or taken is None:
            name, namespace = await self._records.create(job, pod)
            return name, namespace, None, ObjectKey(namespace, name)
        try:
            name, namespace = await self._records.create(job, pod, taken.name)
        except BaseException:
            warm.give_back(taken)
            raise
        return name, namespace, taken.link, ObjectKey(self._records.namespace, taken.name)

    async def _resumed(self, job: Job, pod: PodRun) -> tuple[str, str, IdleLink | None, ObjectKey]:
        """Return the same for a run that an earlier operator began. It may have ended before its agent got the run."""
        run, idle = pod.resumed, None
        assert run is not None  # noqa: S101 - the caller checks it, for the types
        if run.record.warm:
            idle = self._links.expect(run.record.warm, jobs.warm_token(self._address(), run.record.warm), lambda: None)
        else:
            await self._records.create_job(job, pod, run.name, run.namespace)
        return run.name, run.namespace, idle, self._records.place_of(run)

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
            old = jobs.superfluous_warm(self._pods.ended_warm(uid))
            await self._records.delete_jobs(run.place.namespace, [*old])
        except (ApiError, ApiUnavailableError) as error:
            _log.warning("Cannot delete the warm pods of earlier runs", run=run.name, error=str(error))

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
        if fault is not None and fault.waits and not run.stop.done():
            return self._wait(run, fault.waits, state, seconds)
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
        waits = state.waits if state is not None else run.waited.why if run.waited is not None else ""
        if stopped is Outcome.TIMED_OUT and waits and not run.progress.events:
            within = durations.format(run.job.deadline or 0)
            stopped, fault = None, Fault(f"the pod of the run did not start within {within}: {waits}")
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

    def _wait(self, run: _Run, why: str, state: PodState | None, seconds: float) -> RunResult:
        """Let a run wait for its pod without a worker.

        Another attempt continues it. Plans begin anew. So do runs beyond `maxPods`, whose pods could start at once.
        """
        job, pod = run.job, run.job.pod
        assert pod is not None  # noqa: S101 - runs in pods have it, for the types
        now = asyncio.get_running_loop().time()
        since = run.waited.since if run.waited is not None else now - seconds
        others = (each for each in self._waiting.values() if each.job.gvk == job.gvk)
        is_full = sum(now - each.since < self._patience.start for each in others) >= pod.policy.most
        if pod.purpose != PLAN and not is_full and not run.link.connects:
            self._waiting[pod.owner.uid] = _Waiting(
                run.name, run.namespace, run.place, job, since, run.ends_at, state is not None, why
            )
            self._let_go(job)
        return canceled(f"The run waits for its pod: {why}.", seconds, waits=True)

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
        waited = run.waited
        known = run.is_continued or (waited is not None and waited.had_pod)
        timer = ObstacleTimer(clock())
        if waited is not None:
            timer = ObstacleTimer(waited.since, "waiting" if waited.had_pod else "absent")
        without_node = ObstacleTimer(clock())
        while True:
            await asyncio.sleep(_LOOK)
            if not self._pods.is_synced:
                continue
            state = self._pods.state(run.place)
            known, run.state = known or state is not None, state or run.state
            fault = timer.fault(_obstacle(run, state, self._patience, known=known), clock())
            if fault is None and _may_wait(run, state, known=known):
                refusal = await self._records.refusal(run.place) if state is None else ""
                fault = without_node.fault(states.without_node(state, self._patience, refusal), clock())
            if fault is not None:
                return fault


def _obstacle(run: _Run, state: PodState | None, wait: Patience, *, known: bool) -> Obstacle | None:
    """Return the reason why a run makes no progress; None if it does."""
    link = run.link
    if run.idle is not None and not link.connects:
        patience = wait.ended if state is None or state.ended else wait.assigned
        return Obstacle("unassigned", patience, Fault(lost="the agent of its warm pod did not respond"))
    was_connected = bool(link.connects) or run.is_continued
    return states.obstacle(state, wait, known=known, is_connected=link.is_connected, was_connected=was_connected)


def _may_wait(run: _Run, state: PodState | None, *, known: bool) -> bool:
    """Return True if nothing was executed yet, so that the run can wait without a worker."""
    began = run.link.connects or run.idle is not None or run.is_continued or (known and state is None)
    return not began and run.job.pod is not None and not run.job.pod.keeps_worker


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
    return max(left, _RECONNECT_WITHIN) if run.is_continued else left


def _continues(found: UnrecordedRun, generation: int, purpose: str) -> bool:
    record = found.record
    return record.purpose == purpose and record.generation == generation and purpose != PLAN


def _is_for(waiting: _Waiting, generation: int, purpose: str) -> bool:
    pod = waiting.job.pod
    return pod is not None and (pod.generation, pod.purpose) == (generation, purpose)


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
    ending = run.ending
    if ending is not None and ending.error:
        return ending.error
    if run.output.code is not None:
        return ""
    if ending is None:
        return "the run ended without a result"
    if run.output.explanation:
        return f"ansible-runner failed ({run.output.explanation})"
    last = ending.stderr.strip()[-500:]
    return f"ansible-runner ended with exit code {ending.code}" + (f" ({last})" if last else "")


def _not_started(message: str, seconds: float) -> RunResult:
    return RunResult(Outcome.NOT_STARTED, None, (), message, None, seconds)
