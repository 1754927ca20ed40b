"""Engines of the operator, and which one runs the objects of a watch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runner.base.config.settings import Settings
from runner.core.engine.run_engine import RunEngine
from runner.core.watches.watch import Watch
from runner.engines.plugin import EnginePlugin, OpenEngine, OperatorParts
from runner.engines.pod import plugin as pod
from runner.engines.warm import plugin as warm
from runner.values.objects import GVK


async def _open(parts: OperatorParts, _watches: Sequence[Watch]) -> OpenEngine:
    return OpenEngine(RunEngine(parts.root, parts.cold, parts.settings.run_memory_limit))


def plugins(settings: Settings) -> tuple[EnginePlugin, ...]:
    """Return the engines in the order in which they may claim a watch.

    Raises:
        ConfigError: the engine that a flag requires is not available.
    """
    return (
        pod.make(settings),  # a watch that isolates its runs has no other engine, whatever the flag is
        warm.make(settings),
        EnginePlugin(lambda _watch: True, _open),  # new interpreters can run everything
    )


def assigned(plugins: Iterable[EnginePlugin], watches: Iterable[Watch]) -> Mapping[GVK, EnginePlugin]:
    """Return the engine of each watch.

    Raises:
        ConfigError: the engine that a watch requires is not available.
    """
    return {watch.gvk: next(plugin for plugin in plugins if plugin.claims(watch)) for watch in watches}


@dataclass(frozen=True, slots=True)
class Engines:
    """Engines of an operator that is running."""

    all: Sequence[OpenEngine]
    of: Mapping[GVK, OpenEngine]
    """The engine of each watch."""


async def opened(
    plugins: Iterable[EnginePlugin],
    assigned: Mapping[GVK, EnginePlugin],
    parts: OperatorParts,
    watches: Iterable[Watch],
) -> Engines:
    """Open the engines. If a signal stops the operator meanwhile, some watches have none."""
    of_watches: dict[GVK, OpenEngine] = {}
    engines: list[OpenEngine] = []
    for plugin in plugins:
        own = [watch for watch in watches if assigned[watch.gvk] is plugin]
        if (engine := await plugin.open(parts, own)) is not None:
            engines.append(engine)
            of_watches |= {watch.gvk: engine for watch in own}
    return Engines(engines, of_watches)
