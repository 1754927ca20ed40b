"""Record of how the current task is executed, in the playbook's process and in its workers.

`begin` opens a record, shortcuts add the ways that the task takes, and `end` appends the slowest of them to the run's
file of executions. A task that moves to a worker is recorded by the worker.
"""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable
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


def begin(name: str) -> None:
    """Open the record of a task that this process executes."""
    here = os.getpid() == _process.playbook
    _process.task = _Task(name, *((Way.PLAYBOOK, Reason.NONE) if here else (Way.WORKER, _process.reason)))


def end() -> None:
    """Write the record of the current task, if it is open."""
    task, _process.task = _process.task, None
    if task and _process.path:
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
    """Install recording in Ansible's workers.

    A record is written before the result is sent: Ansible ends the workers of a play as soon as it has all results. A
    task without a result is executed again by another process, which records it.
    """
    from ansible.executor.process.worker import WorkerProcess  # noqa: PLC0415 - only where Ansible is loaded
    from ansible.executor.task_queue_manager import FinalQueue  # noqa: PLC0415 - as above

    run: Callable[..., Any] = WorkerProcess._run  # noqa: SLF001 - there is no public name
    send: Callable[..., Any] = FinalQueue.send_task_result

    @functools.wraps(run)
    def begin_and_run(self: Any) -> Any:
        begin(str(self._task.action))
        return run(self)

    @functools.wraps(send)
    def end_and_send(*args: Any, **kwargs: Any) -> Any:
        end()
        return send(*args, **kwargs)

    WorkerProcess._run = begin_and_run  # noqa: SLF001 - as above
    FinalQueue.send_task_result = end_and_send
