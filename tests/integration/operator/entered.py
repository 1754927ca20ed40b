"""`ansible-operator` that records which of its modules a reconcile enters, for `test_architecture.py`.

SIGUSR1 starts a record; SIGUSR2 writes its modules to the file of `ENTERED`. Only tasks of controllers and their
threads count: measurements, probes and watches of dependents run all the time.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from types import CodeType

import runner
from runner.cli.main import main

_ROOT = str(Path(runner.__file__).parent) + os.sep
_entered: dict[str, set[str]] = {}


def _root() -> str:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return "thread"
    return getattr(task.get_coro(), "__qualname__", "?") if task is not None else "loop"


def _started(code: CodeType, _offset: int) -> object:
    if code.co_filename.startswith(_ROOT) and code.co_name != "<module>":
        _entered.setdefault(code.co_filename.removeprefix(_ROOT), set()).add(f"{_root()}: {code.co_qualname}")
    return None


def _start(*_: object) -> None:
    _entered.clear()
    sys.monitoring.set_events(sys.monitoring.PROFILER_ID, sys.monitoring.events.PY_START)


def _write(*_: object) -> None:
    sys.monitoring.set_events(sys.monitoring.PROFILER_ID, 0)
    Path(os.environ["ENTERED"]).write_text(json.dumps({name: sorted(by) for name, by in _entered.items()}))


sys.monitoring.use_tool_id(sys.monitoring.PROFILER_ID, "entered modules")
sys.monitoring.register_callback(sys.monitoring.PROFILER_ID, sys.monitoring.events.PY_START, _started)
signal.signal(signal.SIGUSR1, _start)
signal.signal(signal.SIGUSR2, _write)
sys.exit(main())
