"""Engine that runs jobs, each in its own processes. Warm and cold runs differ only in how their process starts.

Promises what `job.Engine` promises. Each run has a supervisor (`child.py`) that leads its own session; see
`docs/decisions/0004-run-processes.md` for the order in which processes end, and for the cleanup.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from runner import log
from runner.config import machine, shortages
from runner.config.settings import EngineName
from runner.engine import advice, events, executions, processes, redaction
from runner.engine import run_dir as inputdir
from runner.engine.engines import EngineSettings, Starters
from runner.engine.execution_log import ExecutionLog
from runner.engine.job import EventSink, Job, Outcome, RunResult, canceled
from runner.engine.retention import KeptRuns
from runner.engine.supervision import Supervision, bury, signal_name
from runner.engine.warm.server import scratch
from runner.engine.wire import Ending
from runner.errors import EngineError
from runner.objects import GVK, ObjectKey, ObjectRef
from runner.watches.watch import Content

_ROOT = Path("/")
_STOP_WITHIN = 10.0
_LEFTOVER_GRACE = 2.0
_LEFTOVER_KILL = 10.0


class _Stop:
    """A request to end a run, with its reason; the first request counts."""

    def __init__(self) -> None:
        self.wish: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def ask(self, reason: Outcome) -> None:
        if not self.wish.done():
            self.wish.set_result(reason)

    @property
    def reason(self) -> Outcome | None:
        return self.wish.result() if self.wish.done() else None


@dataclass(frozen=True, slots=True)
class _Run:
    task: asyncio.Task[RunResult]
    stop: _Stop


class RunEngine:
    """Engine for the run folders below one root. Create it in the main thread."""

    def __init__(self, root: Path, settings: EngineSettings) -> None:
        self._root = root
        self._starters = Starters(root, settings, self._bury)
        self._memory_limit = settings.memory_limit
        self._core = version("ansible-core")
        self.kept = KeptRuns(root, settings.disk_limit)
        """The run folders."""
        self._log = log.get(__name__)
        self._executions = ExecutionLog()
        self._runs: set[_Run] = set()
        self._supervisors: set[int] = set()
        self._closed = False
        self._expecting: set[asyncio.Task[None]] = set()
        self._burying: asyncio.Task[None] | None = None
        processes.adopt_orphans()

    def is_warm(self, engine: EngineName | None) -> bool:
        """Return True if runs with this engine are forked; None is the default engine."""
        return self._starters.is_warm(engine)

    def expect(self, contents: Iterable[Content], environment: Mapping[str, str]) -> None:
        """Start to preload modules for warm runs of these roles and playbooks. Runs do not wait for it."""
        self._expect_end(self._expect(tuple(contents), environment))

    def _expect_end(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._expecting.add(task)
        task.add_done_callback(self._expecting.discard)

    def _bury(self) -> None:
        """Reap the processes that an ended fork server may have left, for some time."""
        if self._closed:
            return
        if self._burying:
            self._burying.cancel()  # the time starts again
        self._burying = asyncio.create_task(bury(self._supervisors))

    async def settle(self) -> None:
        """Wait until the requested modules and those that earlier runs used are preloaded."""
        if self._expecting:
            await asyncio.wait(self._expecting)
        await self._starters.settle()

    async def _expect(self, contents: tuple[Content, ...], environment: Mapping[str, str]) -> None:
        shared = inputdir.shared_environment(os.environ, environment)
        await self._starters.expect(contents, shared)

    async def run(self, job: Job, sink: EventSink) -> RunResult:
        """Run a job to its end. If the awaiting task is canceled, every process of the run ends first.

        An exception of `sink` ends the run and is raised here.
        """
        if self._closed:
            return canceled("the operator is shutting down; the run was not started", 0.0)
        stop = _Stop()
        run = _Run(asyncio.create_task(self._run(job, sink, stop)), stop)
        self._runs.add(run)
        try:
            return _ended(await asyncio.shield(run.task), closed=self._closed)
        except asyncio.CancelledError:
            stop.ask(Outcome.CANCELED)
            await _wait_through_cancellation(run.task)
            raise
        finally:
            self._runs.discard(run)

    async def close(self, grace: float) -> None:
        """Wait up to `grace` seconds for runs to end, then end them. No run starts afterwards."""
        self._closed = True
        tasks = {run.task for run in self._runs}
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for run in self._runs:
            run.stop.ask(Outcome.CANCELED)
        if tasks:
            await asyncio.wait(tasks)
        others = [*self._expecting, *([self._burying] if self._burying else [])]
        for task in others:
            task.cancel()
        self.kept.close()
        await asyncio.gather(*others, return_exceptions=True)
        await self._starters.close()

    def check(self, engine: EngineName | None, source: str) -> None:
        """Check that an engine is available; `source` names the setting that requires it.

        Raises:
            ConfigError: the engine is not available.
        """
        self._starters.check(engine, source)

    @property
    def started_runs(self) -> dict[str, int]:
        """Number of runs that were forked (`warm`) and that started a new interpreter (`exec`)."""
        return self._starters.started_runs

    @property
    def problem(self) -> str | None:
        """The reason why runs are not warm although they should be; None if they are."""
        return self._starters.problem

    def unmet(self) -> str | None:
        """Return why runs do not get the engine that a user required (`auto` requires none); None if they get it."""
        return self._starters.unmet()

    def shortfalls(self) -> dict[str, str]:
        """Return the findings of the fork servers' self-tests, by the shortcut's name."""
        return self._starters.shortfalls()

    @property
    def servers(self) -> list[int]:
        """Pids of the fork servers that are ready."""
        return self._starters.servers

    async def reap_leftovers(self) -> int:
        """End the processes that a dead operator's runs on the same root left. Return their number.

        The files of its runs are measured afterwards, in the background.
        """
        ended = await asyncio.to_thread(_end_leftovers, self._root)
        self._expect_end(self._survey())
        return ended

    async def _survey(self) -> None:
        try:
            await asyncio.to_thread(self.kept.survey)
        except OSError as error:
            self._log.warning("Cannot measure all run folders of earlier runs", error=str(error))

    async def resume(self, owner: ObjectRef, generation: int, purpose: str) -> None:
        """Return None: no process outlives its operator."""

    async def recorded(self, job: Job) -> None:
        """Do nothing: when a run has ended, nothing of it remains."""

    async def sweep(self, gvk: GVK, is_gone: Callable[[ObjectKey, str], bool]) -> None:
        """Do nothing: no process outlives its operator."""

    async def forget(self, run_dir: Path) -> None:
        """Remove the run folder of a deleted object."""
        await shortages.outlast(self.kept.remove, run_dir)

    def clear_out(self, bases: Iterable[Path]) -> None:
        """Remove the run folders below `bases` that no run uses, in the background."""
        for base in bases:
            self._expect_end(self._clear_out(base))

    async def _clear_out(self, base: Path) -> None:
        try:
            removed = await asyncio.to_thread(lambda: self.kept.clear_out(base, inputdir.in_use(base)))
        except OSError as error:
            self._log.warning("Cannot remove the run folders of a kind", folder=str(base), error=str(error))
        else:
            self._log.info(
                "Removed the run folders of a kind that is not watched any more", folder=str(base), objects=removed
            )

    async def _run(self, job: Job, sink: EventSink, stop: _Stop) -> RunResult:
        began = time.monotonic()
        identity = processes.run_id(self._root, job.ident)
        try:
            folder = await asyncio.to_thread(self._prepare, job, identity)
        except EngineError as error:
            await self._leave(job)
            return _not_started(str(error), time.monotonic() - began)
        try:
            return await redaction.result(await self._supervise(job, folder, identity, sink, stop), job.secrets)
        finally:
            await self._clear(folder, job)

    def _prepare(self, job: Job, identity: str) -> inputdir.RunFolder:
        self.kept.begin(job.run_dir)
        return inputdir.prepare(job, identity, os.environ)

    async def _clear(self, folder: inputdir.RunFolder, job: Job) -> None:
        try:
            await shortages.outlast(inputdir.clear, folder, job.max_artifacts, job.secrets)
        except OSError as error:  # files that a role created as another user, for example; the run's result is valid
            self._log.warning("Cannot remove files that a run left", job=job.ident, error=str(error))
        await self._leave(job)

    async def _leave(self, job: Job) -> None:
        try:
            await asyncio.to_thread(self.kept.end, job.run_dir, job.max_artifacts)
        except OSError as error:
            self._log.warning("Cannot reduce the run folders to the disk limit", job=job.ident, error=str(error))

    async def _supervise(
        self,
        job: Job,
        folder: inputdir.RunFolder,
        identity: str,
        sink: EventSink,
        stop: _Stop,
    ) -> RunResult:
        began, kills = time.monotonic(), machine.oom_kills(_ROOT)
        starter = self._starters.of(job.engine)
        try:
            supervision = await Supervision.start(starter, folder, identity, self._memory_limit)
        except OSError as error:
            return _not_started(f"the run's process could not be started: {error}")
        self._log.debug("Run's process started", job=job.ident)
        self._supervisors.add(supervision.pid)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(job.deadline, stop.ask, Outcome.TIMED_OUT) if job.deadline is not None else None
        try:
            progress = await _follow(supervision, job, sink, stop)
        except BaseException:
            await supervision.kill()
            raise
        finally:
            if timer:
                timer.cancel()
            how, gone = await supervision.sweep(self._supervisors)
            self._supervisors.discard(supervision.pid)
            if supervision.ending and supervision.ending.learned:
                starter.learn(folder.environment, supervision.ending.learned)
        if not gone:
            self._log.warning("Cannot end all processes of a run", job=job.ident, gvk=str(job.gvk), **job.key._asdict())
        end = events.End(
            stopped=stop.reason,
            deadline=job.deadline,
            code=supervision.ending.code if supervision.ending else None,
            signal=_signal(supervision.ending),
            fault=_fault(supervision.ending, how, self._memory_limit),
            duration=time.monotonic() - began,
        )
        result = advice.add(events.conclude(progress, end), self._core)
        if kills := machine.oom_kills(_ROOT) - kills:
            result = advice.add_kills(result, kills, machine.total_memory(_ROOT), self._memory_limit)
        if not supervision.ending:
            return result
        executed = executions.parse(supervision.ending.executions)
        self._executions.add(job.ident, executed)
        return replace(result, executions=executed)


async def _follow(supervision: Supervision, job: Job, sink: EventSink, stop: _Stop) -> events.Progress:
    """Pass the events to `sink` until the run ends. Request its end when `stop` does, and kill it if it continues."""
    reading = asyncio.create_task(_read(supervision, job, sink))
    either: set[asyncio.Future[Any]] = {reading, stop.wish}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not reading.done():
        supervision.ask_to_stop()
        await asyncio.wait({reading}, timeout=_STOP_WITHIN)
    if not reading.done():
        await supervision.kill()
    return await reading


async def _read(supervision: Supervision, job: Job, sink: EventSink) -> events.Progress:
    progress = events.Progress()
    async for event in redaction.events(supervision.events(), job.secrets):
        progress = events.fold(progress, event)
        sink(event)
    return progress


def _signal(ending: Ending | None) -> str:
    """Return the signal that killed ansible-playbook, unless the supervisor ended it for lack of memory."""
    if ending is None or ending.memory or ending.stuck or not ending.signal:
        return ""
    return signal_name(ending.signal)


def _fault(ending: Ending | None, how: str, limit: int) -> str:
    """Return the problem that prevented or interrupted the run, as the end of a sentence; empty if there was none."""
    if ending is None:
        return f"the run's supervisor {how}"
    if ending.memory:
        return (
            f"the run was ended because its processes used {ending.memory >> 20} MiB of memory together, "
            f"more than --run-memory-limit allows ({limit >> 20} MiB),"
        )
    if ending.stuck:
        return "Ansible did not continue after the kernel had killed a process of it, and was ended"
    return f"ansible-runner failed ({ending.error})" if ending.error else ""


def _ended(result: RunResult, *, closed: bool) -> RunResult:
    """Return the result of a run. If the operator shuts down, a run that did not start or died has not failed."""
    if closed and result.outcome in {Outcome.NOT_STARTED, Outcome.DIED}:
        return canceled(f"the operator is shutting down; {result.message}", result.duration)
    return result


def _not_started(message: str, duration: float = 0.0) -> RunResult:
    return RunResult(
        outcome=Outcome.NOT_STARTED,
        recap=None,
        failures=(),
        message=message,
        requeue_after=None,
        duration=duration,
    )


async def _wait_through_cancellation(task: asyncio.Task[RunResult]) -> None:
    """Wait for a task that must complete, regardless of further cancellations."""
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            continue
    if not task.cancelled() and task.exception() is not None:
        # The canceled caller gets no result, but must get the error.
        raise EngineError(f"the run failed while it was being ended: {task.exception()}") from task.exception()


def _end_leftovers(root: Path) -> int:
    """End leftover processes. Remove leftover kubeconfigs and unmasked files.

    The files of a living operator are kept.
    """
    found = processes.leftovers(root)
    processes.send(found, signal.SIGTERM)
    deadline = time.monotonic() + _LEFTOVER_GRACE
    while (left := processes.leftovers(root)) and time.monotonic() < deadline:
        time.sleep(0.05)
    deadline = time.monotonic() + _LEFTOVER_KILL
    while left and time.monotonic() < deadline:
        processes.send(left, signal.SIGKILL)
        time.sleep(0.05)
        left = processes.leftovers(root)
    running = processes.table()
    scratch.remove_abandoned(root, running)
    for run_dir, identity in inputdir.unfinished(root):
        if not processes.operator_lives(identity, running):
            inputdir.abandon(run_dir)
    return len(found)
