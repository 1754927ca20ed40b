"""Tasks without the fork of a worker.

These tasks run in the playbook's process:

- tasks that are executed on the controller only;
- skipped tasks;
- in a play with one host, tasks whose modules are forked.

Hooks into Ansible where it would start a worker. The worker's own code then runs in this process, on copies of the data
that a fork would have copied. Its reports pass through the serialization of the queue into the strategy's own handling,
at the time at which a worker's results would be read.

`guard` ensures that only known code runs. A task that it stops had no effect yet, and starts in a worker. Must be
imported only where Ansible is loaded.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import io
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import ansible
from ansible.executor.process import worker as workers
from ansible.executor.process.worker import WorkerProcess
from ansible.executor.task_queue_manager import FinalQueue
from ansible.plugins import strategy as strategies
from ansible.plugins.strategy import StrategyBase
from ansible.utils.display import Display

from runner.engines.warm import task_record, versions
from runner.engines.warm.patches import actions, guard
from runner.engines.warm.patches.actions import Kind
from runner.engines.warm.patches.guard import UnforkedTask

_STRATEGIES = frozenset({"debug", "free", "host_pinned", "linear"})
_STRATEGY_FOLDER = Path(ansible.__file__).parent / "plugins" / "strategy"


class _Reports(FinalQueue):  # type: ignore[misc]  # Ansible has no types
    """Queue that receives a worker's reports, in the form in which they would arrive."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._thread = threading.get_ident()
        self._real: Any = None

    def __bool__(self) -> bool:
        # Ansible's display checks whether it has a queue; only this task's thread has one.
        return threading.get_ident() == self._thread

    def put(self, obj: Any) -> None:
        if self._real is not None:
            self._real.put(obj)
        else:
            self._items.append(_sent(obj))

    def get(self) -> Any:
        return self._items.pop(0) if self._items else strategies.StrategySentinel()

    def pass_on(self, to: Any) -> None:
        """Send the stored reports, and from now on each new one."""
        self._real = to
        while self._items:
            to.put(self._items.pop(0))


def _sent(thing: Any) -> Any:
    """Return the object as it would arrive at the other end of a queue.

    The reducer of a type is looked up in a plain dictionary. The queue's own pickler has a chain of dictionaries, which
    Python code searches for each tagged value.
    """
    taken_apart = io.BytesIO()
    pickler = pickle.Pickler(taken_apart)
    pickler.dispatch_table = {**copyreg.dispatch_table, **ForkingPickler._extra_reducers}  # type: ignore[attr-defined]
    pickler.dump(thing)
    return ForkingPickler.loads(taken_apart.getbuffer())


class _Reader:
    """A strategy that reads its results from another queue."""

    def __init__(self, strategy: Any, reports: _Reports) -> None:
        self._strategy = strategy
        self._final_q = reports

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strategy, name)


class _Stream:
    """A standard stream with the method of a worker's that returns output past the display."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def getvalue(self) -> str:
        """Return an empty string: code that prints past the display does not run here."""
        return ""


def install(*, with_modules: bool, with_clients: bool) -> None:
    """Install the execution of tasks in this process. Tasks with modules need both shortcuts for modules."""
    if not guard.is_supported():
        task_record.add(task_record.WORKER, "any task", "jinja_extensions")
        return
    guard.install(with_clients=with_clients)
    _queue_late()
    current: list[Any] = []
    _hook_queue(current)
    _hook_start(current, with_modules=with_modules)
    _hook_results()


class _LateQueue:
    """Replacement for a worker's queue until the worker starts. Most never start; a queue costs five system calls."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def _queue_late() -> None:
    initialise: Callable[..., Any] = WorkerProcess.__init__
    real = workers.WorkerQueue

    @functools.wraps(initialise)
    def initialised(self: Any, *args: Any, **options: Any) -> None:
        # Only temporarily: the class itself is referenced by this name during its creation.
        workers.WorkerQueue = lambda **how: _LateQueue(functools.partial(real, **how))
        try:
            initialise(self, *args, **options)
        finally:
            workers.WorkerQueue = real

    WorkerProcess.__init__ = initialised


def _hook_queue(current: list[Any]) -> None:
    queue: Callable[..., Any] = StrategyBase._queue_task

    @functools.wraps(queue)
    def queue_task(self: Any, *args: Any, **kwargs: Any) -> Any:
        current.append(self)
        try:
            return queue(self, *args, **kwargs)
        finally:
            current.pop()

    StrategyBase._queue_task = queue_task


def _hook_start(current: list[Any], *, with_modules: bool) -> None:
    begin: Callable[..., Any] = WorkerProcess.start

    def start(worker: Any, reason: str) -> Any:
        task_record.add(task_record.WORKER, worker._task.action, reason)
        worker.worker_queue = worker.worker_queue.make()
        return begin(worker)

    @functools.wraps(begin)
    def start_worker(self: Any) -> Any:
        strategy = current[-1] if current else None
        alone, reason = False, "strategy"
        if strategy is not None and _is_known(strategy):
            alone = with_modules and len(self._task_vars.get("ansible_play_batch", ())) == 1
            reason = _obstacle(self._task, with_modules=alone)
        if reason:
            return start(self, reason)
        reports = _Here(self, start, with_modules=alone).run()
        if reports is not None:
            strategy.__dict__.setdefault("_warm_reports", []).append(reports)
        return None

    WorkerProcess.start = start_worker


class _Here:
    """One task that runs in this process."""

    def __init__(self, worker: Any, start: Callable[[Any, str], Any], *, with_modules: bool) -> None:
        self._worker = worker
        self._start = start
        self._reports = _Reports()
        self._unforked = UnforkedTask(self._commit, with_modules)

    def run(self) -> _Reports | None:
        """Run the task. Return its reports, or None if they arrive like a worker's."""
        try:
            with guard.run_unforked(self._unforked), _as_worker(self._reports):
                versions.run_worker(_worker_in_this_process(self._worker, self._reports))
        except guard.NeedsFork as need:
            reason = need.reason
        else:
            task_record.add(task_record.PLAYBOOK, self._worker._task.action)
            return None if self._unforked.committed else self._reports
        # Outside the handler: otherwise an exception of the worker would be reported as raised while handling another.
        self._start(self._worker, reason)
        return None

    def _commit(self) -> None:
        self._reports.pass_on(self._worker._final_q)


def _is_known(strategy: Any) -> bool:
    """Return True if a strategy is Ansible's own."""
    return _is_of_ansible(sys.modules[type(strategy).__module__])


@functools.cache
def _is_of_ansible(module: Any) -> bool:
    file = Path(getattr(module, "__file__", None) or os.sep)
    return file.parent == _STRATEGY_FOLDER and file.stem in _STRATEGIES


def _obstacle(task: Any, *, with_modules: bool) -> str:
    """Return why a task should start in a worker; empty if it may start here."""
    if task.timeout or task.async_val:
        return "timeout" if task.timeout else "async"
    if task.loop_control and task.loop_control.pause and not with_modules:
        return "loop_pause"
    kind = actions.kind_of(task)
    if kind is Kind.ON_CONTROLLER or (kind is Kind.OF_MODULES and with_modules):
        return ""
    if task.when or task.loop is not None:
        return ""  # it may be skipped
    return "several_hosts" if kind is Kind.OF_MODULES else "action"


def _worker_in_this_process(worker: Any, reports: _Reports) -> Any:
    """Return a worker whose process is this one, with copies of all data that it may change."""
    own = _copy(worker)
    own._final_q = reports
    own._task = worker._task.copy(exclude_parent=True, exclude_tasks=True)
    own._task._parent = worker._task._parent
    own._task_vars = worker._task_vars.copy()
    own._host = _copy(worker._host)
    own._play_context = worker._play_context.copy()
    own._loader = _copy(worker._loader)
    own._loader._FILE_CACHE = dict(worker._loader._FILE_CACHE)
    own._new_stdin = io.StringIO()
    return own


def _copy(thing: Any) -> Any:
    """Return a shallow copy of an object, without its own copy methods, which are for transfers between processes."""
    fresh = object.__new__(type(thing))
    fresh.__dict__.update(thing.__dict__)
    return fresh


@contextlib.contextmanager
def _as_worker(reports: _Reports) -> Iterator[None]:
    """Set Ansible's state of the process to that of a worker."""
    display: Any = Display()
    streams = sys.stdout, sys.stderr
    display._final_q = reports
    display.set_queue = lambda _: None
    sys.stdout, sys.stderr = _Stream(sys.stdout), _Stream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        workers.current_worker = None
        display._final_q = None
        del display.set_queue


def _hook_results() -> None:
    process: Callable[..., Any] = StrategyBase._process_pending_results

    @functools.wraps(process)
    def process_pending_results(
        self: Any,
        iterator: Any,
        one_pass: bool = False,  # noqa: FBT001,FBT002 - as Ansible has it
        max_passes: int | None = None,
    ) -> Any:
        # With `max_passes` a strategy only checks for results between two hosts, when workers would hardly be ready.
        waiting = self.__dict__.get("_warm_reports")
        while waiting and max_passes is None:
            strategies.results_thread_main(_Reader(self, waiting.pop(0)))
        return process(self, iterator, one_pass=one_pass, max_passes=max_passes)

    StrategyBase._process_pending_results = process_pending_results
