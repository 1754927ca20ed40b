"""Meters, series that are there from the start, and those about dependents, reads, runs and objects."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from runner import __version__
from runner.base.meters import Meters
from runner.core.engine.job import Outcome, RunResult
from runner.core.queue import reasons
from runner.core.queue.line import ConcurrencyLimit
from runner.core.queue.queue import Dispatcher, WorkQueue
from runner.core.reconcile import metrics
from runner.core.reconcile.metrics import OTHERS, Metrics, ObjectSeries
from runner.features.loopguard.guard import LoopGuard
from runner.features.readcache import handler as reads
from runner.values.objects import GVK, ObjectKey

THING = GVK("example.com", "v1", "Thing")
KIND = 'GVK="example.com/v1, Kind=Thing"'


def ended(outcome: Outcome, seconds: float) -> RunResult:
    return RunResult(outcome, recap=None, failures=(), message="", requeue_after=None, duration=seconds)


async def lines(metrics: Metrics, prefix: str) -> list[str]:
    return [line for line in (await metrics.text()).decode().splitlines() if line.startswith(prefix)]


CONTROLLER = 'controller="thing-v1-controller"'
QUEUE = f'{CONTROLLER},name="thing-v1-controller"'


async def test_contract_series_of_controller_dashboards_exist_from_the_start() -> None:
    metrics = Metrics()
    metrics.add_kind(THING, WorkQueue(ConcurrencyLimit.of(2), Dispatcher(ConcurrencyLimit.of(2))))
    metrics.requested("10.0.0.1:443", "GET", 200)
    metrics.requested("10.0.0.1:443", "PATCH", 0)
    text = (await metrics.text()).decode().splitlines()
    for line in [
        f"workqueue_depth{{{QUEUE}}} 0.0",
        f"workqueue_adds_total{{{QUEUE}}} 0.0",
        f"workqueue_queue_duration_seconds_count{{{QUEUE}}} 0.0",
        f"workqueue_work_duration_seconds_count{{{QUEUE}}} 0.0",
        f"workqueue_retries_total{{{QUEUE}}} 0.0",
        f"workqueue_unfinished_work_seconds{{{QUEUE}}} 0.0",
        f"workqueue_longest_running_processor_seconds{{{QUEUE}}} 0.0",
        f'controller_runtime_reconcile_total{{{CONTROLLER},result="error"}} 0.0',
        f"controller_runtime_reconcile_errors_total{{{CONTROLLER}}} 0.0",
        f"controller_runtime_reconcile_time_seconds_count{{{CONTROLLER}}} 0.0",
        f"controller_runtime_active_workers{{{CONTROLLER}}} 0.0",
        f"controller_runtime_max_concurrent_reconciles{{{CONTROLLER}}} 2.0",
        'rest_client_requests_total{code="200",host="10.0.0.1:443",method="GET"} 1.0',
        'rest_client_requests_total{code="<error>",host="10.0.0.1:443",method="PATCH"} 1.0',
    ]:
        assert line in text


async def test_only_failed_reconciles_count_as_errors() -> None:
    metrics = Metrics()
    for result in ("success", "error", "requeue_after", "error"):
        metrics.reconciled("thing-v1-controller", result)
    name = "controller_runtime_reconcile_errors_total"
    assert await lines(metrics, name) == [f"{name}{{{CONTROLLER}}} 2.0"]


async def test_requests_in_progress_count_as_unfinished_work(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    queue = WorkQueue(ConcurrencyLimit.of(2), Dispatcher(ConcurrencyLimit.of(2)))
    metrics, start = Metrics(), loop.time()
    metrics.add_kind(THING, queue)
    for later, name in ((0.0, "a"), (3.0, "b")):
        monkeypatch.setattr(loop, "time", lambda later=later: start + later)
        queue.add(ObjectKey("shop", name), reasons.CREATED)
        assert await queue.get() is not None
    monkeypatch.setattr(loop, "time", lambda: start + 5.0)
    found = [*await lines(metrics, "workqueue_unfinished"), *await lines(metrics, "workqueue_longest")]
    assert [round(float(line.split()[-1]), 3) for line in found] == [7.0, 5.0]


@pytest.mark.parametrize(("content", "commit"), [(None, "unknown"), ("\n", "unknown"), ("0a1b2c\n", "0a1b2c")])
async def test_contract_the_build_info_has_version_and_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None, commit: str
) -> None:
    monkeypatch.setattr("runner.core.reconcile.metrics._COMMIT", tmp_path / "commit.txt")
    if content is not None:
        (tmp_path / "commit.txt").write_text(content)
    (line,) = await lines(Metrics(), "ansible_operator_build_info")
    assert f'commit="{commit}"' in line
    assert f'version="{__version__}"' in line


async def test_every_series_of_a_kind_is_there_at_zero() -> None:
    metrics = Metrics()
    metrics.add_kind(THING, WorkQueue(ConcurrencyLimit.of(2), Dispatcher(ConcurrencyLimit.of(2))))
    waits = await lines(metrics, "ansible_operator_queue_wait_seconds_count")
    assert len(waits) == len(reasons.CORE)
    assert f'ansible_operator_queue_wait_seconds_count{{{KIND},reason="dependent changed"}} 0.0' in waits
    endings = await lines(metrics, "ansible_operator_run_seconds_count")
    assert len(endings) == len(Outcome)
    assert f'ansible_operator_run_seconds_count{{{KIND},result="timed out"}} 0.0' in endings


async def test_a_run_is_counted_with_its_result_its_calls_and_its_namespace() -> None:
    metrics = Metrics()
    metrics.run_ended(THING, "shop", ended(Outcome.SUCCEEDED, 2.0), 7)
    metrics.run_ended(THING, "shop", ended(Outcome.TIMED_OUT, 3.5), 1)
    assert await lines(metrics, "ansible_operator_reconcile_result") == [
        f'ansible_operator_reconcile_result{{{KIND},result="succeeded"}} 1.0',
        f'ansible_operator_reconcile_result{{{KIND},result="failed"}} 1.0',
    ]
    assert await lines(metrics, "ansible_operator_run_seconds_sum") == [
        f'ansible_operator_run_seconds_sum{{{KIND},result="succeeded"}} 2.0',
        f'ansible_operator_run_seconds_sum{{{KIND},result="timed out"}} 3.5',
    ]
    assert await lines(metrics, "ansible_operator_run_api_calls_sum") == [
        f"ansible_operator_run_api_calls_sum{{{KIND}}} 8.0"
    ]
    assert await lines(metrics, "ansible_operator_namespace_run_seconds_total") == [
        f'ansible_operator_namespace_run_seconds_total{{{KIND},namespace="shop"}} 5.5'
    ]


async def test_objects_are_shown_with_their_creation_and_counted_by_namespace() -> None:
    metrics = Metrics()
    found = [(ObjectKey("shop", "a"), 1700000000.0), (ObjectKey("shop", "b"), 1700000001.0), (ObjectKey("x", "a"), 1.5)]
    metrics.add_objects(THING, lambda: found, lambda: 12.5)
    labels = 'group="example.com",version="v1",kind="Thing"'
    assert (await lines(metrics, "resource_created_at_seconds"))[0] == (
        f'resource_created_at_seconds{{{labels},namespace="shop",name="a"}} 1700000000.0'
    )
    assert await lines(metrics, "ansible_operator_namespace_objects") == [
        f'ansible_operator_namespace_objects{{{KIND},namespace="shop"}} 2',
        f'ansible_operator_namespace_objects{{{KIND},namespace="x"}} 1',
    ]
    assert await lines(metrics, "ansible_operator_watch_age_seconds") == [
        f"ansible_operator_watch_age_seconds{{{KIND}}} 12.5"
    ]


async def test_kinds_of_several_groups_with_one_name_are_counted_together() -> None:
    metrics, dispatcher = Metrics(), Dispatcher(ConcurrencyLimit.of(2))
    queues = [WorkQueue(ConcurrencyLimit.of(2), dispatcher) for _ in range(2)]
    for group, queue in zip(("a.example.com", "b.example.com"), queues, strict=True):
        metrics.add_kind(GVK(group, "v1", "Thing"), queue)
    queues[0].add(ObjectKey("shop", "a"), reasons.CHANGED)
    assert await lines(metrics, "workqueue_depth") == [f"workqueue_depth{{{QUEUE}}} 1.0"]


async def test_names_of_objects_are_values_of_labels_whatever_they_contain() -> None:
    metrics = Metrics()
    strange = 'a"} 1\nfake{x="\\'  # the API server permits it in the names of Roles
    metrics.add_objects(THING, lambda: [(ObjectKey("shop", strange), 1.0)], lambda: None)
    (family,) = [
        family
        for family in text_string_to_metric_families((await metrics.text()).decode())
        if family.name == "resource_created_at_seconds"
    ]
    assert [sample.labels["name"] for sample in family.samples] == [strange]


async def test_a_watch_that_has_received_nothing_yet_has_no_age() -> None:
    metrics = Metrics()
    metrics.add_objects(THING, list, lambda: None)
    assert await lines(metrics, "ansible_operator_watch_age_seconds") == []


async def test_namespaces_that_come_and_go_for_ever_cost_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_NAMESPACES", 2)
    series = ObjectSeries()
    for namespace in ("a", "b", "c", "d", "a"):
        series.ran(THING, namespace, 1.0)
    found = [line for line in (await series.text()).decode().splitlines() if "run_seconds_total{" in line]
    assert [line.partition("namespace=")[2] for line in found] == ['"a"} 2.0', '"b"} 1.0', f'"{OTHERS}"}} 2.0']


DEPLOYMENT, SECRET = GVK("apps", "v1", "Deployment"), GVK("", "v1", "Secret")


def series(meters: Meters, prefix: str) -> list[str]:
    return [line for line in generate_latest(meters.registry).decode().splitlines() if line.startswith(prefix)]


def test_parts_that_declare_the_same_name_share_the_meter() -> None:
    meters = Meters()
    for gvk in (DEPLOYMENT, SECRET):
        meters.counter("pruned", "Pruned objects", ["GVK"]).labels(str(gvk)).inc()
    assert series(meters, "pruned_total") == [
        'pruned_total{GVK="apps/v1, Kind=Deployment"} 1.0',
        'pruned_total{GVK="v1, Kind=Secret"} 1.0',
    ]


def test_observable_meters_show_the_values_at_the_time_of_the_scrape() -> None:
    meters, live, dropped = Meters(), {DEPLOYMENT: True}, {"too many": 0}
    meters.observable_gauge("watched", "Watched kinds", ["GVK"], lambda: live)
    meters.observable_counter("dropped", "Dropped Events", ["reason"], lambda: dropped)
    assert series(meters, "dropped_total") == ['dropped_total{reason="too many"} 0.0']
    live[SECRET] = False
    dropped["too many"] += 3
    assert series(meters, "dropped_total") == ['dropped_total{reason="too many"} 3.0']
    assert series(meters, "watched{") == [
        'watched{GVK="apps/v1, Kind=Deployment"} 1.0',
        'watched{GVK="v1, Kind=Secret"} 0.0',
    ]


def test_all_labels_of_an_observable_meter_have_the_same_value() -> None:
    meters = Meters()
    meters.observable_gauge("depth", "Waiting requests", ["name", "controller"], lambda: {"thing": 2})
    assert series(meters, "depth{") == ['depth{controller="thing",name="thing"} 2.0']


def test_reads_through_the_proxy_are_there_from_the_start_and_counted() -> None:
    meters = Meters()
    count = reads.counter(meters)
    name = "ansible_operator_proxy_reads_total"
    assert series(meters, name) == [f'{name}{{result="hit"}} 0.0', f'{name}{{result="miss"}} 0.0']
    count("hit")
    assert series(meters, name)[0] == f'{name}{{result="hit"}} 1.0'


def test_triggers_that_a_budget_delays_are_counted_by_the_kind_of_the_owner() -> None:
    meters, guard = Meters(), LoopGuard(lambda *_: None)
    guard.declare(meters)
    guard.over_budget(DEPLOYMENT)
    name = "ansible_operator_delayed_dependent_triggers_total"
    assert series(meters, name) == [f'{name}{{GVK="apps/v1, Kind=Deployment"}} 1.0']
