"""Metrics of the operator itself: runs, reconciles, queues, watches and requests.

Names and labels match those of controller-runtime and of the Go operator, so that their dashboards work: `GVK` is
`group/version, Kind=K`; `controller` and `name` are `<kind>-<version>-controller` in lower case. Every series of a
watched kind exists at zero from the start. Features declare their meters themselves.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

from prometheus_client import Info, ProcessCollector

import runner
from runner import __version__
from runner.base.meters import Meters
from runner.core.engine.job import Outcome, RunResult
from runner.core.queue import reasons
from runner.core.queue.queue import WorkQueue
from runner.core.queue.reasons import RunReason
from runner.values.objects import GVK, ObjectKey

MOST_NAMESPACES = 5000
"""Maximum number of pairs of kind and namespace with their own sample; `OTHERS` is the sum of further ones."""
OTHERS = "(others)"

Created = Callable[[], list[tuple[ObjectKey, float]]]
"""Returns the objects of a kind with their creation times in seconds since the epoch."""


class ObjectSeries:
    """Samples of objects and namespaces."""

    def __init__(self) -> None:
        self._kinds: dict[GVK, Created] = {}
        self._seconds: dict[tuple[GVK, str], float] = {}

    def add_kind(self, gvk: GVK, created: Created) -> None:
        """Add the objects of a kind."""
        self._kinds[gvk] = created

    def ran(self, gvk: GVK, namespace: str, seconds: float) -> None:
        """Count a run."""
        key = (gvk, namespace)
        if key not in self._seconds and len(self._seconds) >= MOST_NAMESPACES:
            key = (gvk, OTHERS)
        self._seconds[key] = self._seconds.get(key, 0.0) + seconds

    async def text(self) -> bytes:
        """Return all samples in the text format."""
        objects = {gvk: created() for gvk, created in self._kinds.items()}
        return await asyncio.to_thread(_render, objects, dict(self._seconds))


def _render(objects: Mapping[GVK, list[tuple[ObjectKey, float]]], seconds: Mapping[tuple[GVK, str], float]) -> bytes:
    parts = [
        _family(
            "resource_created_at_seconds",
            "gauge",
            "Creation time of the object in seconds since the epoch",
            (
                f'{{group="{gvk.group}",version="{gvk.version}",kind="{gvk.kind}",namespace="{key.namespace}",'
                f'name="{_escaped(key.name)}"}} {created!r}'
                for gvk, ages in objects.items()
                for key, created in ages
            ),
        ),
        _family(
            "ansible_operator_namespace_objects",
            "gauge",
            "Watched objects by kind and namespace",
            (
                f'{{GVK="{gvk}",namespace="{namespace}"}} {count}'
                for gvk, ages in objects.items()
                for namespace, count in Counter(key.namespace for key, _ in ages).items()
            ),
        ),
        _family(
            "ansible_operator_namespace_run_seconds_total",
            "counter",
            "Total duration of runs in seconds by kind and namespace",
            (f'{{GVK="{gvk}",namespace="{namespace}"}} {total!r}' for (gvk, namespace), total in seconds.items()),
        ),
    ]
    return "".join(parts).encode()


def _escaped(name: str) -> str:
    """Return the name of an object as the value of a label: those of Roles can contain any character."""
    return name.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _family(name: str, kind: str, text: str, samples: Iterable[str]) -> str:
    lines = "".join(f"{name}{sample}\n" for sample in samples)
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{lines}"


_CALLS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.25, 0.5, 1)
LAG_INTERVAL = 0.1
"""Seconds between two measurements of the event loop's lag."""

_COMMIT = Path(runner.__file__).with_name("commit.txt")
_UNKNOWN = "unknown"
_RESULTS = ("success", "error", "requeue", "requeue_after")
_OF_QUEUE = ("name", "controller")


def controller_name(gvk: GVK) -> str:
    """Return the value of the labels `controller` and `name` for a kind."""
    return f"{gvk.kind}-{gvk.version}-controller".lower()


class Metrics(Meters):
    """Meters of the operator, and those that features add."""

    def __init__(self) -> None:
        super().__init__()
        ProcessCollector(registry=self.registry)
        self._object_series = ObjectSeries()
        self.add_text(self._object_series.text)
        self._queues: defaultdict[str, list[WorkQueue]] = defaultdict(list)
        """By name of the controller, which kinds of several groups can have."""
        self._ages: dict[GVK, Callable[[], float | None]] = {}
        self._add_run_metrics()
        self._add_reconcile_metrics()
        self._add_queue_metrics()
        self._add_process_metrics()

    def _add_run_metrics(self) -> None:
        self.run_seconds = self.histogram("ansible_operator_reconciles", "Duration of runs in seconds", ["GVK"])
        self.run_results = self.gauge("ansible_operator_reconcile_result", "Runs by result", ["GVK", "result"])
        self.waits = self.histogram(
            "ansible_operator_queue_wait_seconds", "Time of requests in the queue by reason", ["GVK", "reason"]
        )
        self.outcomes = self.histogram(
            "ansible_operator_run_seconds", "Duration of runs in seconds by result", ["GVK", "result"]
        )
        self.api_calls = self.histogram("ansible_operator_run_api_calls", "API calls per run", ["GVK"], _CALLS)
        self.feature_failures = self.counter(
            "ansible_operator_feature_failures",
            "Failures after a run that do not change its result",
            ["GVK", "feature"],
        )

    def _add_reconcile_metrics(self) -> None:
        self.reconcile_seconds = self.histogram(
            "controller_runtime_reconcile_time_seconds", "Duration of reconciles in seconds", ["controller"]
        )
        self.reconciles = self.counter("controller_runtime_reconcile", "Reconciles by result", ["controller", "result"])
        self.reconcile_errors = self.counter(
            "controller_runtime_reconcile_errors", "Reconciles that failed", ["controller"]
        )
        self.objects = self.gauge("ansible_operator_objects", "Watched objects in the cache", ["GVK"])
        self.observable_gauge(
            "ansible_operator_watch_age_seconds",
            "Seconds since a watch received data from the API server, which sends a bookmark about once a minute",
            ["GVK"],
            lambda: {gvk: seconds for gvk, age in self._ages.items() if (seconds := age()) is not None},
        )

    def _add_queue_metrics(self) -> None:
        def of_queues(
            read: Callable[[WorkQueue], float], joined: Callable[[Iterable[float]], float] = sum
        ) -> Callable[[], Mapping[str, float]]:
            return lambda: {name: joined(map(read, queues)) for name, queues in self._queues.items()}

        self.queue_seconds = self.histogram(
            "workqueue_queue_duration_seconds", "Time of requests in the queue", _OF_QUEUE
        )
        self.work_seconds = self.histogram(
            "workqueue_work_duration_seconds", "Time that workers process a request", _OF_QUEUE
        )
        self.observable_gauge("workqueue_depth", "Waiting requests", _OF_QUEUE, of_queues(len))
        self.observable_counter("workqueue_adds", "Added requests", _OF_QUEUE, of_queues(lambda queue: queue.adds))
        self.observable_counter(
            "workqueue_retries", "Retries after failures", _OF_QUEUE, of_queues(lambda queue: queue.retries)
        )
        self.observable_gauge(
            "workqueue_unfinished_work_seconds",
            "Time that workers have processed the active requests so far, as a sum",
            _OF_QUEUE,
            of_queues(lambda queue: sum(queue.in_progress())),
        )
        self.observable_gauge(
            "workqueue_longest_running_processor_seconds",
            "Time that a worker has processed the oldest active request so far",
            _OF_QUEUE,
            of_queues(lambda queue: max(queue.in_progress(), default=0.0), max),
        )
        self.observable_gauge(
            "controller_runtime_active_workers",
            "Workers that process a request",
            ["controller"],
            of_queues(lambda queue: queue.active),
        )
        self.observable_gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent requests",
            ["controller"],
            of_queues(lambda queue: queue.limit.workers),
        )

    def _add_process_metrics(self) -> None:
        build = Info("ansible_operator_build", "Versions of operator, ansible-core and Python", registry=self.registry)
        versions = {"ansible_core": version("ansible-core"), "python": platform.python_version()}
        build.info({"version": __version__, "commit": _commit(), **versions})
        self.background_failures = self.counter(
            "ansible_operator_background_failures", "Failures of background work, which began again", ["work"]
        )
        self.api_requests = self.counter(
            "rest_client_requests", "Requests of the operator itself to the API server", ["code", "method", "host"]
        )
        self.loop_lag = self.histogram(
            "ansible_operator_loop_lag_seconds", "Lag of the event loop in seconds", buckets=_LAG_SECONDS
        )

    def add_kind(self, gvk: GVK, queue: WorkQueue) -> None:
        """Create all series of a kind with the value 0."""
        name = controller_name(gvk)
        self.run_seconds.labels(str(gvk))
        for result in ("succeeded", "failed"):
            self.run_results.labels(str(gvk), result)
        for outcome in _RESULTS:
            self.reconciles.labels(name, outcome)
        self.reconcile_errors.labels(name)
        self.reconcile_seconds.labels(name)
        self.queue_seconds.labels(name, name)
        self.work_seconds.labels(name, name)
        self.add_reasons(gvk, reasons.CORE)
        for ending in Outcome:
            self.outcomes.labels(str(gvk), ending.value)
        self.api_calls.labels(str(gvk))
        self._queues[name].append(queue)

    def add_reasons(self, gvk: GVK, added: Iterable[RunReason]) -> None:
        """Create the series of a kind's requests for these reasons."""
        for reason in added:
            self.waits.labels(str(gvk), reason.value)

    def add_objects(self, gvk: GVK, created: Created, age: Callable[[], float | None]) -> None:
        """Add the objects of a kind, and the age of its watch: seconds since the last data from the API server."""
        self._object_series.add_kind(gvk, created)
        self._ages[gvk] = age

    def reconciled(self, name: str, result: str) -> None:
        """Count a reconcile of the controller `name`."""
        self.reconciles.labels(name, result).inc()
        if result == "error":
            self.reconcile_errors.labels(name).inc()

    def requested(self, host: str, method: str, status: int) -> None:
        """Count a request of the operator to the API server; `status` is 0 if there was no response."""
        self.api_requests.labels(str(status) if status else "<error>", method, host).inc()

    def run_ended(self, gvk: GVK, namespace: str, result: RunResult, calls: int) -> None:
        """Count a run with its duration, result and number of API calls."""
        name, outcome = str(gvk), result.outcome
        self.run_seconds.labels(name).observe(result.duration)
        self.run_results.labels(name, "succeeded" if outcome is Outcome.SUCCEEDED else "failed").inc()
        self.outcomes.labels(name, outcome.value).observe(result.duration)
        self.api_calls.labels(name).observe(calls)
        self._object_series.ran(gvk, namespace, result.duration)

    async def measure_lag(self) -> None:
        """Measure the lag of the event loop until canceled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_INTERVAL
            await asyncio.sleep(LAG_INTERVAL)
            self.loop_lag.observe(max(loop.time() - due, 0.0))


def _commit() -> str:
    """Return the commit of the source code, which the build of the image writes; otherwise `unknown`."""
    try:
        return _COMMIT.read_text(encoding="ascii").strip() or _UNKNOWN
    except OSError:
        return _UNKNOWN
