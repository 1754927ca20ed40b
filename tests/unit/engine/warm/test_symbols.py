"""The list of private symbols that the warm engine uses, and their changes between two versions of ansible-core."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import symbols
from bench.symbols import Core, Uses
from hack import next_core

STRATEGY = """
class StrategyBase:
    def __init__(self):
        self._pending = 0
        self._results = []

    def _queue_task(self, host, task):
        '''Documentation.'''
        return host
"""
LISTED = """
from ansible.plugins import strategy
from ansible.plugins.strategy import StrategyBase

class Own:
    def __init__(self):
        self._own = 1

def install(worker):
    queue = StrategyBase._queue_task
    StrategyBase.run = queue
    base = strategy.StrategyBase
    return base._queue_task, worker._pending, getattr(worker, "_results"), Own()._own
"""


def core(folder: Path, text: str) -> Core:
    package = folder / "ansible"
    (package / "plugins" / "strategy").mkdir(parents=True)
    for path in (package, package / "plugins"):
        (path / "__init__.py").touch()
    (package / "plugins/strategy/__init__.py").write_text(text, encoding="utf-8")
    return Core(package)


def used(core: Core, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Uses:
    (folder / "engine/patches").mkdir(parents=True)
    (folder / "engine/patches/tasks.py").write_text(LISTED, encoding="utf-8")
    monkeypatch.setattr(symbols, "ENGINE", folder / "engine")
    return symbols.uses(core)


def test_symbols_are_found_by_imports_attributes_and_names_in_strings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = used(core(tmp_path, STRATEGY), tmp_path, monkeypatch)

    assert found.by_part == {
        "tasks": {
            "ansible.plugins.strategy.StrategyBase._queue_task",
            "ansible.plugins.strategy.StrategyBase.run",
            "*._pending",
            "*._results",
        }
    }


@pytest.mark.parametrize(
    ("old", "new", "symbol", "change"),
    [
        (
            "(self, host, task)",
            "(self, host, task, play)",
            "StrategyBase._queue_task",
            "signature (self, host, task, play)",
        ),
        ("return host", "return task", "StrategyBase._queue_task", "source"),
        ("_queue_task", "_queue", "StrategyBase._queue_task", "gone"),
        ("self._pending = 0", "", "*._pending", "gone"),
        ("Documentation", "Other documentation", "", ""),
    ],
)
def test_a_change_of_a_private_symbol_is_named(
    old: str, new: str, symbol: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = core(tmp_path / "before", STRATEGY)
    after = core(tmp_path / "after", STRATEGY.replace(old, new))

    found = next_core.changes(used(before, tmp_path, monkeypatch), before, after)

    assert {name.removeprefix("ansible.plugins.strategy."): how for name, how in found.items()} == (
        {symbol: change} if symbol else {}
    )


def test_the_table_has_a_line_for_each_shortcut_with_its_problem_and_its_changed_symbols() -> None:
    listed = Uses({"tasks": {"a._b", "a._c"}, "server": {"a._c"}})

    assert list(next_core.table({"tasks": "", "modules": "ImportError: _x"}, listed, {"a._b": "gone"})) == [
        "| shortcut | self-test | private symbols | changed |",
        "|---|---|---|---|",
        "| modules | ImportError: _x | 0 | 0 |",
        "| server | has none | 1 | 0 |",
        "| tasks | passes | 2 | 1 |",
    ]
