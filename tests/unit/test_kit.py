"""What may import what, and how long tests wait: helpers are in tests/kit, or beside the tests of one area."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.kit import wait
from tests.kit.places import ROOT

_IMPORT = re.compile(r"^[ ]*(?:from|import) (tests[\w.]*)(?: import (\w+))?", re.MULTILINE)


def _imported(*folders: str) -> set[str]:
    """Modules of tests that are imported in these folders, as `importing file: imported module`."""
    return {
        f"{file.relative_to(ROOT)}: {'.'.join(filter(None, found.groups()))}"
        for folder in folders
        for file in (ROOT / folder).rglob("*.py")
        for found in _IMPORT.finditer(file.read_text(encoding="utf-8"))
    }


@pytest.mark.lengthy
def test_no_module_imports_from_a_conftest() -> None:
    assert {each for each in _imported("bench", "hack", "tests") if "conftest" in each.partition(": ")[2]} == set()


def test_benchmarks_scripts_and_the_demo_import_nothing_of_tests_but_the_kit() -> None:
    imported = _imported("bench", "hack")
    assert any(each.startswith("hack/demo.py") for each in imported)
    assert {each for each in imported if not each.partition(": ")[2].startswith("tests.kit.")} == set()


_PLACES = {"asyncio.timeout": 0, "asyncio.wait_for": 1, "wait": 0, "join": 0, "wait_until": 2, "until": 2}
"""Calls that wait, with the argument that is their limit."""
_NAMED = re.compile(
    r"(run|captured|merged|join|wait|wait_for|communicate|urlopen|request|create_connection|HTTP\w+|wait_until|until)$"
)
"""Calls whose limit is named."""
_LEAST = 5
"""Fewer seconds are the length of something, or a moment in which nothing may happen."""
_TIMEOUT = re.compile(r"--timeout=\d+s")
_LIMITED = {
    "tests/e2e/test_demo.py": "the whole demo, which has its own patience",
    "tests/integration/examples/test_fleet.py": "a host that is cut off is silent",
    "tests/integration/image/probe.py": "a program in a pod, which has no kit",
    "tests/integration/image/writer.py": "the same",
    "tests/features/replicas/integration/test_faults.py": "dozens of faults",
    "tests/integration/test_bench.py": "a whole benchmark",
    "tests/kit/ssh_hosts.py": "an address without a host is silent",
    "tests/features/rights/unit/test_check.py": "virtual time",
    "tests/features/rollout/unit/test_state.py": "no time at all",
    "tests/unit/workqueue/test_queue.py": "virtual time",
}
"""Files with limits of their own, and why."""


@pytest.mark.parametrize(("load", "times"), [(0.0, 1), (2.0, 1), (6.0, 3), (100.0, 5)])
def test_patience_grows_with_the_load_of_each_processor(
    monkeypatch: pytest.MonkeyPatch, load: float, times: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))

    assert wait.patience() == wait.PATIENCE * times


def _limits(text: str) -> Iterator[str]:
    """Yield what waits for a number of seconds, and not for the patience of `kit/wait.py`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _TIMEOUT.fullmatch(node.value):
            yield node.value
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            name = name if name.startswith("asyncio.") else name.rpartition(".")[2]
            limits = [
                each.value for each in node.keywords if each.arg in {"timeout", "deadline"} and _NAMED.search(name)
            ]
            limits += node.args[_PLACES[name] :][:1] if name in _PLACES else []
            numbers = [each.value for each in limits if isinstance(each, ast.Constant)]
            if any(isinstance(number, int | float) and number >= _LEAST for number in numbers):
                yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.lengthy
def test_what_waits_has_the_patience_of_the_kit() -> None:
    files = {
        str(file.relative_to(ROOT)): file for file in (ROOT / "tests").rglob("*.py") if "project" not in file.parts
    }
    limits = {name: [*_limits(file.read_text(encoding="utf-8"))] for name, file in files.items()}

    assert {name: found for name, found in limits.items() if found and name not in _LIMITED} == {}
    assert [name for name in _LIMITED if not limits.get(name)] == [], "exceptions that nothing needs"
