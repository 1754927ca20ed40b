"""Engine that runs jobs, each in its own processes.

Promises what `job.Engine` promises. Each run has a supervisor (`child.py`) that leads its own session; see
`docs/decisions/0004-run-processes.md` for the order in which processes end. A `Starter` starts the supervisors; the
engine does everything else. `RunRoot` is what the engines of one operator share. It also cleans up after an operator
that was killed, as that document describes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runner.agent import process_tree
from runner.base import log
from runner.base.config import shortages
from runner.core.engine import artifacts, process_execution, processes
from runner.core.engine import run_dir as inputdir
from runner.core.engine.artifacts import KeptRuns
from runner.core.engine.job import EventSink, Job, Outcome, RunResult, canceled
from runner.core.engine.params import convert
from runner.core.engine.pipeline import Pipeline, Stop
from runner.core.engine.process_execution import ProcessExecution, RunLimits, Starter
from runner.values.errors import EngineError
from runner.values.objects import GVK, ObjectKey, ObjectRef

_LEFTOVER_GRACE = 2.0
_LEFTOVER_KILL = 10.0
_REAP_FOR, _REAP_EVERY = 20.0, 0.5
"""Seconds."""
_EXPIRE_EVERY = 60.0
"""Seconds between searches for runs of deleted objects that are kept no longer."""
_log = log.get(__name__)


class RunRoot:
    """Folder with the run folders of one operator. Create it in the main thread."""

    def __init__(self, path: Path, disk_limit: int = 0, callbacks: Sequence[Path] = ()) -> None:
        """`disk_limit`: bytes that the run folders of all objects may use together; 0 is unlimited."""
        self.path = path
        self.callbacks = callbacks
        """Folders of callbacks that Ansible loads in each run."""
        self.kept = KeptRuns(path, disk_limit)
        """The run folders."""
        self.supervisors: set[int] = set()
        """Pids of all supervisors."""
        self._reaping: asyncio.Task[None] | None = None
        self._surveying: asyncio.Task[None] | None = None
        process_tree.adopt_orphans()

    async def reap_leftovers(self) -> int:
        """End the processes that a dead operator's runs on the same root left. Return their number.

        The files of its runs are measured afterwards, in the background, where those of deleted objects expire too.
        """
        ended = await asyncio.to_thread(_end_leftovers, self.path)
        self._surveying = asyncio.create_task(self._follow())
        return ended

    def reap_orphans(self) -> None:
        """Reap the processes that an ended starter of supervisors may have left, for some time."""
        if self._reaping:
            self._reaping.cancel()  # the time starts again
        self._reaping = asyncio.create_task(reap_orphans(self.supervisors))

    async def close(self) -> None:
        """End the work in the background, after all engines are closed."""
        tasks = [task for task in (self._surveying, self._reaping) if task]
        for task in tasks:
            task.cancel()
        self.kept.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self) -> None:
        work = self.kept.survey
        while True:
            try:
                await asyncio.to_thread(work)
            except OSError as error:
                _log.warning("Cannot measure all run folders of earlier runs", error=str(error))
            work = self.kept.expire
            await asyncio.sleep(_EXPIRE_EVERY)


@dataclass(frozen=True, slots=True)
class _Run:
    task: asyncio.Task[RunResult]
    stop: Stop


class RunEngine:
    """Engine whose runs are processes of the operator."""

    def __init__(self, root: RunRoot, starter: Starter, memory_limit: int) -> None:
        """`memory_limit`: bytes that all processes of a run may use together; 0 is unlimited."""
        self._root = root
        self._starter = starter
        self._limits = RunLimits(memory_limit, root.supervisors)
        self._pipeline = Pipeline(root.kept)
        self._runs: set[_Run] = set()
        self._closed = False

    async def run(self, job: Job, sink: EventSink) -> RunResult:
        """Run a job to its end. If the awaiting task is canceled, every process of the run ends first.

        An exception of `sink` ends the run and is raised here.
        """
        if self._closed:
            return canceled("the operator is shutting down; the run was not started", 0.0)
        stop = Stop()
        run = _Run(asyncio.create_task(self._pipeline.run(job, partial(self._begin, job), sink, stop)), stop)
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
        await self._starter.close()

    async def resume(self, owner: ObjectRef, generation: int, purpose: str) -> None:
        """Return None: no process outlives its operator."""

    async def recorded(self, job: Job) -> None:
        """Do nothing: when a run has ended, nothing of it remains."""

    async def sweep(self, gvk: GVK, is_gone: Callable[[ObjectKey, str], bool], *, finalizes: bool) -> None:
        """Do nothing: no process outlives its operator."""

    async def forget(self, run_dir: Path) -> None:
        """Remove the run folder of a deleted object, except its last run."""
        await shortages.outlast(self._root.kept.retire, run_dir)

    async def _begin(self, job: Job) -> ProcessExecution:
        identity = processes.run_id(self._root.path, job.ident)
        folder = await convert(inputdir.prepare, job, identity, os.environ, self._root.callbacks, large=job.is_large)
        try:
            return await process_execution.start(job, folder, identity, self._starter, self._limits)
        except BaseException as error:
            await shortages.outlast(inputdir.clear, job.run_dir)
            if isinstance(error, OSError):
                raise EngineError(f"the run's process could not be started: {error}") from error
            raise


def _ended(result: RunResult, *, closed: bool) -> RunResult:
    """Return the result of a run. If the operator shuts down, a run that did not start or died has not failed."""
    if closed and result.outcome in {Outcome.NOT_STARTED, Outcome.DIED}:
        return canceled(f"the operator is shutting down; {result.message}", result.duration)
    return result


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


async def reap_orphans(known: Collection[int]) -> None:
    """Reap the processes that a dead starter of supervisors left, for some time, such as a run that it was starting.

    `known` are the pids of all supervisors; the collection may change meanwhile.
    """
    deadline = time.monotonic() + _REAP_FOR
    while time.monotonic() < deadline:
        await asyncio.sleep(_REAP_EVERY)
        if processes.has_dead_children():
            with contextlib.suppress(OSError):  # file descriptors ran out: retry at the next interval
                await asyncio.to_thread(processes.reap_orphans, known)


def _end_leftovers(root: Path) -> int:
    """End leftover processes, and remove what only their runs used. The files of a living operator are kept."""
    ended = processes.leftovers(root)
    process_tree.send(ended, signal.SIGTERM)
    deadline = time.monotonic() + _LEFTOVER_GRACE
    while (left := processes.leftovers(root)) and time.monotonic() < deadline:
        time.sleep(0.05)
    deadline = time.monotonic() + _LEFTOVER_KILL
    while left and time.monotonic() < deadline:
        process_tree.send(left, signal.SIGKILL)
        time.sleep(0.05)
        left = processes.leftovers(root)
    running = process_tree.table()
    for run_dir, identity in inputdir.unfinished(root):
        if not processes.operator_lives(identity, running):
            inputdir.clear(run_dir)
            artifacts.discard_unfinished(run_dir / "artifacts")
    return len(ended)
