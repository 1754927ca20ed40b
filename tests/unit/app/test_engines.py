"""Which engine runs the objects of a watch, and the warm engine's share of the operator."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from runner.app import engines
from runner.base.config import sources
from runner.base.config.settings import EngineName
from runner.core.watches.watch import Watch
from runner.engines.plugin import EngineBase, EnginePlugin, OpenEngine, OperatorParts, unprepared
from runner.engines.pod.fields import PodPolicy, isolated
from runner.engines.warm import plugin as warm
from runner.engines.warm import tested
from runner.engines.warm.plugin import ENGINE
from runner.values.errors import ConfigError
from runner.values.objects import GVK
from runner.values.slots import EMPTY
from tests.kit.watch_values import watch_value

IN_POD = isolated(PodPolicy(1, {}, {"image": "ee:1"}))
OLD = "ansible-core 2.9 is installed"


def chosen(default: EngineName, watch: Watch) -> str:
    """Return the name of the engine that runs the objects of a watch."""
    settings = replace(sources.load(Namespace(), {}).settings, engine=default)
    assigned = engines.assigned(engines.PLUGINS, [watch], settings)
    return dict(zip(engines.PLUGINS, ("pod", "warm", "exec"), strict=True))[assigned[watch.gvk]]


@pytest.mark.parametrize(
    ("problem", "flag", "field", "expected"),
    [
        (None, "auto", None, "warm"),
        (None, "auto", "exec", "exec"),
        (None, "exec", None, "exec"),
        (None, "exec", "warm", "warm"),
        (OLD, "auto", None, "exec"),
        (OLD, "exec", "auto", "exec"),
    ],
)
def test_the_engine_of_the_watch_counts_before_that_of_the_flag_and_auto_is_warm_on_tested_versions(
    problem: str | None,
    flag: EngineName,
    field: EngineName | None,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tested, "problem", lambda: problem)
    assert chosen(flag, watch_value(more=EMPTY.having(ENGINE, field))) == expected
    assert chosen(flag, watch_value(more=IN_POD.having(ENGINE, field))) == "pod"


def test_a_warm_engine_that_is_required_and_not_available_is_an_error_that_names_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tested, "problem", lambda: OLD)
    with pytest.raises(ConfigError, match=r"--engine: the warm engine cannot be used: ansible-core 2\.9"):
        chosen("warm", watch_value())
    with pytest.raises(ConfigError, match=r"watches\.yaml, line 7: engine: the warm engine cannot be used"):
        chosen("auto", watch_value(more=EMPTY.having(ENGINE, "warm"), line=7))


async def test_each_engine_gets_its_watches_and_one_that_is_not_needed_is_not_opened() -> None:
    given: list[Sequence[Watch]] = []

    async def opens(_parts: OperatorParts, watches: Sequence[Watch]) -> OpenEngine | None:
        given.append(watches)
        return OpenEngine(cast("Any", object())) if watches else None

    others = EnginePlugin(claims=lambda _: lambda watch: watch.line > 1, prepare=unprepared(opens))
    own = EnginePlugin(claims=lambda _: lambda _watch: True, prepare=unprepared(opens))
    never = EnginePlugin(claims=lambda _: lambda _watch: False, prepare=unprepared(opens))
    one, two = watch_value(), watch_value(gvk=GVK("g", "v1", "Other"), line=2)
    plugins = (others, never, own)
    assigned = engines.assigned(plugins, [one, two], sources.load(Namespace(), {}).settings)
    openings = await engines.prepared(plugins, assigned, cast("EngineBase", None), [one, two])
    assert given == []
    opened = await engines.opened(openings, assigned, cast("OperatorParts", None), [one, two])
    assert given == [[two], [], [one]]
    assert opened.of == {two.gvk: opened.all[0], one.gvk: opened.all[1]}


def test_a_fork_server_loads_what_runs_in_each_environment() -> None:
    class Base:
        def environments(self, watch: Watch) -> list[dict[str, str]]:
            return [{"A": "1"}, {"A": "2"}] if watch.mode == "approve" else [{"A": "1"}]

    one, two = watch_value(), watch_value(gvk=GVK("g", "v1", "Other"), mode="approve")
    assert warm._by_environment(cast("EngineBase", Base()), [one, two]) == [
        ({"A": "1"}, [*one.contents, *two.contents]),
        ({"A": "2"}, [*two.contents]),
    ]
