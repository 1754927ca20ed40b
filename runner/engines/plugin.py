"""How an engine joins the operator.

`runner.app.engines` has the list of engines. The first one that claims a watch runs its objects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from runner.core.kube.rights import NO_RIGHTS, RequiredRights

if TYPE_CHECKING:
    import asyncio
    from contextlib import AsyncExitStack

    from runner.base.config.settings import Settings
    from runner.base.meters import Meters
    from runner.base.monitoring.background import Work
    from runner.base.monitoring.health import HealthChecks
    from runner.core.engine.job import Engine
    from runner.core.engine.run_root import RunRoot
    from runner.core.engine.starter import ColdStarter
    from runner.core.kube.client import Client
    from runner.core.kube.discovery import Discovery
    from runner.core.kube.meaning import Request
    from runner.core.proxy.calls import Handler
    from runner.core.watches.field import FeatureFields
    from runner.core.watches.watch import Watch

T = TypeVar("T")


class UntilAnswered(Protocol):
    """Sender of requests at the start."""

    async def __call__(self, kind: Request, send: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of requests of a kind; None if a signal stops the operator first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBase:
    """Parts of the operator that exist before the rest of it is imported."""

    settings: Settings
    stack: AsyncExitStack
    """Closed after the end of all runs."""
    root: RunRoot
    cold: ColdStarter
    environments: Callable[[Watch], Sequence[Mapping[str, str]]]
    """Returns what overrides the operator's environment in runs of a watch. Most runs have the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorParts(EngineBase):
    """Parts of the operator that engines use."""

    client: Client
    discovery: Discovery
    meters: Meters
    health: HealthChecks
    leads: Callable[[], bool]
    """Returns whether this replica runs objects."""
    until_answered: UntilAnswered
    proxy_connection: Callable[[], asyncio.Protocol]
    """Makes the protocol of a connection with API calls."""
    connections: Mapping[str, Callable[[], asyncio.Protocol]]
    """By the variable with the address of a server for runs: makes the protocol of a further connection to it."""


def _as_processes(_watch: Watch) -> None:
    return None


@dataclass(frozen=True, slots=True)
class OpenEngine:
    """An engine in an operator that is running."""

    engine: Engine
    followed: Mapping[str, Work] = field(default_factory=dict)
    """Its work in the background, by name."""
    most: Callable[[Watch], int | None] = _as_processes
    """Returns how many runs of a watch there may be at once; None: as many as `Settings` allows for processes."""


Opening: TypeAlias = Callable[[OperatorParts, Sequence["Watch"]], Awaitable[OpenEngine | None]]
"""Opens an engine for the watches that it runs. Returns None if it is not needed, or if a signal stops the operator.
Raises ConfigError if a setting is missing or wrong."""
Preparation: TypeAlias = Callable[[EngineBase, Sequence["Watch"]], Awaitable[Opening]]
"""Starts what takes long and needs no API server, and returns what opens the engine."""


def unprepared(opening: Opening) -> Preparation:
    """Return the preparation of an engine that starts nothing before it is opened."""

    async def prepare(_base: EngineBase, _watches: Sequence[Watch]) -> Opening:
        return opening

    return prepare


def _unchanged(watch: Watch, _settings: Settings) -> Watch:
    return watch


def _no_guards(_settings: Settings) -> Sequence[Handler]:
    return ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EnginePlugin:
    """An engine as plain data of its folder. Its functions import what they need when they are called."""

    claims: Callable[[Settings], Callable[[Watch], bool]]
    """Returns what decides whether this engine can run the objects of a watch. Both raise ConfigError if a setting
    requires an engine that is not available."""
    prepare: Preparation
    fields: Sequence[FeatureFields] = ()
    """Fields of watches.yaml."""
    rights: RequiredRights = NO_RIGHTS
    guards: Callable[[Settings], Sequence[Handler]] = _no_guards
    """Returns handlers of the proxy that come first, if the engine runs a watch."""
    without_own_objects: Callable[[Watch, Settings], Watch] = _unchanged
    """Returns a watch that does not select the objects that the engine creates."""
    problem: Callable[[], str] = str
    """Returns why the engine cannot be used here; empty if it can, or if nobody misses it."""
