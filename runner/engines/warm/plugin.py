"""The warm engine as part of the operator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from runner.base.config.settings import ENGINES, EngineName
from runner.core.watches import field
from runner.core.watches.field import Entry, FeatureFields
from runner.engines.plugin import EngineBase, EnginePlugin, OpenEngine, Opening, OperatorParts
from runner.engines.warm import tested
from runner.values.slots import Slot, Slots

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runner.base.config.settings import Settings
    from runner.base.meters import Meters
    from runner.core.engine.starter import ColdStarter
    from runner.core.watches.watch import Content, Watch
    from runner.engines.warm.engine import WarmEngine
    from runner.engines.warm.server.pool import Pool


ENGINE: Slot[EngineName | None] = Slot("engine", None)
"""Slot of a watch; None: that of `--engine`."""
_ENTRY = field.section(
    "", "%s", field.text("engine", "`auto`, `warm` or `exec`; default: `--engine`", "exec", values=ENGINES)
)


def _read(entry: Entry, values: Slots) -> Slots:
    text = entry.fields.text("engine")
    if not text:
        return values
    name = next((name for name in ENGINES if name == text.lower()), None)
    if name is None:
        entry.fields.error("engine", f"invalid engine {text!r}: use {', '.join(ENGINES[:-1])} or {ENGINES[-1]}")
    return values.having(ENGINE, name)


def _claims(settings: Settings) -> Callable[[Watch], bool]:
    from runner.engines.warm.engine import WarmChoice  # noqa: PLC0415 - see EnginePlugin

    choice = WarmChoice(settings.engine)

    def claims(watch: Watch) -> bool:
        name = watch.more.get(ENGINE)
        choice.check(name, f"watches.yaml, line {watch.line}: engine")
        return choice.is_warm(name)

    return claims


async def _prepare(base: EngineBase, watches: Sequence[Watch]) -> Opening:
    """Start to load Ansible for runs of these watches."""
    from runner.engines.warm.engine import WarmEngine  # noqa: PLC0415 - see EnginePlugin

    settings = base.settings
    engine = WarmEngine(base.root, base.cold, settings.warm_without, settings.run_memory_limit)
    base.stack.push_async_callback(engine.close, 0.0)
    await engine.remove_leftovers()
    for environment, contents in _by_environment(base, watches):
        engine.expect(contents, environment)
    return partial(_open, engine)


async def _open(engine: WarmEngine, parts: OperatorParts, watches: Sequence[Watch]) -> OpenEngine:
    pool = engine.pool
    _declare(parts.meters, pool, parts.cold)
    is_demanded = "warm" in {parts.settings.engine, *(watch.more.get(ENGINE) for watch in watches)}
    parts.health.add("engine", lambda: engine.lasting_problem() if is_demanded else None, grace=0.0)
    parts.health.add_notes(lambda: {f"warm-engine/{name}": text for name, text in pool.shortfalls().items()})
    return OpenEngine(engine)


def _declare(meters: Meters, pool: Pool, cold: ColdStarter) -> None:
    meters.observable_counter(
        "ansible_operator_runs_begun",
        "Started runs, forked from a fork server (warm) or in a new interpreter (exec)",
        ["engine"],
        lambda: {"warm": pool.started_runs, "exec": cold.started_runs},
    )
    meters.gauge(
        "ansible_operator_warm_engine_problem",
        "1 while runs of the warm engine fall back to new interpreters; the log contains the reason",
    ).set_function(lambda: float(pool.problem is not None))


def _by_environment(
    base: EngineBase, watches: Sequence[Watch]
) -> Sequence[tuple[Mapping[str, str], Sequence[Content]]]:
    """Return the environments of runs with what runs in them. A prepared process serves no other environment."""
    contents: dict[frozenset[tuple[str, str]], list[Content]] = {}
    for watch in watches:
        for environment in base.environments(watch):
            contents.setdefault(frozenset(environment.items()), []).extend(watch.contents)
    return [(dict(environment), of_runs) for environment, of_runs in contents.items()]


def _problem() -> str:
    problem = tested.problem()
    return f"{tested.SLOW}: {problem}" if problem else ""


PLUGIN = EnginePlugin(fields=(FeatureFields((_ENTRY,), _read),), claims=_claims, prepare=_prepare, problem=_problem)
