"""Handover of a task from the playbook's process to a worker in the middle of the task.

`multiprocessing` forks and calls a function; here the forked process continues in place. Owns the steps that turn it
into a worker, and its end. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing import popen_fork, process, util
from typing import Any, NoReturn

from ansible.executor.process import worker as workers
from ansible.utils.display import Display


class _Here(popen_fork.Popen):
    """A forked process that continues in place."""

    pid: int
    sentinel: int
    finalizer: Any

    def _launch(self, process_obj: Any) -> None:
        del process_obj
        parent_reader, child_writer = os.pipe()
        child_reader, parent_writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(parent_reader)
            os.close(parent_writer)
            self.sentinel = child_reader
            return
        os.close(child_writer)
        os.close(child_reader)
        self.finalizer = util.Finalize(self, util.close_fds, (parent_reader, parent_writer))  # type: ignore[attr-defined]
        self.sentinel = parent_reader


def fork(worker: Any, start: Callable[[Any], Any]) -> bool:
    """Start a worker that continues in place. Return True in the worker."""
    worker._Popen = _Here
    start(worker)
    if worker._popen.pid:
        return False
    _become(worker)
    return True


def _become(worker: Any) -> None:
    """Repeat the steps of `multiprocessing` and Ansible at the start of a worker."""
    current: Any = process
    atexit._clear()
    atexit.register(util._exit_function)  # type: ignore[attr-defined]  # not in its stub
    current._children = set()
    current._current_process = worker
    current._parent_process = current._ParentProcess(worker._parent_name, worker._parent_pid, worker._popen.sentinel)
    util._finalizer_registry.clear()  # type: ignore[attr-defined]  # as above
    util._run_after_forkers()  # type: ignore[attr-defined]  # as above
    display: Any = Display()
    display._final_q = worker._final_q
    workers.current_worker = worker
    if hasattr(worker, "_detach"):
        worker._detach()
        signal.signal(signal.SIGINT, worker._term)
        signal.signal(signal.SIGTERM, worker._term)


def end() -> NoReturn:
    """End like a worker. If an exception is being handled, report it."""
    code = 0
    if sys.exc_info()[0] is not None:
        display: Any = Display()
        display.error(traceback.format_exc())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    util._flush_std_streams()  # type: ignore[attr-defined]  # not in its stub
    atexit._run_exitfuncs()
    os._exit(code)
