"""Wait for workers without polling.

Ansible polls every millisecond whether a worker has reported, and every 0.1 seconds at a play's end whether the last
one has ended. Here the report itself ends the wait. A slow poll remains, to detect dead workers. Must be imported only
where Ansible is loaded.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ansible import constants
from ansible.executor.task_queue_manager import TaskQueueManager
from ansible.plugins import strategy as strategies
from ansible.plugins.strategy import StrategyBase, free

_LOOK_UP = 0.05
"""Seconds after which a dead worker is detected."""
_SHORT = 0.001
"""Shorter sleeps are for other purposes."""


class _Clock:
    """The module `time` of a strategy, whose `sleep` ends when there is a result."""

    def __init__(self) -> None:
        self.reported = threading.Event()
        self.strategy: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        """Sleep until a worker reports, if the strategy waits for one."""
        if seconds < _SHORT:
            time.sleep(seconds)
        elif self.strategy._pending_results and not self.strategy._results:
            self.reported.wait(max(seconds, _LOOK_UP))
            self.reported.clear()


class _Results(deque[Any]):
    """Results that set an event when one is added."""

    def __init__(self, results: deque[Any], reported: threading.Event) -> None:
        super().__init__(results)
        self._reported = reported

    def append(self, item: Any, /) -> None:
        super().append(item)
        self._reported.set()


def install() -> None:
    """Install waiting for events in strategies."""
    clock = _Clock()
    for module in (strategies, free):
        module.time = clock
    init: Callable[..., None] = StrategyBase.__init__

    @functools.wraps(init)
    def init_strategy(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        with self._results_lock:
            self._results = _Results(self._results, clock.reported)
        clock.strategy = self
        if hasattr(self, "_rpc_queue"):
            _report_requests(self._rpc_queue, clock.reported)

    StrategyBase.__init__ = init_strategy
    _hook_cleanup()


def _report_requests(requests: Any, reported: threading.Event) -> None:
    """Also end the wait for requests of a worker."""
    put: Callable[..., None] = requests.put

    def put_request(*args: Any, **kwargs: Any) -> None:
        put(*args, **kwargs)
        reported.set()

    requests.put = put_request


def _hook_cleanup() -> None:
    cleanup: Callable[..., Any] = TaskQueueManager._cleanup_processes

    @functools.wraps(cleanup)
    def cleanup_processes(self: Any) -> Any:
        deadline = time.monotonic() + constants.WORKER_SHUTDOWN_POLL_DELAY
        for worker in getattr(self, "_workers", ()):
            if worker is not None and worker.is_alive():
                worker.join(max(0.0, deadline - time.monotonic()))
        return cleanup(self)

    TaskQueueManager._cleanup_processes = cleanup_processes
