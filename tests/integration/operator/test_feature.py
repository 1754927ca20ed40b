"""The example of a feature works when it is added as its page says."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.places import ROOT

if TYPE_CHECKING:
    from tests.kit.objects import Things
    from tests.kit.operator import Project

PAGE = (ROOT / "docs/add-a-feature.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples/feature/slowruns"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with the package `runner`, to which the feature was added."""
    shutil.copytree(ROOT / "runner", tmp_path / "copy/runner", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(EXAMPLE, tmp_path / "copy/runner/features/slowruns")
    for block in re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL):
        context, *added = [line[1:] for line in block.splitlines()]
        file = tmp_path / "copy/runner/app/features.py"
        text = file.read_text(encoding="utf-8")
        assert f"{context}\n" in text
        file.write_text(text.replace(f"{context}\n", "\n".join((context, *added, "")), 1), encoding="utf-8")
    return tmp_path / "copy"


@pytest.mark.parametrize("name", ["fields", "hooks", "feature"])
def test_the_page_shows_the_code_of_the_example(name: str) -> None:
    code = (EXAMPLE / f"{name}.py").read_text(encoding="utf-8")
    shown = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if block in code]
    assert len(shown) == 1


def test_the_example_reports_runs_that_take_longer_than_expected(project: Project, things: Things, copy: Path) -> None:
    project.watch("thing", expectedWithin="500ms")
    project.role("thing", "- ansible.builtin.command: sleep 1")
    operator = project.start(environment={"PYTHONPATH": str(copy)}, program=(sys.executable, "-m", "runner"))
    things.create("slow")
    slow = things.await_condition("slow", "Slow")
    assert slow["reason"] == "TookLonger"
    assert slow["message"].endswith("0.5 s are expected")
    assert 'slow_runs_total{GVK="test.example.com/v1, Kind=Thing"} 1.0' in operator.get("/metrics")
