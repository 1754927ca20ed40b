"""Metrics of the operator in the Prometheus text format.

Names and labels match those of controller-runtime and of the Go operator, so that their dashboards work: `GVK` is
`group/version, Kind=K`; `controller` and `name` are `<kind>-<version>-controller` in lower case. Every series of a
watched kind exists at zero from the start.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import runner
from runner import __version__
from runner.engine.job import Outcome, RunResult
from runner.monitoring.object_series import Created, ObjectSeries
from runner.objects import GVK, ObjectKey
from runner.workqueue import reasons
from runner.workqueue.queue import WorkQueue
from runner.workqueue.reasons import RunReason

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_CALLS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.25, 0.5, 1)
LAG_INTERVAL = 0.1
"""Seconds between two measurements of the event loop's lag."""

_COMMIT = Path(runner.__file__).with_name("commit.txt")
_UNKNOWN = "unknown"
_PLANS = ("Changes", "NoChanges", "Partial", "PlanFailed", "canceled")
DRIFT_RESULTS = ("none", "drifted", "partial", "failed", "canceled")
"""`partial`: no drift, but some tasks were not planned."""
_RESULTS = ("success", "error", "requeue", "requeue_after")


def controller_name(gvk: GVK) -> str:
    """Return the value of the labels `controller` and `name` for a kind."""
    return f"{gvk.kind}-{gvk.version}-controller".lower()


class Metrics:
    """Metrics of one process, with a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._object_series = ObjectSeries()
        self._queues: dict[str, WorkQueue] = {}
        self._ages: dict[GVK, Callable[[], float | None]] = {}
        self._add_run_metrics()
        self._add_reconcile_metrics()
        self._add_process_metrics()
        self._on_scrape(self._queue_families)
        self._on_scrape(self._age_families)

    def _add_run_metrics(self) -> None:
        self.run_seconds = self._histogram("ansible_operator_reconciles", "Duration of runs in seconds", ["GVK"])
        self.run_results = self._gauge("ansible_operator_reconcile_result", "Runs by result", ["GVK", "result"])
        self.waits = self._histogram(
            "ansible_operator_queue_wait_seconds", "Time of requests in the queue by reason", ["GVK", "reason"]
        )
        self.outcomes = self._histogram(
            "ansible_operator_run_seconds", "Duration of runs in seconds by result", ["GVK", "result"]
        )
        self.api_calls = self._histogram("ansible_operator_run_api_calls", "API calls per run", ["GVK"], _CALLS)
        self.over_budget = self._counter(
            "ansible_operator_delayed_dependent_triggers",
            "Changes of dependents in other namespaces that were delayed, because their owner ran too often",
            ["GVK"],
        )
        self.skipped = self._counter(
            "ansible_operator_skipped_runs", "Runs skipped because nothing changed", ["GVK", "reason"]
        )

        self.drift_checks = self._counter("ansible_operator_drift_checks", "Drift checks by result", ["GVK", "result"])
        self.drifted_objects = self._gauge("ansible_operator_drifted_objects", "Objects with drift", ["GVK"])
        self._drifted: dict[GVK, set[ObjectKey]] = {}
        self._rollouts = [
            self._gauge("ansible_operator_rollout_outdated", "Objects that did not run the content", ["GVK"]),
            self._gauge("ansible_operator_rollout_step", "Step of the rollout, counted from 1", ["GVK"]),
            self._gauge("ansible_operator_rollout_paused", "Whether the rollout is paused", ["GVK"]),
        ]
        self.feature_failures = self._counter(
            "ansible_operator_feature_failures",
            "Failures after a run that do not change its result",
            ["GVK", "feature"],
        )
        self.background_failures = self._counter(
            "ansible_operator_background_failures", "Failures of background work, which began again", ["work"]
        )
        self.plans = self._counter("ansible_operator_plans", "Plans by result", ["GVK", "result"])
        self.pruned = self._counter(
            "ansible_operator_pruned_objects", "Objects that were deleted because runs no longer use them", ["GVK"]
        )
        self.unrecorded = self._counter(
            "ansible_operator_unrecorded_creations",
            "Created objects that prune does not know, because the record is full or cannot be stored",
            ["GVK", "reason"],
        )
        self.unused = self._gauge(
            "ansible_operator_unused_objects", "Objects that runs created and no longer use", ["GVK"]
        )

    def _add_reconcile_metrics(self) -> None:
        self.reconcile_seconds = self._histogram(
            "controller_runtime_reconcile_time_seconds", "Duration of reconciles in seconds", ["controller"]
        )
        self.reconciles = self._counter(
            "controller_runtime_reconcile", "Reconciles by result", ["controller", "result"]
        )
        self.queue_seconds = self._histogram(
            "workqueue_queue_duration_seconds", "Time of requests in the queue", ["name", "controller"]
        )
        self.work_seconds = self._histogram(
            "workqueue_work_duration_seconds", "Time that workers process a request", ["name", "controller"]
        )
        self.reconcile_errors = self._counter(
            "controller_runtime_reconcile_errors", "Reconciles that failed", ["controller"]
        )
        self.workers = self._gauge(
            "controller_runtime_max_concurrent_reconciles", "Maximum number of concurrent requests", ["controller"]
        )
        self.objects = self._gauge("ansible_operator_objects", "Watched objects in the cache", ["GVK"])

    def _add_process_metrics(self) -> None:
        build = Info("ansible_operator_build", "Versions of operator, ansible-core and Python", registry=self.registry)
        versions = {"ansible_core": version("ansible-core"), "python": platform.python_version()}
        build.info({"version": __version__, "commit": _commit(), **versions})
        self.api_requests = self._counter(
            "rest_client_requests", "Requests of the operator itself to the API server", ["code", "method", "host"]
        )
        self.loop_lag = self._histogram(
            "ansible_operator_loop_lag_seconds", "Lag of the event loop in seconds", [], _LAG_SECONDS
        )
        self.proxy_reads = self._counter(
            "ansible_operator_proxy_reads",
            "GET requests of runs for owned objects, answered by the cache (hit) or the API server (miss)",
            ["result"],
        )
        for result in ("hit", "miss"):
            self.proxy_reads.labels(result)

    def _histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float] = _SECONDS) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def _counter(self, name: str, text: str, labels: Sequence[str]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: Sequence[str]) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _on_scrape(self, families: Callable[[], Iterable[Metric]]) -> None:
        self.registry.register(_ScrapeCollector(families))

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
        self.workers.labels(name).set_function(lambda: queue.limit.workers)
        for planned in _PLANS:
            self.plans.labels(str(gvk), planned)
        self.add_reasons(gvk, reasons.CORE)
        for ending in Outcome:
            self.outcomes.labels(str(gvk), ending.value)
        self.api_calls.labels(str(gvk))
        self._queues[name] = queue

    def add_reasons(self, gvk: GVK, added: Iterable[RunReason]) -> None:
        """Create the series of a kind's requests for these reasons."""
        for reason in added:
            self.waits.labels(str(gvk), reason.value)

    def add_drift(self, gvk: GVK) -> None:
        """Create the series about drift of a kind."""
        found = self._drifted.setdefault(gvk, set())
        self.drifted_objects.labels(str(gvk)).set_function(found.__len__)
        for result in DRIFT_RESULTS:
            self.drift_checks.labels(str(gvk), result)

    def rollout(self, gvk: GVK, outdated: int, step: int, *, paused: bool) -> None:
        """Set the series of a kind with a rollout."""
        for gauge, value in zip(self._rollouts, (outdated, step, paused), strict=True):
            gauge.labels(str(gvk)).set(value)

    def drifted(self, gvk: GVK, key: ObjectKey, *, has_drift: bool) -> None:
        """Note whether an object has drift."""
        found = self._drifted[gvk]
        if has_drift:
            found.add(key)
        else:
            found.discard(key)

    def add_objects(self, gvk: GVK, created: Created, age: Callable[[], float | None]) -> None:
        """Add the objects of a kind, and the age of its watch: seconds since the last data from the API server."""
        self._object_series.add_kind(gvk, created)
        self._ages[gvk] = age

    def add_dependents(self, live: Callable[[], Mapping[GVK, bool]], kept_bytes: Callable[[], int]) -> None:
        """Add the watches of dependents, and the size of the read cache."""
        self._on_scrape(
            lambda: [
                _gauges(
                    "ansible_operator_dependents_watched",
                    "Whether the watch of a kind of dependents works (1) or fails (0)",
                    ["GVK"],
                    (((str(gvk),), is_live) for gvk, is_live in live().items()),
                ),
                GaugeMetricFamily(
                    "ansible_operator_dependents_kept_bytes", "Size of the cache of dependents", kept_bytes()
                ),
            ]
        )

    def add_prune(self, gvk: GVK, unused: Callable[[], int]) -> None:
        """Create the series of a kind whose unused objects are pruned."""
        self.pruned.labels(str(gvk))
        for reason in ("full", "storage"):
            self.unrecorded.labels(str(gvk), reason)
        self.unused.labels(str(gvk)).set_function(unused)

    def add_engine(self, problem: Callable[[], str | None], begun: Callable[[], Mapping[str, int]]) -> None:
        """Add the number of runs by engine, and whether runs of the warm engine fall back to new interpreters."""
        self._on_scrape(
            lambda: [
                _counters(
                    "ansible_operator_runs_begun",
                    "Started runs, forked from a fork server (warm) or in a new interpreter (exec)",
                    ["engine"],
                    (((engine,), count) for engine, count in begun().items()),
                )
            ]
        )
        gauge = Gauge(
            "ansible_operator_warm_engine_problem",
            "1 while runs of the warm engine fall back to new interpreters; the log contains the reason",
            registry=self.registry,
        )
        gauge.set_function(lambda: float(problem() is not None))

    def add_pod_starts(self) -> Callable[[float], None]:
        """Add the time that pods of runs need to start; return what observes it, in seconds."""
        return self._histogram(
            "ansible_operator_pod_start_seconds", "Time from the creation of a run's Job to its first output", []
        ).observe

    def add_pods(
        self,
        phases: Callable[[], Mapping[str, int]],
        agents: Callable[[], Mapping[str, int]],
        runs: Callable[[], Mapping[str, int]],
        warm: Callable[[], Mapping[str, int]],
    ) -> None:
        """Add the pods by phase, the counts of their agents by event, and the numbers of runs and of warm pods."""
        self._on_scrape(
            lambda: [
                _gauges("ansible_operator_pods", "Pods of runs", ["phase"], (((k,), n) for k, n in phases().items())),
                _counters(
                    "ansible_operator_pod_agents",
                    "Frames of agents, their connections after the first, and refused connections",
                    ["event"],
                    (((event,), count) for event, count in agents().items()),
                ),
                _counters(
                    "ansible_operator_pod_runs",
                    "Runs in pods that this operator began, and those of an earlier operator that it resumed",
                    ["start"],
                    (((start,), count) for start, count in runs().items()),
                ),
                _counters(
                    "ansible_operator_warm_pods",
                    "Runs that got a warm pod or found none, and warm pods that failed without a run",
                    ["result"],
                    (((result,), count) for result, count in warm().items()),
                ),
            ]
        )

    def add_events(self, dropped: Callable[[], Mapping[str, int]]) -> None:
        """Add the number of dropped Events by reason."""
        self._on_scrape(
            lambda: [
                _counters(
                    "ansible_operator_events_dropped",
                    "Events that were not written",
                    ["reason"],
                    (((reason,), count) for reason, count in dropped().items()),
                )
            ]
        )

    def add_lease(self, name: str, leads: Callable[[], bool]) -> None:
        """Add the leader Lease under the metric name of controller-runtime."""
        self._on_scrape(
            lambda: [
                _gauges(
                    "leader_election_master_status",
                    "Whether this replica holds the Lease (1) or not (0)",
                    ["name"],
                    [((name,), leads())],
                )
            ]
        )

    def reconciled(self, name: str, result: str) -> None:
        """Count a reconcile of the controller `name`."""
        self.reconciles.labels(name, result).inc()
        if result == "error":
            self.reconcile_errors.labels(name).inc()

    def requested(self, host: str, method: str, status: int) -> None:
        """Count a request of the operator to the API server; `status` is 0 if there was no response."""
        self.api_requests.labels(str(status) if status else "<error>", method, host).inc()

    def read_through_proxy(self, result: str) -> None:
        """Count a GET of an owned object by a run: `hit` or `miss`."""
        self.proxy_reads.labels(result).inc()

    def run_ended(self, gvk: GVK, namespace: str, result: RunResult, calls: int) -> None:
        """Count a run with its duration, result and number of API calls."""
        name, outcome = str(gvk), result.outcome
        self.run_seconds.labels(name).observe(result.duration)
        self.run_results.labels(name, "succeeded" if outcome is Outcome.SUCCEEDED else "failed").inc()
        self.outcomes.labels(name, outcome.value).observe(result.duration)
        self.api_calls.labels(name).observe(calls)
        self._object_series.ran(gvk, namespace, result.duration)

    async def text(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self.registry) + await self._object_series.text()

    async def measure_lag(self) -> None:
        """Measure the lag of the event loop until canceled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_INTERVAL
            await asyncio.sleep(LAG_INTERVAL)
            self.loop_lag.observe(max(loop.time() - due, 0.0))

    def _age_families(self) -> Iterable[Metric]:
        ages = [((str(gvk),), seconds) for gvk, age in self._ages.items() if (seconds := age()) is not None]
        text = "Seconds since a watch received data from the API server, which sends a bookmark about once a minute"
        return [_gauges("ansible_operator_watch_age_seconds", text, ["GVK"], ages)]

    def _queue_families(self) -> Iterable[Metric]:
        queues, labels = self._queues.items(), ["name", "controller"]
        return [
            _gauges("workqueue_depth", "Waiting requests", labels, (((name, name), len(q)) for name, q in queues)),
            _counters("workqueue_adds", "Added requests", labels, (((name, name), q.adds) for name, q in queues)),
            _counters(
                "workqueue_retries", "Retries after failures", labels, (((name, name), q.retries) for name, q in queues)
            ),
            _gauges(
                "controller_runtime_active_workers",
                "Workers that process a request",
                ["controller"],
                (((name,), q.active) for name, q in queues),
            ),
            _gauges(
                "workqueue_unfinished_work_seconds",
                "Time that workers have processed the active requests so far, as a sum",
                labels,
                (((name, name), sum(q.in_progress())) for name, q in queues),
            ),
            _gauges(
                "workqueue_longest_running_processor_seconds",
                "Time that a worker has processed the oldest active request so far",
                labels,
                (((name, name), max(q.in_progress(), default=0.0)) for name, q in queues),
            ),
        ]


def _commit() -> str:
    """Return the commit of the source code, which the build of the image writes; otherwise `unknown`."""
    try:
        return _COMMIT.read_text(encoding="ascii").strip() or _UNKNOWN
    except OSError:
        return _UNKNOWN


class _ScrapeCollector(Collector):
    """Collector that computes its families at each scrape."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()


_Samples = Iterable[tuple[Sequence[str], float]]


def _gauges(name: str, text: str, labels: Sequence[str], samples: _Samples) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _counters(name: str, text: str, labels: Sequence[str], samples: _Samples) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family
