"""Engine that forks runs from processes with Ansible loaded, and the choice of the watches that it runs.

`auto` is warm on tested versions. On other versions its runs start new interpreters, which is logged once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from runner.agent import process_tree
from runner.base import log
from runner.base.config.settings import EngineName
from runner.core.engine.run_dir import shared_environment
from runner.core.engine.run_engine import RunEngine
from runner.core.engine.run_root import RunRoot
from runner.core.engine.starter import Starter
from runner.core.watches.watch import Content
from runner.engines.warm import content, tested
from runner.engines.warm.messages import Load
from runner.engines.warm.server import scratch
from runner.engines.warm.server.client import Server
from runner.engines.warm.server.pool import Pool
from runner.values.errors import ConfigError

_GRACE = 10.0
"""Seconds without a fork server before it counts as a problem: one may be starting or about to be replaced."""
_log = log.get(__name__)


class WarmChoice:
    """Choice between forks and new interpreters, by the name of the engine and the installed versions."""

    def __init__(self, default: EngineName) -> None:
        """Raises ConfigError if the default engine, `--engine`, is not available."""
        self._default = default
        self._problem = tested.problem()
        self._logged = log.Once()
        self.check(default, "--engine")

    def check(self, name: EngineName | None, source: str) -> None:
        """Check that an engine is available; `source` names the option that requires it.

        Raises:
            ConfigError: the engine is not available.
        """
        if name == "warm" and self._problem:
            raise ConfigError(f"{source}: the warm engine cannot be used: {self._problem}; write auto or exec")

    def is_warm(self, name: EngineName | None) -> bool:
        """Return True if runs with this engine are forked; None is the default engine."""
        if (name or self._default) == "exec":
            return False
        if self._problem is not None and self._logged.is_new():
            _log.warning(tested.SLOW, reason=self._problem)
        return self._problem is None


class WarmEngine(RunEngine):
    """Engine that forks runs."""

    def __init__(self, root: RunRoot, cold: Starter, without: Iterable[str], memory_limit: int) -> None:
        """`cold` starts runs while there is no fork server. `without`: shortcuts that are switched off."""
        self.pool = Pool(root.path, cold, without, Server.start, root.reap_orphans)
        super().__init__(root, self.pool, memory_limit)
        self._expecting: set[asyncio.Task[None]] = set()

    async def remove_leftovers(self) -> None:
        """Remove the folders of fork servers of operators that have ended."""
        await asyncio.to_thread(lambda: scratch.remove_abandoned(self._root.path, process_tree.table()))

    def expect(self, contents: Iterable[Content], environment: Mapping[str, str]) -> None:
        """Start to preload modules for runs of these roles and playbooks. Runs do not wait for it.

        `environment` overrides variables of the operator.
        """
        task = asyncio.create_task(
            self._expect(tuple(contents), shared_environment(os.environ, environment, self._root.callbacks))
        )
        self._expecting.add(task)
        task.add_done_callback(self._expecting.discard)

    async def _expect(self, contents: tuple[Content, ...], environment: Mapping[str, str]) -> None:
        self.pool.preload(environment, await asyncio.to_thread(_load, contents, environment))
        await self.pool.warm_up(environment)

    async def settle(self) -> None:
        """Wait until the requested modules and those that earlier runs used are preloaded."""
        if self._expecting:
            await asyncio.wait(self._expecting)
        await self.pool.settle()

    def lasting_problem(self) -> str | None:
        """Return why runs are not forked; None if they are, or will be soon."""
        return self.pool.lasting_problem(_GRACE)

    async def close(self, grace: float) -> None:
        """Wait up to `grace` seconds for runs to end, then end them. No run starts afterwards."""
        for task in self._expecting:
            task.cancel()
        await asyncio.gather(*self._expecting, return_exceptions=True)
        await super().close(grace)


def _load(contents: Iterable[Content], environment: Mapping[str, str]) -> Load:
    """Return what the files of these roles and playbooks show of their runs. Blocking I/O."""
    roots = [Path(root).expanduser() for root in environment.get("ANSIBLE_ROLES_PATH", "").split(":") if root]
    explicit = environment.get("ANSIBLE_GATHERING") == "explicit"
    load = Load()
    for item in contents:
        load |= content.load(item, roots, explicit=explicit)
    return load
