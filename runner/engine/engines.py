"""Choice of the engine: by name and by the installed versions.

Owns the choice between warm and cold starts; `run_engine` owns everything else about runs. `auto` is warm on tested
versions and cold on other versions, which it logs once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from runner import log
from runner.config.settings import EngineName
from runner.engine.starter import ColdStarter, Starter
from runner.engine.warm import content, tested
from runner.engine.warm.messages import Load
from runner.engine.warm.server.client import Server
from runner.engine.warm.server.pool import Pool
from runner.errors import ConfigError
from runner.meters import Meters
from runner.watches.watch import Content

_GRACE = 10.0
"""Seconds without a fork server before it counts as a problem: one may be starting or about to be replaced."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of runs; a watch can override the engine."""

    engine: EngineName
    without: frozenset[str]
    """Names of the warm engine's shortcuts that are switched off."""
    memory_limit: int
    """Bytes that all processes of a run may use together; 0 is unlimited."""
    disk_limit: int = 0
    """Bytes that the run folders of all objects may use together; 0 is unlimited."""


class Starters:
    """Starters of supervisors by the engine's name.

    Raises:
        ConfigError: the configured engine is not available.
    """

    def __init__(self, root: Path, settings: EngineSettings, on_server_loss: Callable[[], None]) -> None:
        """Create the starters. `on_server_loss` is called when a fork server died: a run may be half-started."""
        self._log = log.get(__name__)
        self._problem = tested.problem()
        self._logged = log.Once()
        self._demanded = False
        self._cold = ColdStarter()
        self.pool = Pool(root, self._cold, settings.without, Server.start, on_server_loss)
        """Starter of warm runs."""
        self._default: EngineName = settings.engine
        self.check(settings.engine, "--engine")

    def check(self, name: EngineName | None, source: str) -> None:
        """Check that an engine is available; `source` names the setting that requires it.

        Raises:
            ConfigError: the engine is not available.
        """
        if name == "warm" and self._problem:
            raise ConfigError(f"{source}: the warm engine cannot be used: {self._problem}; write auto or exec")
        self._demanded |= name == "warm"

    def of(self, name: EngineName | None) -> Starter:
        """Return the starter of an engine; None is the default engine."""
        name = name or self._default
        if name == "exec":
            return self._cold
        if self._problem is None:
            return self.pool
        if self._logged.is_new():
            self._log.warning(tested.SLOW, reason=self._problem)
        return self._cold

    def is_warm(self, name: EngineName | None) -> bool:
        """Return True if runs with this engine are forked; None is the default engine."""
        return self.of(name) is self.pool

    async def expect(self, contents: Iterable[Content], environment: Mapping[str, str]) -> None:
        """Preload modules for warm runs of these contents with this environment."""
        explicit = environment.get("ANSIBLE_GATHERING") == "explicit"
        names = await asyncio.to_thread(
            lambda: frozenset().union(*(content.modules(each, explicit=explicit) for each in contents))
        )
        self.pool.preload(environment, Load(modules=names))
        await self.pool.warm_up(environment)

    @property
    def started_runs(self) -> dict[str, int]:
        """Number of runs that were forked (`warm`) and that started a new interpreter (`exec`)."""
        return {"warm": self.pool.started_runs, "exec": self._cold.started_runs}

    def declare(self, meters: Meters) -> None:
        """Declare the number of started runs, and whether runs of the warm engine fall back to new interpreters."""
        meters.observable_counter(
            "ansible_operator_runs_begun",
            "Started runs, forked from a fork server (warm) or in a new interpreter (exec)",
            ["engine"],
            lambda: self.started_runs,
        )
        meters.gauge(
            "ansible_operator_warm_engine_problem",
            "1 while runs of the warm engine fall back to new interpreters; the log contains the reason",
        ).set_function(lambda: float(self.pool.problem is not None))

    def unmet(self) -> str | None:
        """Return why runs do not get the engine that a user required (`auto` requires none); None if they get it."""
        return self.pool.lasting_problem(_GRACE) if self._demanded else None
