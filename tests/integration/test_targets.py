"""Each test belongs to exactly one of the Makefile's targets, so no test is left out and none runs twice."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SELECTIONS = {
    "test-unit": "UNIT_TESTS",
    "test-integration": "INTEGRATION_TESTS",
    "test-slow": "FULL_TESTS",
    "nightly-tests": "NIGHTLY_TESTS",
}


def _selection(name: str) -> list[str]:
    """Return the arguments of pytest that a variable of the Makefile holds."""
    (found,) = re.findall(rf"^{name} = (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return shlex.split(found)


def _collected(arguments: Collection[str]) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=", "--import-mode=importlib"]
    found = subprocess.run(
        [*command, "-p", "no:cacheprovider", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return {line for line in found.stdout.splitlines() if "::" in line}


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
    selected = {target: _collected(_selection(variable)) for target, variable in SELECTIONS.items()}
    assert all(selected.values())
    tests = _collected(["tests"])
    assert f"{Path(__file__).relative_to(ROOT)}::test_each_test_belongs_to_exactly_one_target" in selected["test-slow"]
    assert _not_once(tests, selected) == {}


def test_a_test_that_no_target_or_two_targets_select_is_found() -> None:
    assert _not_once({"a", "b", "c"}, {"one": {"a", "b"}, "two": {"b"}}) == {"b": ["one", "two"], "c": []}
    assert _not_once({"a", "b"}, {"one": {"a"}, "two": {"b"}}) == {}
