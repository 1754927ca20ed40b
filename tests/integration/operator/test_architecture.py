"""The modules that one event enters are those of the architecture page."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.integration.operator.conftest import Eventually, Project, Things


def test_one_event(project: Project, things: Things, eventually: Eventually) -> None:
    project.role("thing", "- ansible.builtin.debug: {msg: hello}\n")
    project.watch("thing")
    things.create("one", {"size": 1})
    found = project.folder / "entered.json"
    program = [sys.executable, str(Path(__file__).with_name("entered.py"))]
    operator = project.start(program=program, environment={"ENTERED": str(found)})
    things.await_success("one")
    operator.process.send_signal(signal.SIGUSR1)
    things.merge("one", {"spec": {"size": 2}})
    things.await_success("one")
    operator.process.send_signal(signal.SIGUSR2)
    eventually(found.exists, "the record")
    data = json.loads(found.read_text())
    for name, by in sorted(data.items()):
        print(name, by)
    print(len(data))
    assert 0
