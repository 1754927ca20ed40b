"""How the tasks of runs were executed, and why some of them took a slower way.

A forked run appends a line of JSON to the file `EXECUTIONS` for each task. Its supervisor adds them up and sends the
sum with the run's ending. `execution_log` logs each reason once. Imports nothing heavy: all three need it.

A role can write to the file. Its content never decides the result of a run: other lines are counted and skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

EXECUTIONS = "executions"
"""Name of the file in a run's temporary folder."""
_MOST_DEFECTS = 20
"""Number of defects that one run reports at most."""
_LONGEST_NAME, _LONGEST_DEFECT = 200, 16 * 1024


class Way(Enum):
    """Way in which a task was executed. If a task needed several ways, the last one in this order counts."""

    PLAYBOOK = "playbook_process"
    MODULE = "forked_module"
    WORKER = "forked_worker"
    INTERPRETER = "new_interpreter"


class Reason(Enum):
    """Reason why a task was executed in a forked worker or in a new interpreter."""

    NONE = "none"
    ACTION = "action"
    """The action plugin may do anything to its process."""
    ASYNC = "async"
    BECOME = "become"
    CHANGED_VALUE = "changed_value"
    """A template changes a value in place."""
    COMMAND = "command"
    """The action executes a command through the connection."""
    CONNECTION = "connection"
    """The connection is not `local`, or its shell is not `sh`."""
    DEBUGGER = "debugger"
    DEFECT = "defect"
    """A shortcut raised an exception that it does not expect."""
    ENVIRONMENT = "interpreter_environment"
    """The task sets a variable that an interpreter reads when it starts."""
    EXECUTABLE = "executable"
    EXTENSIONS = "jinja_extensions"
    """The setting `jinja2_extensions` is set: what templates execute is unknown."""
    FORK_FAILED = "fork_failed"
    HOSTS = "several_hosts"
    INTERPRETER = "other_interpreter"
    KEEP_FILES = "keep_remote_files"
    NOT_PYTHON = "not_python"
    PAUSE = "loop_pause"
    PAYLOAD = "payload"
    """Ansible cannot resolve what the module imports, or a file is not Python source."""
    PLUGIN = "plugin"
    """A lookup, filter, test or connection plugin may do anything to its process."""
    RESOURCES = "resources"
    """File descriptors or memory ran out, so that the module could not be forked."""
    RESTARTS = "starts_interpreter"
    """The module may start itself again from its archive: `multiprocessing`, `respawn`."""
    SESSION = "session"
    """The task sets how a worker's processes are isolated."""
    SHELL = "shell_environment"
    """The environment makes the shell do something that only the shell can do."""
    STRATEGY = "strategy"
    SWITCHED_OFF = "switched_off"
    """The shortcut is off: `--warm-without`, or it failed the self-test."""
    TIMEOUT = "timeout"
    VERBOSITY = "verbosity"


@dataclass(frozen=True, slots=True)
class Execution:
    """Tasks of one run that were executed in the same way for the same reason."""

    way: Way
    reason: Reason
    count: int
    name: str
    """Module or action of the first of them."""


@dataclass(frozen=True, slots=True)
class Executions:
    """How the tasks of one run were executed."""

    each: tuple[Execution, ...] = ()
    defects: tuple[str, ...] = ()
    """Tracebacks of exceptions that a shortcut did not expect."""
    malformed: int = 0
    """Number of lines that are not those of a forked run."""

    @property
    def totals(self) -> dict[str, int]:
        """Return the number of tasks by way, and for slower ways by way and reason: `new_interpreter: become`."""
        found: dict[str, int] = {}
        for each in self.each:
            suffix = "" if each.reason is Reason.NONE else f": {each.reason.value}"
            found[f"{each.way.value}{suffix}"] = found.get(f"{each.way.value}{suffix}", 0) + each.count
        return found


def note(path: str, value: Mapping[str, Any]) -> None:
    """Append a line with one system call, so that lines of two processes do not mix."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, json.dumps(value).encode() + b"\n")
        finally:
            os.close(descriptor)


def add_up(lines: Iterable[str]) -> dict[str, Any]:
    """Return the sum of the lines of a run as JSON values."""
    tasks: dict[tuple[Way, Reason], list[Any]] = {}
    defects: list[str] = []
    malformed = 0
    for line in lines:
        try:
            value = json.loads(line)
            if "defect" in value:
                defect = _text(value["defect"], _LONGEST_DEFECT)
                if defect not in defects and len(defects) < _MOST_DEFECTS:
                    defects.append(defect)
                continue
            key, name = (Way(value["way"]), Reason(value["reason"])), _text(value["name"], _LONGEST_NAME)
        except (ValueError, KeyError, TypeError, RecursionError):
            malformed += 1
            continue
        tasks.setdefault(key, [0, name])[0] += 1
    return {
        "tasks": [[way.value, reason.value, *found] for (way, reason), found in tasks.items()],
        "defects": defects,
        "malformed": malformed,
    }


def _text(value: object, longest: int) -> str:
    """Return a text without half characters, which cannot be sent. Raises TypeError for another value."""
    if not isinstance(value, str):
        raise TypeError(type(value))
    return value[:longest].encode(errors="replace").decode()


def parse(value: Mapping[str, Any]) -> Executions:
    """Return the result of `add_up` as objects."""
    each = (Execution(Way(way), Reason(reason), count, name) for way, reason, count, name in value.get("tasks", ()))
    return Executions(tuple(each), tuple(value.get("defects", ())), value.get("malformed", 0))
