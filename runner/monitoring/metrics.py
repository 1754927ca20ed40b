"""What the operator counts and measures, in the Prometheus text format.

Names and labels are those that dashboards for this kind of operator and for controller-runtime expect: `GVK` is
`group/version, Kind=K`, `controller` and `name` are `<kind>-<version>-controller` in lower case. Every series of a
watched kind exists at zero from the start.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runner import __version__
from runner.engine import executions
from runner.engine.job import Outcome, RunResult
from runner.monitoring.object_series import Created, ObjectSeries
from runner.objects import GVK
from runner.workqueue.queue import WorkQueue
from runner.workqueue.request import Reason

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_CALLS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.25, 0.5, 1)
LAG_INTERVAL = 0.1
"""Seconds between two measurements of the event loop's lag."""

_RESULTS = ("success", "error", "requeue", "requeue_after")


def controller_name(gvk: GVK) -> str:
    """The name that a kind's series carry."""
    return f"{gvk.kind}-{gvk.version}-controller".lower()


class Metrics:
    """The operator's own registry. One per process; nothing is global."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._of_objects = ObjectSeries()
        build = Info("ansible_operator_build", "Versions of the operator and what it runs", registry=self.registry)
        build.info(
            {"version": __version__, "ansible_core": version("ansible-core"), "python": platform.python_version()}
        )
        self.run_seconds = self._histogram("ansible_operator_reconciles", "Seconds a run took", ["GVK"])
        self.run_results = Gauge(
            "ansible_operator_reconcile_result", "Runs by result", ["GVK", "result"], registry=self.registry
        )
        self.waits = self._histogram(
            "ansible_operator_queue_wait_seconds", "Seconds a request waited, by why it was made", ["GVK", "reason"]
        )
        self.outcomes = self._histogram("ansible_operator_run_seconds", "Seconds a run took", ["GVK", "result"])
        self.api_calls = Histogram(
            "ansible_operator_run_api_calls",
            "Calls of the API that a run made",
            ["GVK"],
            buckets=_CALLS,
            registry=self.registry,
        )
        self.reconcile_seconds = self._histogram(
            "controller_runtime_reconcile_time_seconds", "Seconds a reconcile took", ["controller"]
        )
        self.reconciles = Counter(
            "controller_runtime_reconcile", "Reconciles by result", ["controller", "result"], registry=self.registry
        )
        self.queue_seconds = self._histogram(
            "workqueue_queue_duration_seconds", "Seconds a request waited for a worker", ["name", "controller"]
        )
        self.work_seconds = self._histogram(
            "workqueue_work_duration_seconds", "Seconds a worker held a request", ["name", "controller"]
        )
        self.workers = Gauge(
            "controller_runtime_max_concurrent_reconciles", "Workers", ["controller"], registry=self.registry
        )
        self.objects = Gauge(
            "ansible_operator_objects", "Objects that are watched, held in memory", ["GVK"], registry=self.registry
        )
        self.skipped = Counter(
            "ansible_operator_skipped_runs",
            "Runs that were left out, since nothing had changed",
            ["GVK", "reason"],
            registry=self.registry,
        )
        self.loop_lag = Histogram(
            "ansible_operator_loop_lag_seconds",
            "Seconds the event loop was late",
            buckets=_LAG_SECONDS,
            registry=self.registry,
        )
        self.proxy_reads = Counter(
            "ansible_operator_proxy_reads",
            "GETs of owned objects by runs: answered from memory (hit) or by the API server (miss)",
            ["result"],
            registry=self.registry,
        )
        self.tasks = Counter(
            "ansible_operator_tasks",
            "Tasks of forked runs, by the way in which they were executed and why not in a faster one",
            ["way", "reason"],
            registry=self.registry,
        )
        self.tasks.labels(executions.Way.INTERPRETER.value, executions.Reason.DEFECT.value)
        for result in ("hit", "miss"):
            self.proxy_reads.labels(result)
        self._queues = _Queues()
        self.registry.register(self._queues)
        self._ages = _Ages()
        self.registry.register(self._ages)

    def _histogram(self, name: str, text: str, labels: list[str]) -> Histogram:
        return Histogram(name, text, labels, buckets=_SECONDS, registry=self.registry)

    def add_kind(self, gvk: GVK, queue: WorkQueue, workers: int) -> None:
        """Make every series of a kind exist, at zero."""
        name = controller_name(gvk)
        self.run_seconds.labels(str(gvk))
        for result in ("succeeded", "failed"):
            self.run_results.labels(str(gvk), result)
        for outcome in _RESULTS:
            self.reconciles.labels(name, outcome)
        self.reconcile_seconds.labels(name)
        self.queue_seconds.labels(name, name)
        self.work_seconds.labels(name, name)
        self.workers.labels(name).set(workers)
        for reason in Reason:
            self.waits.labels(str(gvk), reason.value)
        for ending in Outcome:
            self.outcomes.labels(str(gvk), ending.value)
        self.api_calls.labels(str(gvk))
        self._queues.add(name, queue)

    def add_objects(self, gvk: GVK, created: Created, age: Callable[[], float | None]) -> None:
        """Tell of a kind's objects, and of when its watch last heard of the API server."""
        self._of_objects.add_kind(gvk, created)
        self._ages.add(gvk, age)

    def add_dependents(self, live: Callable[[], Mapping[GVK, bool]], kept_bytes: Callable[[], int]) -> None:
        """Show which kinds of dependents are watched as they should be, and what is kept of dependents in memory."""
        self.registry.register(_Dependents(live, kept_bytes))

    def add_engine(self, problem: Callable[[], str | None], begun: Callable[[], Mapping[str, int]]) -> None:
        """Show whether runs that could be forked start new interpreters, and how many were begun in which way."""
        self.registry.register(_Begun(begun))
        gauge = Gauge(
            "ansible_operator_warm_engine_problem",
            "1 while runs that the warm engine should start go the slow way; the log says why",
            registry=self.registry,
        )
        gauge.set_function(lambda: float(problem() is not None))

    def add_events(self, dropped: Callable[[], Mapping[str, int]]) -> None:
        """Show how many Events nobody will read, by why."""
        self.registry.register(_DroppedEvents(dropped))

    def add_leases(self, names: Sequence[str], held: Callable[[], Collection[int]]) -> None:
        """Show of each Lease that stands for work whether it is this replica's."""
        self.registry.register(_Leases(names, held))

    def read_through_proxy(self, result: str) -> None:
        """Count a run's GET of an owned object, a `hit` or a `miss`."""
        self.proxy_reads.labels(result).inc()

    def run_ended(self, gvk: GVK, namespace: str, result: RunResult, calls: int) -> None:
        """Count a run of Ansible, how long it took, how it ended, and how many calls of the API it made."""
        name, outcome = str(gvk), result.outcome
        self.run_seconds.labels(name).observe(result.duration)
        self.run_results.labels(name, "succeeded" if outcome is Outcome.SUCCEEDED else "failed").inc()
        self.outcomes.labels(name, outcome.value).observe(result.duration)
        for each in result.executions.each:
            self.tasks.labels(each.way.value, each.reason.value).inc(each.count)
        self.api_calls.labels(name).observe(calls)
        self._of_objects.ran(gvk, namespace, result.duration)

    async def text(self) -> bytes:
        """Everything, in the exposition format."""
        return generate_latest(self.registry) + await self._of_objects.text()

    async def measure_lag(self) -> None:
        """Measure for ever how late the event loop is."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_INTERVAL
            await asyncio.sleep(LAG_INTERVAL)
            self.loop_lag.observe(max(loop.time() - due, 0.0))


class _Dependents(Collector):
    """Reads what is watched and kept when asked."""

    def __init__(self, live: Callable[[], Mapping[GVK, bool]], kept_bytes: Callable[[], int]) -> None:
        self._live = live
        self._kept_bytes = kept_bytes

    def collect(self) -> Iterable[Metric]:
        watched = GaugeMetricFamily(
            "ansible_operator_dependents_watched",
            "Whether a kind of dependents is watched (1), or its watch fails (0)",
            labels=["GVK"],
        )
        for gvk, is_live in self._live().items():
            watched.add_metric([str(gvk)], is_live)
        kept = GaugeMetricFamily(
            "ansible_operator_dependents_kept_bytes", "Memory that answers about dependents take", self._kept_bytes()
        )
        return [watched, kept]


class _Ages(Collector):
    """Reads when watches last heard of the API server, when asked."""

    def __init__(self) -> None:
        self._ages: dict[GVK, Callable[[], float | None]] = {}

    def add(self, gvk: GVK, age: Callable[[], float | None]) -> None:
        self._ages[gvk] = age

    def collect(self) -> Iterable[Metric]:
        ages = GaugeMetricFamily(
            "ansible_operator_watch_age_seconds",
            "Seconds since a kind's watch last heard of the API server, which speaks about once a minute",
            labels=["GVK"],
        )
        for gvk, age in self._ages.items():
            seconds = age()
            if seconds is not None:
                ages.add_metric([str(gvk)], seconds)
        return [ages]


class _Begun(Collector):
    """Reads how runs were begun, when asked."""

    def __init__(self, begun: Callable[[], Mapping[str, int]]) -> None:
        self._begun = begun

    def collect(self) -> Iterable[Metric]:
        begun = CounterMetricFamily(
            "ansible_operator_runs_begun",
            "Runs that were forked from a server (warm), and that started a new interpreter (exec)",
            labels=["engine"],
        )
        for engine, count in self._begun().items():
            begun.add_metric([engine], count)
        return [begun]


class _DroppedEvents(Collector):
    """Reads how many were dropped, when asked."""

    def __init__(self, dropped: Callable[[], Mapping[str, int]]) -> None:
        self._dropped = dropped

    def collect(self) -> Iterable[Metric]:
        dropped = CounterMetricFamily(
            "ansible_operator_events_dropped",
            "Events on objects that were not written",
            labels=["reason"],
        )
        for reason, count in self._dropped().items():
            dropped.add_metric([reason], count)
        return [dropped]


class _Leases(Collector):
    """Reads what is held when asked. The name is the one that controller-runtime's series has."""

    def __init__(self, names: Sequence[str], held: Callable[[], Collection[int]]) -> None:
        self._names = names
        self._held = held

    def collect(self) -> Iterable[Metric]:
        leads = GaugeMetricFamily(
            "leader_election_master_status", "Whether this replica holds the Lease (1) or not (0)", labels=["name"]
        )
        held = self._held()
        for number, name in enumerate(self._names):
            leads.add_metric([name], number in held)
        return [leads]


class _Queues(Collector):
    """Reads the queues when asked, so that they need not know of metrics."""

    def __init__(self) -> None:
        self._queues: dict[str, WorkQueue] = {}

    def add(self, name: str, queue: WorkQueue) -> None:
        self._queues[name] = queue

    def collect(self) -> Iterable[Metric]:
        depth = GaugeMetricFamily("workqueue_depth", "Requests that wait", labels=["name", "controller"])
        adds = CounterMetricFamily("workqueue_adds", "Requests added", labels=["name", "controller"])
        retries = CounterMetricFamily("workqueue_retries", "Retries after failures", labels=["name", "controller"])
        active = GaugeMetricFamily(
            "controller_runtime_active_workers", "Workers that hold a request", labels=["controller"]
        )
        for name, queue in self._queues.items():
            depth.add_metric([name, name], len(queue))
            adds.add_metric([name, name], queue.adds)
            retries.add_metric([name, name], queue.retries)
            active.add_metric([name], queue.active)
        return [depth, adds, retries, active]
