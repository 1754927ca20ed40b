"""Engines of the operator, and which one runs the objects of a watch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.engines.plugin import EngineBase, EnginePlugin, OpenEngine, Opening, OperatorParts, unprepared
from runner.engines.pod import plugin as pod
from runner.engines.warm import plugin as warm

if TYPE_CHECKING:
    from runner.base.config.settings import Settings
    from runner.core.watches.watch import Watch
    from runner.values.objects import GVK


def _can_all(_settings: Settings) -> Callable[[Watch], bool]:
    return lambda _watch: True


async def _open(parts: OperatorParts, _watches: Sequence[Watch]) -> OpenEngine:
    from runner.core.engine.run_engine import RunEngine  # noqa: PLC0415 - see EnginePlugin

    return OpenEngine(RunEngine(parts.root, parts.cold, parts.settings.run_memory_limit))


PLUGINS = (
    pod.PLUGIN,  # a watch that isolates its runs has no other engine, whatever the flag is
    warm.PLUGIN,
    EnginePlugin(claims=_can_all, prepare=unprepared(_open)),  # new interpreters can run everything
)
"""The engines in the order in which they may claim a watch."""


def assigned(
    plugins: Iterable[EnginePlugin], watches: Iterable[Watch], settings: Settings
) -> Mapping[GVK, EnginePlugin]:
    """Return the engine of each watch.

    Raises:
        ConfigError: the engine that a flag or a watch requires is not available.
    """
    claims = [(plugin, plugin.claims(settings)) for plugin in plugins]
    return {watch.gvk: next(plugin for plugin, can_run in claims if can_run(watch)) for watch in watches}


@dataclass(frozen=True, slots=True)
class Engines:
    """Engines of an operator that is running."""

    all: Sequence[OpenEngine]
    of: Mapping[GVK, OpenEngine]
    """The engine of each watch."""


async def prepared(
    plugins: Iterable[EnginePlugin],
    assigned: Mapping[GVK, EnginePlugin],
    base: EngineBase,
    watches: Iterable[Watch],
) -> Mapping[EnginePlugin, Opening]:
    """Start what takes long, and return what opens each engine later."""
    return {
        plugin: await plugin.prepare(base, [watch for watch in watches if assigned[watch.gvk] is plugin])
        for plugin in plugins
    }


async def opened(
    openings: Mapping[EnginePlugin, Opening],
    assigned: Mapping[GVK, EnginePlugin],
    parts: OperatorParts,
    watches: Iterable[Watch],
) -> Engines:
    """Open the engines. If a signal stops the operator meanwhile, some watches have none."""
    of_watches: dict[GVK, OpenEngine] = {}
    engines: list[OpenEngine] = []
    for plugin, opening in openings.items():
        own = [watch for watch in watches if assigned[watch.gvk] is plugin]
        if (engine := await opening(parts, own)) is not None:
            engines.append(engine)
            of_watches |= {watch.gvk: engine for watch in own}
    return Engines(engines, of_watches)
