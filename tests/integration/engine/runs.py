"""Tiny real roles and playbooks, run by the real engine."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from runner.base.config.settings import EngineName
from runner.core.engine.job import Event, EventSink, Job, RunResult
from runner.core.watches.watch import Content, Playbook, Role
from runner.engines.warm import task_record
from runner.engines.warm.task_record import TaskExecution
from runner.values.objects import ObjectKey
from tests.kit.engines import ProcessEngines
from tests.kit.jobs import job_value

ENGINE: Any = os.environ.get("ANSIBLE_OPERATOR_ENGINE", "warm")
"""`exec` tests the other engine."""
WITHOUT = frozenset(filter(None, os.environ.get("ANSIBLE_OPERATOR_WARM_WITHOUT", "").split(",")))
"""Shortcuts that are not taken."""
ANSIBLE_MASK = "$REDACTED$" if find_spec("ansible.module_utils.secrets") else ""
"""What ansible-core shows instead of secrets that it knows, since 2.22; empty if it knows none."""


@dataclass
class Ran:
    """A run that has ended: its result, its events, and how its tasks were executed if it was forked."""

    result: RunResult
    events: list[Event]
    executions: tuple[TaskExecution, ...] = ()

    @property
    def ways(self) -> dict[str, int]:
        """Return the number of tasks by way, and for slower ways by way and reason: `new_interpreter: become`."""
        return dict(Counter(": ".join(filter(None, (each.way, each.reason))) for each in self.executions))

    def of(self, name: str) -> list[Event]:
        return [event for event in self.events if event["event"] == name]

    def said(self, task: str) -> Any:
        """Return the `msg` of a debug task."""
        found = [event for event in self.of("runner_on_ok") if event["event_data"]["task"].endswith(task)]
        assert found, f"no task {task!r}: {self.result} {[event.get('stdout') for event in self.events]}"
        return found[-1]["event_data"]["res"]["msg"]


@dataclass
class Runs:
    """Starts runs of one object in a folder of the test's own."""

    engine: ProcessEngines
    root: Path
    content: Path
    namespace: str
    notes: list[str]
    """Gets the notes of each forked run."""
    idents: Any = field(default_factory=itertools.count)

    @property
    def run_dir(self) -> Path:
        return self.root / "cache.example.com" / "v1alpha1" / "Memcached" / self.namespace / "sample"

    def playbook(self, text: str, name: str = "playbook.yml") -> Playbook:
        path = self.content / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return Playbook(path)

    def tasks(self, text: str) -> Playbook:
        """Make a playbook of tasks that are written from the first column on."""
        indented = "".join(f"    {line}\n" for line in text.strip("\n").split("\n"))
        return self.playbook(f"- hosts: localhost\n  gather_facts: false\n  tasks:\n{indented}")

    def role(self, name: str, files: Mapping[str, str]) -> Role:
        path = self.content / "roles" / name
        for file, text in files.items():
            (path / file).parent.mkdir(parents=True, exist_ok=True)
            (path / file).write_text(text, encoding="utf-8")
        return Role(name, path)

    def job(self, content: Content, **changes: Any) -> Job:
        fields: dict[str, Any] = {
            "ident": f"run-{next(self.idents)}",
            "key": ObjectKey(self.namespace, "sample"),
            "run_dir": self.run_dir,
            "deadline": 120.0,
        }
        return job_value(content=content, **{**fields, **changes})

    async def run(
        self, content: Content, sink: EventSink | None = None, engine: EngineName | None = None, **changes: Any
    ) -> Ran:
        events: list[Event] = []

        def keep(event: Event) -> None:
            events.append(event)
            if sink:
                sink(event)

        # The name of the test is no reason for another fork server.
        os.environ.pop("PYTEST_CURRENT_TEST", None)
        before = len(self.notes)
        result = await self.engine.run(self.job(content, **changes), keep, engine)
        return Ran(result, events, task_record.executions("\n".join(self.notes[before:])))
