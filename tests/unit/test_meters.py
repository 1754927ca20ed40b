"""Meters that parts declare themselves, and values that are read at each scrape."""

from __future__ import annotations

from prometheus_client import generate_latest

from runner.base.meters import Meters
from runner.features.loopguard.guard import LoopGuard
from runner.features.readcache import handler as reads
from runner.values.objects import GVK

DEPLOYMENT, SECRET = GVK("apps", "v1", "Deployment"), GVK("", "v1", "Secret")


def lines(meters: Meters, prefix: str) -> list[str]:
    return [line for line in generate_latest(meters.registry).decode().splitlines() if line.startswith(prefix)]


def test_parts_that_declare_the_same_name_share_the_meter() -> None:
    meters = Meters()
    for gvk in (DEPLOYMENT, SECRET):
        meters.counter("pruned", "Pruned objects", ["GVK"]).labels(str(gvk)).inc()
    assert lines(meters, "pruned_total") == [
        'pruned_total{GVK="apps/v1, Kind=Deployment"} 1.0',
        'pruned_total{GVK="v1, Kind=Secret"} 1.0',
    ]


def test_observable_meters_show_the_values_at_the_time_of_the_scrape() -> None:
    meters, live, dropped = Meters(), {DEPLOYMENT: True}, {"too many": 0}
    meters.observable_gauge("watched", "Watched kinds", ["GVK"], lambda: live)
    meters.observable_counter("dropped", "Dropped Events", ["reason"], lambda: dropped)
    assert lines(meters, "dropped_total") == ['dropped_total{reason="too many"} 0.0']
    live[SECRET] = False
    dropped["too many"] += 3
    assert lines(meters, "dropped_total") == ['dropped_total{reason="too many"} 3.0']
    assert lines(meters, "watched{") == [
        'watched{GVK="apps/v1, Kind=Deployment"} 1.0',
        'watched{GVK="v1, Kind=Secret"} 0.0',
    ]


def test_all_labels_of_an_observable_meter_have_the_same_value() -> None:
    meters = Meters()
    meters.observable_gauge("depth", "Waiting requests", ["name", "controller"], lambda: {"thing": 2})
    assert lines(meters, "depth{") == ['depth{controller="thing",name="thing"} 2.0']


def test_reads_through_the_proxy_are_there_from_the_start_and_counted() -> None:
    meters = Meters()
    count = reads.counter(meters)
    name = "ansible_operator_proxy_reads_total"
    assert lines(meters, name) == [f'{name}{{result="hit"}} 0.0', f'{name}{{result="miss"}} 0.0']
    count("hit")
    assert lines(meters, name)[0] == f'{name}{{result="hit"}} 1.0'


def test_triggers_that_a_budget_delays_are_counted_by_the_kind_of_the_owner() -> None:
    meters, guard = Meters(), LoopGuard(lambda *_: None)
    guard.declare(meters)
    guard.over_budget(DEPLOYMENT)
    name = "ansible_operator_delayed_dependent_triggers_total"
    assert lines(meters, name) == [f'{name}{{GVK="apps/v1, Kind=Deployment"}} 1.0']
