"""`ansible-operator` that records which of its modules an event enters, for `test_architecture.py`.

SIGUSR1 starts a record, SIGUSR2 writes its modules to the file of `ENTERED`. Measurements, probes and the writer of
Events run all the time, so their tasks do not count.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from types import CodeType
from typing import Any

import runner
from runner.cli.main import main

_ROOT = str(Path(runner.__file__).parent) + os.sep
_monitoring: Any = vars(sys)["monitoring"]  # Python 3.12 and later
_TOOL = _monitoring.PROFILER_ID
_ELSEWHERE = ("HealthChecks.", "Metrics.", "EventRecorder.", "AdminServers.")
"""Beginnings of the names of tasks that have nothing to do with an event of an object."""
_entered: set[str] = set()


def _task() -> str:
    """Return the name of the current task's coroutine; empty outside a task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return ""
    return str(getattr(task.get_coro(), "__qualname__", "")) if task is not None else ""


def _note(code: CodeType, _offset: int) -> None:
    is_ours = code.co_filename.startswith(_ROOT) and code.co_name != "<module>"
    if is_ours and not _task().startswith(_ELSEWHERE):
        _entered.add(code.co_filename.removeprefix(_ROOT))


def _start(*_: object) -> None:
    _entered.clear()
    _monitoring.set_events(_TOOL, _monitoring.events.PY_START)


def _write(*_: object) -> None:
    _monitoring.set_events(_TOOL, 0)
    Path(os.environ["ENTERED"]).write_text(json.dumps(sorted(_entered)), encoding="utf-8")


_monitoring.use_tool_id(_TOOL, "entered modules")
_monitoring.register_callback(_TOOL, _monitoring.events.PY_START, _note)
signal.signal(signal.SIGUSR1, _start)
signal.signal(signal.SIGUSR2, _write)
sys.exit(main())
