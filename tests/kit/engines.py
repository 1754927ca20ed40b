"""Engines whose runs are processes, as an operator has them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from runner.app.features import CALLBACKS
from runner.base.config.settings import EngineName
from runner.core.engine.job import EventSink, Job, RunResult
from runner.core.engine.run_engine import RunEngine
from runner.core.engine.run_root import RunRoot
from runner.core.engine.starter import ColdStarter
from runner.engines.warm.engine import WarmChoice, WarmEngine


class ProcessEngines:
    """Engines for the run folders below one root, of which one is the default."""

    def __init__(
        self, root: Path, default: EngineName = "warm", without: Iterable[str] = (), *, memory_limit: int = 0
    ) -> None:
        self.root, self.starter = RunRoot(root, callbacks=CALLBACKS), ColdStarter()
        self.choice = WarmChoice(default)
        self.warm = WarmEngine(self.root, self.starter, without, memory_limit)
        self.cold = RunEngine(self.root, self.starter, memory_limit)
        self.pool = self.warm.pool
        self.expect, self.settle = self.warm.expect, self.warm.settle

    async def run(self, job: Job, sink: EventSink, engine: EngineName | None = None) -> RunResult:
        """Run a job with an engine; None is the default one."""
        return await (self.warm if self.choice.is_warm(engine) else self.cold).run(job, sink)

    async def close(self, grace: float) -> None:
        """End all runs, and the processes of the engines."""
        await self.warm.close(grace)
        await self.cold.close(grace)
        await self.root.close()
