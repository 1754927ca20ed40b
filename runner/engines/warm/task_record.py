"""Record of how tasks are executed, for the self-test and for tests. Ordinary runs record only defects.

A process records its tasks if it has the environment variable `RECORDED`. The record is part of the run's notes, to
which a role can write too.
"""

from __future__ import annotations

import os
import traceback
from typing import NamedTuple

from runner.engines.warm import messages

RECORDED = "ANSIBLE_OPERATOR_RECORD_TASKS"
PLAYBOOK, MODULE, WORKER, INTERPRETER = "playbook_process", "forked_module", "forked_worker", "new_interpreter"
"""Ways of execution."""
_LONGEST_DEFECT = 16 * 1024


class TaskExecution(NamedTuple):
    """Execution of a task, or of its module."""

    way: str
    name: str
    """Its action or module."""
    reason: str = ""
    """Why it took no faster way."""


def add(way: str, name: str, reason: str = "") -> None:
    """Record how a task, or its module, is executed."""
    if RECORDED in os.environ:
        messages.note(os.environ, {"task": TaskExecution(way, str(name), reason)})


def defect(shortcut: str) -> None:
    """Record the exception that is being handled as a defect of a shortcut."""
    messages.note(os.environ, {"defect": f"shortcut {shortcut}: {traceback.format_exc()}"[-_LONGEST_DEFECT:]})


def executions(notes: str) -> tuple[TaskExecution, ...]:
    """Return the executions in a run's notes."""
    return tuple(TaskExecution(*map(str, value)) for value in messages.noted(notes, "task"))


def defects(notes: str) -> tuple[str, ...]:
    """Return the tracebacks of defects in a run's notes."""
    tracebacks = (value for value in messages.noted(notes, "defect") if isinstance(value, str))
    return tuple(value[:_LONGEST_DEFECT].encode(errors="replace").decode() for value in dict.fromkeys(tracebacks))
