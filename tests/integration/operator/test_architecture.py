"""The modules that an event enters are those of the architecture page."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.places import ROOT
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Things
    from tests.kit.operator import Project

_SECTION = "### Modules"
_ROW = re.compile(r"^\| `(\w+)` \| (.+) \|$", re.MULTILINE)
_OTHERS = re.compile(r"^It also enters (.+?)\.$", re.MULTILINE | re.DOTALL)


def _documented() -> tuple[dict[str, set[str]], set[str]]:
    """Return the modules of the page by package, and the other packages and modules that it names."""
    section = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition(_SECTION)[2].partition("\n## ")[0]
    modules = {package: set(re.findall(r"`([\w/]+)`", names)) for package, names in _ROW.findall(section)}
    return modules, set(re.findall(r"`(\w+)`", "".join(_OTHERS.findall(section))))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring needs Python 3.12")
def test_an_event_enters_the_modules_of_the_architecture_page(project: Project, things: Things) -> None:
    # The watch must deliver the condition `Running` before a run ends: otherwise the write of its result conflicts.
    project.role("thing", "- ansible.builtin.wait_for: {timeout: 2}\n")
    project.watch("thing")
    things.create("one", {"size": 1})
    record = project.folder / "entered.json"
    program = [sys.executable, str(Path(__file__).with_name("entered.py"))]
    operator = project.start(program=program, environment={"ENTERED": str(record)})
    things.await_success("one")
    operator.process.send_signal(signal.SIGUSR1)
    things.merge("one", {"spec": {"size": 2}})
    things.await_success("one")
    wait_until(lambda: len(operator.runs("one")) == 2, "the end of the run")
    operator.process.send_signal(signal.SIGUSR2)
    wait_until(lambda: record.exists() and record.read_text(encoding="utf-8").endswith("]"), "the record")
    entered: dict[str, set[str]] = defaultdict(set)
    for file in json.loads(record.read_text(encoding="utf-8")):
        package, _, module = file.removesuffix(".py").partition("/")
        entered[package].add(module)
    modules, others = _documented()
    assert {package: entered.pop(package) for package in modules} == modules
    assert set(entered) == others
