"""Reload after edits of the project (`--reload`).

An edited role or playbook runs the objects of its kinds once more, in the same queue; runs in progress continue with
the former content. Edited watches replace the operator: `outdated` is set, and `following` are the new watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from runner import log
from runner.app.edits import ProjectEdit, ProjectSources
from runner.controller.controller import Controller
from runner.engine.run_engine import RunEngine
from runner.errors import ConfigError
from runner.objects import GVK
from runner.watches.watch import LoadedWatches, Watch

_log = log.get(__name__)


class Reloader:
    """Applies edits to one operator."""

    def __init__(self, sources: ProjectSources) -> None:
        self._sources = sources
        self.outdated = asyncio.Event()
        self.following: LoadedWatches | None = None
        """New watches once the operator is outdated; later edits replace them."""

    async def follow(self, controllers: Mapping[GVK, Controller], engine: RunEngine) -> None:
        """Apply edits until canceled."""
        while True:
            edit = await self._sources.edited()
            if edit.loaded is not None:
                self._replace(edit, edit.loaded, engine)
            elif self.following is None:
                _log.info("A role or playbook was edited", why=edit.why, gvks=sorted(map(str, edit.kinds)))
                for gvk in edit.kinds & controllers.keys():
                    controllers[gvk].run_all(edit.why)

    def _replace(self, edit: ProjectEdit, loaded: LoadedWatches, engine: RunEngine) -> None:
        try:
            check_engines(engine, loaded.watches)
        except ConfigError as error:
            _log.error("The edit is invalid and not applied; fix it", problem=str(error))
            return
        _log.info("The watches were edited; applying them once the runs in progress have ended", why=edit.why)
        for warning in loaded.warnings:
            _log.warning("Check the configuration", detail=warning)
        self.following = loaded
        self.outdated.set()


def check_engines(engine: RunEngine, watches: Iterable[Watch]) -> None:
    """Check that the engine of each watch can be used.

    Raises:
        ConfigError: an engine cannot be used here.
    """
    for watch in watches:
        engine.starters.check(watch.engine, f"watches.yaml, line {watch.line}: engine")
