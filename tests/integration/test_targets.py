"""Each test belongs to exactly one of the Makefile's targets, so no test is left out and none runs twice."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.places import ROOT
from tests.kit.processes import captured

SELECTIONS = {
    "test-unit": "UNIT_TESTS",
    "test-integration": "INTEGRATION_TESTS",
    "test-slow": "FULL_TESTS",
    "nightly-tests": "NIGHTLY_TESTS",
}
MARKS = frozenset({"full", "nightly", "quick"})
"""Marks that occur in selections."""
COLLECT = """
import json, sys, pytest

tests = {}

class Collected:
    def pytest_collection_finish(self, session):
        tests.update({item.nodeid: [mark.name for mark in item.iter_markers()] for item in session.items})

code = pytest.main(sys.argv[1:], plugins=[Collected()])
print(json.dumps(tests), file=sys.stderr)
sys.exit(code)
"""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a target passes to pytest."""

    expression: str
    paths: tuple[str, ...]

    @classmethod
    def of(cls, name: str) -> Selection:
        """Return the value of a variable of the Makefile."""
        (found,) = re.findall(rf"^{name} = (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        option, expression, *paths = shlex.split(found)
        assert option == "-m"
        assert paths
        return cls(expression, tuple(paths))

    def has(self, test: str, marks: Collection[str]) -> bool:
        """Return True if pytest selects a test with these marks."""
        is_there = any(test.startswith(f"{path}/") for path in self.paths)
        return is_there and bool(eval(self.expression, {}, {name: name in marks for name in MARKS}))  # noqa: S307 - ours


def _collected() -> dict[str, set[str]]:
    """Return all tests with those of their marks that targets select by."""
    command = [sys.executable, "-c", COLLECT, "--collect-only", "-q", "-o", "addopts=", "--import-mode=importlib"]
    found = captured(*command, "-p", "no:cacheprovider", "tests", cwd=ROOT)
    assert found.returncode == 0, found.stdout + found.stderr
    return {test: set(MARKS.intersection(marks)) for test, marks in json.loads(found.stderr.splitlines()[-1]).items()}


def _not_once(tests: set[str], selected: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Return the tests that no target selects, or several do, with these targets."""
    counts = Counter(test for selection in selected.values() for test in selection)
    return {
        test: [name for name, selection in selected.items() if test in selection]
        for test in tests | counts.keys()
        if counts[test] != 1
    }


@pytest.mark.full
def test_each_test_belongs_to_exactly_one_target() -> None:
    recipes = (ROOT / "Makefile").read_text()
    for target, variable in SELECTIONS.items():
        assert re.search(rf"^{target}:.*\n\t\$\(BIN\)/pytest \$\({variable}\) ", recipes, re.MULTILINE), target
    tests = _collected()
    selections = {target: Selection.of(variable) for target, variable in SELECTIONS.items()}
    selected = {
        target: {test for test, marks in tests.items() if selection.has(test, marks)}
        for target, selection in selections.items()
    }
    assert all(selected.values())
    assert f"{Path(__file__).relative_to(ROOT)}::test_each_test_belongs_to_exactly_one_target" in selected["test-slow"]
    assert _not_once(set(tests), selected) == {}


def test_a_target_selects_by_marks_and_folders() -> None:
    selection = Selection("not full and not nightly", ("tests/unit", "tests/e2e"))

    assert selection.has("tests/unit/test_a.py::test_a", set())
    assert not selection.has("tests/unit/test_a.py::test_a", {"full"})
    assert not selection.has("tests/united/test_a.py::test_a", set())


def test_a_test_that_no_target_or_two_targets_select_is_found() -> None:
    assert _not_once({"a", "b", "c"}, {"one": {"a", "b"}, "two": {"b"}}) == {"b": ["one", "two"], "c": []}
    assert _not_once({"a", "b"}, {"one": {"a"}, "two": {"b"}}) == {}
