"""Execution of a run in a pod: the lines of its agent, and what becomes of its pod.

Each line is stored before it is applied, and applied once for each run folder. The execution ends with the agent's
report, when the pod cannot continue, or on request. A line that an earlier operator did not survive ends it too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.base.config import duration as durations
from runner.base.log import visible
from runner.core.engine import advice, pipeline
from runner.core.engine.events import Progress
from runner.core.engine.job import Event, Job, Outcome, RunResult
from runner.core.engine.output import JOB_OF_POD
from runner.engines.pod import jobs, states
from runner.engines.pod.connection import MalformedError, parse
from runner.engines.pod.idle import IdleLink
from runner.engines.pod.jobs import RecordedRun
from runner.engines.pod.links import AgentEnd, Link
from runner.engines.pod.records import PLAN, Records
from runner.engines.pod.spool import Frame, Spool
from runner.engines.pod.states import Fault, Obstacle, ObstacleTimer, Patience, PodState
from runner.engines.pod.stream import MalformedLineError, WorkerOutput
from runner.engines.pod.watching import PodWatch
from runner.values.objects import ObjectKey

_LOOK = 1.0
"""Seconds between two looks at the pod of a run."""
_WATCH_WITHIN = 2.0
"""Seconds within which the watch of pods reports why an agent was ended."""
STOP_WITHIN = 20.0
"""Seconds in which an agent ends its run when it is told to."""
_LARGE = 64 * 1024
"""Bytes of a line with a mark in the spool."""
_RECONNECT_WITHIN = 20.0
"""Seconds that a resumed run has at least: it may have ended in time, while no operator could receive its result."""


class _InterruptedError(Exception):
    """No further line is awaited: the pod cannot continue, or the run was killed."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run that waits for its pod without a worker. Its Secret and Job remain; nothing was executed."""

    run: PodExecution
    since: float
    had_pod: bool
    why: str
    renewed: float
    """When its Job was created, on the clock of the event loop."""


@dataclass(slots=True)
class PodObjects:
    """Parts of an engine that its executions share."""

    pods: PodWatch
    records: Records
    patience: Patience
    started: Callable[[float], None]
    """Receives the seconds from the creation of a run's objects to its first line."""
    preload_unused: Callable[[Job, str], None]
    """Receives why a run in a warm pod did not use the loaded Ansible."""


@dataclass(slots=True)
class PodExecution:
    """A run whose Secret and Job exist."""

    job: Job
    name: str
    namespace: str
    place: ObjectKey
    """Namespace and name of its Job."""
    shared: PodObjects
    spool: Spool
    order: Path
    """File with its order, until it is closed."""
    link: Link
    output: WorkerOutput
    idle: IdleLink | None
    """Link by which the agent of a warm pod obtains the run; None: the pod was started for the run."""
    ends_at: float | None
    """Deadline in seconds since the epoch; None is unlimited."""
    waited: Waiting | None
    """How the run has waited for its pod without a worker."""
    had_pod: bool
    """True if an earlier operator began the run, and Kubernetes created its pod."""
    begun: float
    """When its objects were created, on the monotonic clock."""
    report: AgentEnd | None = None
    """The agent's report of its end."""
    fault: Fault | None = None
    state: PodState | None = None
    """The last known state of its pod."""
    has_log: bool = False
    """True if its pod remains although the agent did not report its end."""
    _pending: deque[int] = field(default_factory=deque)
    """Numbers of the lines whose events are being masked."""

    @property
    def is_continued(self) -> bool:
        """True if Ansible may have started with an earlier operator."""
        return self.had_pod and self.waited is None

    @property
    def files(self) -> Mapping[str, str]:
        """The artifact that names the Job."""
        return {JOB_OF_POD: f"{self.place.namespace}/{self.place.name}"}

    @property
    def left(self) -> float | None:
        """Seconds until the operator ends the run."""
        if self.ends_at is None:
            return None
        left = self.ends_at - time.time()
        return max(left, _RECONNECT_WITHIN if self.is_continued else 0.0)

    @property
    def known(self) -> Iterator[Event]:
        """Apply the lines that an earlier operator has stored, one at a time; yield their events."""
        try:
            for line in self.spool.lines():
                if line.number == self.spool.marked:
                    self.fault = Fault(f"the operator ended while it read an event of {len(line.payload)} bytes")
                elif line.end:
                    self.report = parse(AgentEnd, line.payload)
                elif (event := self.output.line(line.payload)) is not None:
                    yield event
        except (MalformedError, MalformedLineError) as error:
            self.fault = _invalid(error)

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events until the agent reports its end, or the run cannot continue."""
        if self.fault is not None:
            return
        watching = asyncio.create_task(self._watch())
        try:
            while self.report is None:
                frame = await self._receive()
                if frame.end:
                    self.report = parse(AgentEnd, frame.payload)
                    if self.report.unused:
                        self.shared.preload_unused(self.job, self.report.unused)
                elif (event := self.output.line(frame.payload)) is None:
                    self.link.acknowledge(frame.number, "")
                else:
                    self._pending.append(frame.number)
                    yield {**event, "runner_ident": self.job.ident}
        except (MalformedError, MalformedLineError) as error:
            self.fault = _invalid(error)
        except OSError as error:
            self.fault = Fault(f"the files of the run cannot be read or written ({error})")
        except _InterruptedError:
            pass
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            with contextlib.suppress(OSError):  # the folder of the run may be gone
                self.spool.mark(0)

    async def _receive(self) -> Frame:
        """Return the next frame, which is stored. A large one has a mark until it is shown."""
        frame = await self.link.receive()
        if self.spool.marked and self.spool.marked not in self._pending:
            self.spool.mark(0)
        await asyncio.to_thread(self.spool.add, frame)
        if len(frame.payload) >= _LARGE:
            self.spool.mark(frame.number)
        if frame.number == 1:
            self.shared.started(time.monotonic() - self.begun)
        return frame

    def shown(self, event: Event) -> None:
        """Write the masked output of an event to the log of the pod, with visible control characters."""
        text = visible(str(event.get("stdout") or ""))
        self.link.acknowledge(self._pending.popleft(), f"{text}\n" if text else "")

    def stop(self) -> float:
        """Request the end of Ansible."""
        self.link.stop()
        return STOP_WITHIN if self.link.is_connected else 0.0

    async def kill(self) -> None:
        """Receive no further lines."""
        self.link.fail(_InterruptedError())

    async def ending(self, stopped: Outcome | None, progress: Progress) -> pipeline.Ending:
        """Return how the run ended. The token of one without a report is refused from now on."""
        state, report, fault = self.shared.pods.state(self.place), self.report, self.fault
        if fault is not None and fault.waits and stopped is None:
            self.link.close()
            return pipeline.Ending(
                canceled=f"The run waits for its pod: {fault.waits.rstrip('.')}.", waits=True, amend=self._amended
            )
        self.has_log = fault is not None and fault.has_log
        if report is None:
            self.link.fence()
        lost = fault.lost if fault else ""
        if report is not None and self.output.code is None and stopped is None:
            lost = await self._why_lost()  # Kubernetes ended the agent, unless Ansible failed to start
        if lost and self.ends_at is not None and time.time() >= self.ends_at:
            stopped = stopped or Outcome.TIMED_OUT  # Kubernetes ends a pod at its Job's deadline, without an operator
            lost = ""
        if lost:
            self.report = None
            return pipeline.Ending(
                canceled=f"The pod of the run was lost: {lost}.",
                amend=lambda result: replace(self._amended(result), lost=True),
                files={"status": "canceled", "rc": "1"},
            )
        waits = state.waits if state is not None else self.waited.why if self.waited is not None else ""
        if stopped is Outcome.TIMED_OUT and waits and not progress.events:
            within = durations.format(self.job.deadline or 0)
            stopped, fault = None, Fault(f"the pod of the run did not start within {within}: {waits}")
        code = self.output.code
        return pipeline.Ending(
            code=code,
            fault=fault.text if fault else self._failure(),
            stopped=stopped,
            amend=self._amended,
            files={"status": self.output.status or "error", "rc": str(1 if code is None else code)},
        )

    async def close(self) -> None:
        """Remove the order. The run continues in its pod if it has not ended."""
        with contextlib.suppress(OSError):  # the folder of the run may be gone; nothing reads the file any more
            await asyncio.to_thread(self.order.unlink, missing_ok=True)

    def _amended(self, result: RunResult) -> RunResult:
        if self.report is not None:
            result = advice.add_kills_in_pod(result, self.report.oom_kills, self.report.memory_limit)
        state = self.shared.pods.state(self.place) or self.state
        if state is None:
            return result
        return replace(result, pod=f"{self.place.namespace}/{state.name}" + (f" on {state.node}" if state.node else ""))

    def _failure(self) -> str:
        """Return the error of the agent or of ansible-runner in a run without a result, as the end of a sentence."""
        report, secrets = self.report, self.job.secrets
        if report is not None and report.error:
            return report.error
        if self.output.code is not None:
            return ""
        if report is None:
            return "the run ended without a result"
        if self.output.explanation:
            return f"ansible-runner failed ({secrets.withheld if secrets.is_exhausted else self.output.explanation})"
        last = secrets.withheld if secrets.is_exhausted else report.stderr.strip()[-500:]
        return f"ansible-runner ended with exit code {report.code}" + (f" ({last})" if last else "")

    async def _why_lost(self) -> str:
        """Return why a pod whose agent ended was lost, or an empty text. The agent can be faster than the watch."""
        until = time.monotonic() + _WATCH_WITHIN
        while True:
            state = self.shared.pods.state(self.place)
            if state is None and self.state is not None and self.shared.pods.is_known(self.place.namespace):
                return "it was deleted"
            if (state is not None and state.lost) or time.monotonic() >= until:
                return state.lost if state is not None else ""
            await asyncio.sleep(_LOOK / 10)

    async def _watch(self) -> None:
        """Interrupt the events when it is certain that the run cannot continue."""
        clock, waited, patience = asyncio.get_running_loop().time, self.waited, self.shared.patience
        known = self.is_continued or (waited is not None and waited.had_pod)
        since = waited.since if waited is not None else clock() - (time.monotonic() - self.begun)
        timer, without_node = ObstacleTimer(since, "waiting" if known else "absent"), ObstacleTimer(clock())
        while self.fault is None:
            await asyncio.sleep(_LOOK)
            if not self.shared.pods.is_known(self.place.namespace):
                continue
            state = self.shared.pods.state(self.place)
            known, self.state = known or state is not None, state or self.state
            self.fault = timer.fault(self._obstacle(state, known=known), clock())
            if self.fault is None and self._may_wait(state, known=known):
                refusal = await self.shared.records.refusal(self.place) if state is None else ""
                self.fault = without_node.fault(states.without_node(state, patience, refusal), clock())
        self.link.fail(_InterruptedError())

    def _obstacle(self, state: PodState | None, *, known: bool) -> Obstacle | None:
        """Return the reason why the run makes no progress; None if it does."""
        link, patience = self.link, self.shared.patience
        if self.idle is not None and not link.connects:
            seconds = patience.ended if state is None or state.ended else patience.assigned
            return Obstacle("unassigned", seconds, Fault(lost="the agent of its warm pod did not respond"))
        was_connected = bool(link.connects) or self.is_continued
        return states.obstacle(
            state, patience, known=known, is_connected=link.is_connected, was_connected=was_connected
        )

    def _may_wait(self, state: PodState | None, *, known: bool) -> bool:
        """Return True if nothing was executed yet, so that the run can wait without a worker."""
        began = self.link.connects or self.idle is not None or self.is_continued or (known and state is None)
        return not began and not self.job.keeps_worker


def _invalid(error: Exception) -> Fault:
    return Fault(f"the agent in the pod of the run sent invalid data ({error})")


def deadline_of(job: Job) -> float | None:
    """Return when a run that begins now, or that an earlier operator began, must end; seconds since the epoch."""
    if job.deadline is None:
        return None
    resumed = jobs.continued(job)
    return job.deadline + (time.time() if resumed is None else resumed.record.began)


def continues(run: RecordedRun, generation: int, purpose: str) -> bool:
    """Return True if a run that an earlier operator began is the next one of its object."""
    record = run.record
    return record.purpose == purpose and record.generation == generation and purpose != PLAN
