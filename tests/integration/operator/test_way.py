"""The way of an event through the core is the one that the architecture page describes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.places import ROOT

if TYPE_CHECKING:
    from tests.kit.objects import Things
    from tests.kit.operator import Project

PAGE = ROOT / "docs/architecture.md"
STEP = re.compile(r"^\| \d+ \| \[([^]]+)\][^|]*\| ([^|]+) \|", re.MULTILINE)


def test_an_event_takes_the_way_that_the_architecture_page_describes(
    project: Project, things: Things, tmp_path: Path
) -> None:
    notes, flag = tmp_path / "notes", tmp_path / "flag"
    project.watch("thing")
    project.role("thing", "- ansible.builtin.debug: {msg: hello}")
    program = (sys.executable, str(Path(__file__).with_name("way.py")), str(notes), str(flag))
    operator = project.start("--engine=exec", program=program)
    flag.touch()
    things.create("one")
    things.await_success("one")
    operator.stop()
    calls = [tuple(line.split(" ", 1)) for line in notes.read_text(encoding="utf-8").splitlines()]
    steps = [(file, name) for file, names in STEP.findall(PAGE.read_text()) for name in re.findall(r"`([^`]+)`", names)]
    assert len(steps) > 10
    rest = iter(calls)
    for step in steps:
        assert step in rest, f"{step} does not follow the steps before it"
