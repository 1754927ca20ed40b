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
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from runner import log
from runner.agent import process_tree
from runner.config import shortages
from runner.engine import artifacts, process_attempt, processes
from runner.engine import run_dir as inputdir
from runner.engine.conversion import convert
from runner.engine.engines import EngineSettings, Starters
from runner.engine.job import EventSink, Job, Outcome, RunResult, canceled
from runner.engine.pipeline import Pipeline, Stop
from runner.engine.process_attempt import ProcessAttempt, RunLimits
from runner.engine.retention import KeptRuns
from runner.engine.supervision import reap_orphans
from runner.engine.warm.server import scratch
from runner.errors import EngineError
from runner.objects import GVK, ObjectKey, ObjectRef
from runner.watches.watch import Content

_LEFTOVER_GRACE = 2.0
_LEFTOVER_KILL = 10.0


@dataclass(frozen=True, slots=True)
class _Run:
    task: asyncio.Task[RunResult]
    stop: Stop


class RunEngine:
    """Engine for the run folders below one root. Create it in the main thread."""

    def __init__(self, root: Path, settings: EngineSettings) -> None:
        self._root = root
        self.starters = Starters(root, settings, self._reap_orphans)
        """Starters of the runs' processes, by engine."""
        self._supervisors: set[int] = set()
        self._limits = RunLimits(settings.memory_limit, version("ansible-core"), log.Once(), self._supervisors)
        self.kept = KeptRuns(root, settings.disk_limit)
        """The run folders."""
        self._pipeline = Pipeline(self.kept)
        self._log = log.get(__name__)
        self._runs: set[_Run] = set()
        self._closed = False
        self._expecting: set[asyncio.Task[None]] = set()
        self._reaping: asyncio.Task[None] | None = None
        process_tree.adopt_orphans()

    def expect(self, contents: Iterable[Content], environment: Mapping[str, str]) -> None:
        """Start to preload modules for warm runs of these roles and playbooks. Runs do not wait for it."""
        self._expect_end(self._expect(tuple(contents), environment))

    def _expect_end(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._expecting.add(task)
        task.add_done_callback(self._expecting.discard)

    def _reap_orphans(self) -> None:
        """Reap the processes that an ended fork server may have left, for some time."""
        if self._closed:
            return
        if self._reaping:
            self._reaping.cancel()  # the time starts again
        self._reaping = asyncio.create_task(reap_orphans(self._supervisors))

    async def settle(self) -> None:
        """Wait until the requested modules and those that earlier runs used are preloaded."""
        if self._expecting:
            await asyncio.wait(self._expecting)
        await self.starters.pool.settle()

    async def _expect(self, contents: tuple[Content, ...], environment: Mapping[str, str]) -> None:
        shared = inputdir.shared_environment(os.environ, environment)
        await self.starters.expect(contents, shared)

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
        others = [*self._expecting, *([self._reaping] if self._reaping else [])]
        for task in others:
            task.cancel()
        self.kept.close()
        await asyncio.gather(*others, return_exceptions=True)
        await self.starters.pool.close()

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

    async def sweep(self, gvk: GVK, is_gone: Callable[[ObjectKey, str], bool], *, finalizes: bool) -> None:
        """Do nothing: no process outlives its operator."""

    async def forget(self, run_dir: Path) -> None:
        """Remove the run folder of a deleted object."""
        await shortages.outlast(self.kept.remove, run_dir)

    async def _begin(self, job: Job) -> ProcessAttempt:
        identity = processes.run_id(self._root, job.ident)
        folder = await convert(inputdir.prepare, job, identity, os.environ, large=job.is_large)
        try:
            return await process_attempt.start(job, folder, identity, self.starters.of(job.engine), self._limits)
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


def _end_leftovers(root: Path) -> int:
    """End leftover processes, and remove what only their runs used. The files of a living operator are kept."""
    found = processes.leftovers(root)
    process_tree.send(found, signal.SIGTERM)
    deadline = time.monotonic() + _LEFTOVER_GRACE
    while (left := processes.leftovers(root)) and time.monotonic() < deadline:
        time.sleep(0.05)
    deadline = time.monotonic() + _LEFTOVER_KILL
    while left and time.monotonic() < deadline:
        process_tree.send(left, signal.SIGKILL)
        time.sleep(0.05)
        left = processes.leftovers(root)
    running = process_tree.table()
    scratch.remove_abandoned(root, running)
    for run_dir, identity in inputdir.unfinished(root):
        if not processes.operator_lives(identity, running):
            inputdir.clear(run_dir)
            artifacts.discard_unfinished(run_dir / "artifacts")
    return len(found)
