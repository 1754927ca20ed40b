"""Execution of a run in processes of the operator: a supervisor, and Ansible below it. See `supervision`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.agent import machine
from runner.agent.process_tree import STUCK_ERROR
from runner.base import log
from runner.base.config import shortages
from runner.core.engine import advice, wire
from runner.core.engine import run_dir as inputdir
from runner.core.engine.events import Progress
from runner.core.engine.job import Event, Job, Outcome, RunResult
from runner.core.engine.pipeline import Ending
from runner.core.engine.starter import Starter
from runner.core.engine.supervision import Supervision, signal_name

_ROOT = Path("/")
_STOP_WITHIN = 10.0
_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits and records that the runs of an engine share."""

    memory: int
    """Bytes that all processes of a run may use together; 0 is unlimited."""
    core: str
    """Version of ansible-core."""
    supervisors: set[int]
    """Pids of all supervisors."""


@dataclass(slots=True)
class ProcessExecution:
    """A started supervisor."""

    job: Job
    folder: inputdir.RunFolder
    starter: Starter
    limits: RunLimits
    supervision: Supervision
    kills: int
    """Processes of the container that the kernel had killed before."""
    files: Mapping[str, str] = field(default_factory=dict)
    known: tuple[Event, ...] = ()
    is_swept: bool = False

    @property
    def left(self) -> float | None:
        """Seconds that the run may take."""
        return self.job.deadline

    def events(self) -> AsyncIterator[Event]:
        """Yield the events until the supervisor has ended."""
        return self.supervision.events()

    def shown(self, event: Event) -> None:
        """Do nothing: the supervisor needs no answer."""

    def stop(self) -> float:
        """Request the end of the run."""
        self.supervision.request_stop()
        return _STOP_WITHIN

    async def kill(self) -> None:
        """Kill the supervisor and everything below it."""
        await self.supervision.kill()

    async def ending(self, stopped: Outcome | None, progress: Progress) -> Ending:  # noqa: ARG002 - see Execution
        """End the processes that the supervisor left; return how the run ended."""
        how = await self._sweep()
        ending = self.supervision.ending
        return Ending(
            code=ending.code if ending else None,
            signal=_signal(ending),
            fault=_fault(ending, how, self.limits.memory),
            stopped=stopped,
            amend=self._amended,
            files={"status": ending.status, "rc": str(ending.rc)} if ending and ending.status else {},
            source=self.folder.path / inputdir.TEMPORARY / wire.ARTIFACTS / self.job.ident,
        )

    async def close(self) -> None:
        """End the processes after an error of the operator, and remove what only the run used."""
        try:
            if not self.is_swept:
                await self.supervision.kill()
                await self._sweep()
        finally:
            try:
                await shortages.outlast(inputdir.clear, self.folder.path)
            except OSError as error:  # files that a role created as another user, for example; the result is valid
                _log.warning("Cannot remove files that a run left", job=self.job.ident, error=str(error))

    async def _sweep(self) -> str:
        self.is_swept = True
        how, gone = await self.supervision.sweep(self.limits.supervisors)
        self.limits.supervisors.discard(self.supervision.pid)
        if not gone:
            job = self.job
            _log.warning("Cannot end all processes of a run", job=job.ident, gvk=str(job.gvk), **job.key._asdict())
        ending = self.supervision.ending
        if ending and ending.learned:
            self.starter.learn(self.folder.environment, ending.learned, self.job.ident)
        return how

    def _amended(self, result: RunResult) -> RunResult:
        result = advice.add(result, self.limits.core)
        if self.job.inventory is not None:
            result = self.job.inventory.collect(result, self.folder.path / inputdir.TEMPORARY)
        if kills := machine.oom_kills(_ROOT) - self.kills:
            result = advice.add_kills(result, kills, machine.total_memory(_ROOT), self.limits.memory)
        return result


async def start(
    job: Job, folder: inputdir.RunFolder, identity: str, starter: Starter, limits: RunLimits
) -> ProcessExecution:
    """Start a run in a prepared folder. Raises OSError."""
    kills = machine.oom_kills(_ROOT)
    supervision = await Supervision.start(starter, folder, identity, limits.memory)
    _log.debug("Run's process started", job=job.ident)
    limits.supervisors.add(supervision.pid)
    return ProcessExecution(job, folder, starter, limits, supervision, kills)


def _signal(ending: wire.ChildEnd | None) -> str:
    """Return the signal that killed ansible-playbook, unless the supervisor ended it for lack of memory."""
    if ending is None or ending.memory or ending.stuck or not ending.signal:
        return ""
    return signal_name(ending.signal)


def _fault(ending: wire.ChildEnd | None, how: str, limit: int) -> str:
    """Return the problem that prevented or interrupted the run, as the end of a sentence; empty if there was none."""
    if ending is None:
        return f"the run's supervisor {how}"
    if ending.memory:
        return (
            f"the run was ended because its processes used {ending.memory >> 20} MiB of memory together, "
            f"more than --run-memory-limit allows ({limit >> 20} MiB),"
        )
    if ending.stuck:
        return STUCK_ERROR
    return f"ansible-runner failed ({ending.error})" if ending.error else ""
