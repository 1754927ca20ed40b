"""Which engine there is: by name, by what is installed, and what each name means here.

Owns the choice between starting runs warm and cold; everything else about runs is `run_engine`'s. `auto` is warm where
that was tested, else cold, and the log says so once.
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
from runner.watches.watch import Content

_GRACE = 10.0
"""Seconds that there may be no fork server before it counts: one may be starting, or about to be replaced."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How runs are run, unless their watch says otherwise."""

    engine: EngineName
    without: frozenset[str]
    """Names of the warm engine's shortcuts that are not taken."""
    memory_limit: int
    """Bytes that all processes of a run may use together; 0: as many as they like."""
    disk_limit: int = 0
    """Bytes that the run folders of all objects may hold together; 0: as many as they like."""


class Starters:
    """What starts supervisors, by the engine's name. A ConfigError says that an engine is asked for that cannot be."""

    def __init__(self, root: Path, settings: EngineSettings, bereaved: Callable[[], None]) -> None:
        """`bereaved` is called when a fork server has ended, and may have left what it was just forking."""
        self._log = log.get(__name__)
        self._problem = tested.problem()
        self._logged = log.Once()
        self._demanded = False
        self._cold = ColdStarter()
        self._warm = Pool(root, self._cold, settings.without, Server.start, bereaved)
        self._default: EngineName = settings.engine
        self.check(settings.engine, "--engine")

    def check(self, name: EngineName | None, source: str) -> None:
        """Refuse an engine that cannot be used here; `source` says who asked."""
        if name == "warm" and self._problem:
            raise ConfigError(f"{source}: the warm engine cannot be used: {self._problem}; write auto or exec")
        self._demanded |= name == "warm"

    def of(self, name: EngineName | None) -> Starter:
        """Return what starts runs for an engine; None means the default."""
        name = name or self._default
        if name == "exec":
            return self._cold
        if self._problem is None:
            return self._warm
        if self._logged.is_new():
            self._log.info("Runs start new interpreters (engine exec), not the warm engine", reason=self._problem)
        return self._cold

    def is_warm(self, name: EngineName | None) -> bool:
        """Whether runs are forked that name this engine; None means the default."""
        return self.of(name) is self._warm

    async def expect(self, contents: Iterable[Content], environment: Mapping[str, str]) -> None:
        """Make ready what warm runs of these with this environment will need."""
        names = await asyncio.to_thread(lambda: frozenset().union(*map(content.modules, contents)))
        self._warm.load_ahead(environment, Load(modules=names))
        await self._warm.warm_up(environment)

    async def settle(self) -> None:
        """Wait until what runs have shown so far is made ready for the next."""
        await self._warm.settle()

    @property
    def begun(self) -> dict[str, int]:
        """How many runs were forked (`warm`), and how many started a new interpreter (`exec`)."""
        return {"warm": self._warm.begun, "exec": self._cold.begun}

    @property
    def problem(self) -> str | None:
        """Why runs that should be warm are not; None when they are."""
        return self._warm.problem

    def unmet(self) -> str | None:
        """Why the engine that somebody asked for, not as `auto`, is not the one that runs get; None when it is."""
        return self._warm.lasting_problem(_GRACE) if self._demanded else None

    def shortfalls(self) -> dict[str, str]:
        """Return what the self-tests of the fork servers found, by the shortcut's name."""
        return self._warm.shortfalls()

    @property
    def servers(self) -> list[int]:
        """The fork servers that are ready."""
        return self._warm.servers()

    async def close(self) -> None:
        """End what is kept to start runs from."""
        await self._warm.close()
