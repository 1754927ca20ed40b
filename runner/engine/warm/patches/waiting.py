"""Waiting for workers without asking again and again.

Ansible looks every millisecond whether a worker has reported, and each tenth of a second, at a play's end, whether
the last one is gone. Here the report itself wakes the one who waits; it still looks up now and then, for workers that
died. Must be imported only where Ansible is loaded.
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
"""Seconds after which a dead worker is noticed."""
_SHORT = 0.001
"""Sleeps that are shorter wait for something else."""


class _Clock:
    """The module `time` of a strategy, whose sleep ends when there is something to do."""

    def __init__(self) -> None:
        self.news = threading.Event()
        self.strategy: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        """Sleep until a worker reports, if that is what there is to wait for."""
        if seconds < _SHORT:
            time.sleep(seconds)
        elif self.strategy._pending_results and not self.strategy._results:
            self.news.wait(max(seconds, _LOOK_UP))
            self.news.clear()


class _Results(deque[Any]):
    """Tells when a result has come."""

    def __init__(self, results: deque[Any], news: threading.Event) -> None:
        super().__init__(results)
        self._news = news

    def append(self, item: Any, /) -> None:
        super().append(item)
        self._news.set()


def install() -> None:
    """Have strategies wait for news."""
    clock = _Clock()
    for module in (strategies, free):
        module.time = clock
    init: Callable[..., None] = StrategyBase.__init__

    @functools.wraps(init)
    def init_strategy(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        with self._results_lock:
            self._results = _Results(self._results, clock.news)
        clock.strategy = self
        if hasattr(self, "_rpc_queue"):
            _tell_of_requests(self._rpc_queue, clock.news)

    StrategyBase.__init__ = init_strategy
    _hook_cleanup()


def _tell_of_requests(requests: Any, news: threading.Event) -> None:
    """Wake up for what a worker asks for, too."""
    put: Callable[..., None] = requests.put

    def put_request(*args: Any, **kwargs: Any) -> None:
        put(*args, **kwargs)
        news.set()

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
