"""Record of how the current task is executed, in the playbook's process and in its workers.

`begin` opens a record, shortcuts add the ways that the task takes, and the slowest of them is appended to the run's
file of executions. A task that moves to a worker is recorded by the worker.
"""

from __future__ import annotations

import contextlib
import functools
import os
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.engine import executions
from runner.engine.executions import Reason, Way

_ORDER = {way: position for position, way in enumerate(Way)}


@dataclass
class _Task:
    name: str
    way: Way
    reason: Reason
    module: str = ""


@dataclass
class _Process:
    """State of this process."""

    path: str = ""
    playbook: int = 0
    """Pid of the playbook's process."""
    reason: Reason = Reason.SWITCHED_OFF
    """Why the next worker is forked."""
    task: _Task | None = None


_process = _Process()


def start(folder: str) -> None:
    """Start recording in this run; `folder` is the run's temporary folder."""
    _process.path = str(Path(folder, executions.EXECUTIONS))
    _process.playbook = os.getpid()


def expect(reason: Reason) -> None:
    """Set why the next worker is forked."""
    _process.reason = reason


@contextlib.contextmanager
def recorded(name: str) -> Iterator[None]:
    """Record the task that is executed in this context. If it raises, another process executes and records it."""
    here = os.getpid() == _process.playbook
    _process.task = task = _Task(name, *((Way.PLAYBOOK, Reason.NONE) if here else (Way.WORKER, _process.reason)))
    try:
        yield
    finally:
        _process.task = None
    if _process.path:
        value = {"way": task.way.value, "reason": task.reason.value, "name": task.module or task.name}
        executions.note(_process.path, value)


def add(way: Way, reason: Reason = Reason.NONE, module: str = "") -> None:
    """Add a way in which the current task is executed."""
    task = _process.task
    if task is not None and _ORDER[way] > _ORDER[task.way]:
        task.way, task.reason, task.module = way, reason, module


def defect(shortcut: str) -> None:
    """Record the exception that is being handled as a defect of a shortcut."""
    if _process.path:
        executions.note(_process.path, {"defect": f"shortcut {shortcut}: {traceback.format_exc()}"})


def hook() -> None:
    """Install recording in Ansible's workers."""
    from ansible.executor.process.worker import WorkerProcess  # noqa: PLC0415 - only where Ansible is loaded

    run: Callable[..., Any] = WorkerProcess._run  # noqa: SLF001 - there is no public name

    @functools.wraps(run)
    def run_recorded(self: Any) -> Any:
        with recorded(str(self._task.action)):
            return run(self)

    WorkerProcess._run = run_recorded  # noqa: SLF001 - as above
