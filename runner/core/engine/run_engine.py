"""Engine that runs jobs, each in its own processes.

Promises what `job.Engine` promises. Each run has a supervisor (`child.py`) that leads its own session; see
`docs/decisions/0004-run-processes.md` for the order in which processes end. A `Starter` starts the supervisors; the
engine does everything else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runner.base.config import shortages
from runner.core.engine import process_execution, processes
from runner.core.engine import run_dir as inputdir
from runner.core.engine.job import EventSink, Job, Outcome, RunResult, canceled
from runner.core.engine.params import convert
from runner.core.engine.pipeline import Pipeline, Stop
from runner.core.engine.process_execution import ProcessExecution, RunLimits
from runner.core.engine.run_root import RunRoot
from runner.core.engine.starter import Starter
from runner.values.errors import EngineError
from runner.values.objects import GVK, ObjectKey, ObjectRef


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
