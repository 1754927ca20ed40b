"""First part of the operator's start: what needs neither the API server nor the modules of the operator itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from runner.agent import proxies
from runner.app import engines
from runner.app.features import CALLBACKS, environments
from runner.app.process import LoopErrorHandler, StopSignals, ignore_signals, return_large_blocks, runner_folder
from runner.base import log
from runner.base.config import paths
from runner.base.config.settings import RUNNER_DIR, Settings
from runner.core.engine.run_root import RunRoot
from runner.core.engine.starter import ColdStarter
from runner.core.watches.watch import LoadedWatches, Watch
from runner.engines.plugin import EngineBase, EnginePlugin, Opening
from runner.values.objects import GVK

if TYPE_CHECKING:
    from runner.app.app import Application

_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Begun:
    """Operator whose engines are prepared."""

    base: EngineBase
    watches: Sequence[Watch]
    assigned: Mapping[GVK, EnginePlugin]
    """The engine of each watch."""
    openings: Mapping[EnginePlugin, Opening]
    """What opens each engine."""
    environment: Mapping[str, str]
    """What overrides the operator's environment in all runs."""
    search_path: paths.SearchPath


def run(settings: Settings, loaded: LoadedWatches) -> int:
    """Run the operator until a signal stops it; return 0.

    Raises:
        OperatorError: the operator cannot run.
    """
    if not return_large_blocks():
        _log.debug("The C library has no limit for large blocks, so that the process may keep freed memory")
    with runner_folder(settings.runner_dir, Path(RUNNER_DIR)) as folder:
        try:
            asyncio.run(_run(replace(settings, runner_dir=folder), loaded.watches))
        finally:
            ignore_signals()
    return 0


async def _run(settings: Settings, watches: Sequence[Watch]) -> None:
    signals = StopSignals(settings.graceful_shutdown_timeout)
    signals.catch()
    asyncio.get_running_loop().set_exception_handler(LoopErrorHandler())
    async with AsyncExitStack() as stack:
        begun = await _begin(settings, watches, stack)
        # In a thread: meanwhile, this one starts the processes that load Ansible.
        application = await asyncio.to_thread(_application)
        await application(begun, signals).run()


async def _begin(settings: Settings, watches: Sequence[Watch], stack: AsyncExitStack) -> Begun:
    assigned = engines.assigned(engines.PLUGINS, watches, settings)
    root = RunRoot(settings.runner_dir, settings.runner_dir_limit, CALLBACKS)
    stack.push_async_callback(root.close)
    if leftovers := await root.reap_leftovers():
        _log.warning("Killed leftover processes of an earlier operator's runs", processes=leftovers)
    search_path = settings.search_path(os.environ, Path.cwd())
    environment = {
        **paths.ansible_environment(search_path, os.environ, Path.cwd()),
        **proxies.variables(os.environ),
    }
    base = EngineBase(
        settings=settings,
        stack=stack,
        root=root,
        cold=ColdStarter(),
        environments=partial(environments, environment=environment),
    )
    openings = await engines.prepared(engines.PLUGINS, assigned, base, watches)
    return Begun(base, watches, assigned, openings, environment, search_path)


def _application() -> type[Application]:
    from runner.app.app import Application  # noqa: PLC0415 - it takes half a second

    return Application
