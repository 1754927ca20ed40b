"""What `osdk_metric` posts, and what Prometheus reads of it."""

from __future__ import annotations

import json
import socket
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from runner.core.reconcile.metrics import Metrics
from runner.features.rolemetrics import endpoint as role_metrics
from runner.features.rolemetrics.endpoint import OWN_NAMES, BadMetricError, UserMetrics
from runner.values.errors import ConfigError

NOW = 1_800_000_000.0
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def metrics() -> UserMetrics:
    return UserMetrics(lambda: NOW)


def post(metrics: UserMetrics, kind: str, name: str = "a_metric", **given: Any) -> None:
    metrics.take(json.dumps({"name": name, "description": "What it is", kind: given}).encode())


def shown(metrics: UserMetrics) -> dict[str, float]:
    lines = [line for line in metrics.text().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


@pytest.mark.parametrize(
    ("kind", "posts", "value"),
    [
        ("counter", [{}], 0),
        ("counter", [{"increment": True}, {"add": 2.5}, {"increment": False, "add": None}], 3.5),
        ("counter", [{"increment": True, "add": 5}], 1),
        ("gauge", [{"set": 5}, {"increment": True}, {"decrement": True}, {"add": 2}, {"subtract": 4}], 3),
        ("gauge", [{"set": 5}, {"set": 0}], 0),
        ("gauge", [{"set": 5, "add": 0.0, "subtract": None}], 5),
        ("gauge", [{"set_to_current_time": True}], NOW),
    ],
)
def test_a_value_is_the_result_of_all_posts(
    metrics: UserMetrics, kind: str, posts: list[dict[str, Any]], value: float
) -> None:
    for given in posts:
        post(metrics, kind, **given)
    assert shown(metrics) == {"a_metric": value}


def test_observations_are_counted_summed_up_and_in_a_histogram_put_into_buckets(metrics: UserMetrics) -> None:
    for kind in ("histogram", "summary"):
        post(metrics, kind, f"a_{kind}")
        for value in (0.01, 0.3, 99):
            post(metrics, kind, f"a_{kind}", observe=value)
    found = shown(metrics)
    assert (found["a_summary_count"], found["a_summary_sum"]) == (3, 99.31)
    assert (found["a_histogram_count"], found["a_histogram_sum"]) == (3, 99.31)
    below = ("0.005", "0.01", "0.5", "10", "+Inf")
    assert [found[f'a_histogram_bucket{{le="{bound}"}}'] for bound in below] == [0, 1, 2, 2, 3]
    assert list(text_string_to_metric_families(metrics.text().decode()))


def test_a_metric_is_shown_as_the_role_wrote_it(metrics: UserMetrics) -> None:
    metrics.take(b'{"name": "backups", "description": "a \\\\ and\\na line", "counter": {}, "gauge": null}')
    assert metrics.text() == b"# HELP backups a \\\\ and\\na line\n# TYPE backups counter\nbackups 0.0\n"


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"{", "invalid JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"description": "d", "counter": {}}', "name and description"),
        (b'{"name": "n", "description": 1, "counter": {}}', "name and description"),
        (b'{"name": "n", "description": "d"}', "exactly one of counter"),
        (b'{"name": "n", "description": "d", "counter": {}, "gauge": {}}', "exactly one of counter"),
        (b'{"name": "n", "description": "d", "counter": 1}', "counter must be a JSON object"),
        (b'{"name": "n", "description": "d", "counter": {"add": -1}}', "a counter cannot decrease"),
        (b'{"name": "n", "description": "d", "counter": {"add": "1"}}', "add must be a number"),
        (b'{"name": "n", "description": "d", "gauge": {"set": true}}', "set must be a number"),
        (b'{"name": "n", "description": "d", "gauge": {"increment": 1}}', "increment must be true or false"),
        (b'{"name": "n", "description": "d", "gauge": {"set": NaN}}', "invalid JSON"),
        (b'{"name": "a-b", "description": "d", "counter": {}}', "invalid metric name"),
        (b'{"name": "a\\nb", "description": "d", "counter": {}}', "invalid metric name"),
        (b'{"name": "__a", "description": "d", "counter": {}}', "invalid metric name"),
        (b'{"name": "workqueue_depth", "description": "d", "gauge": {}}', "reserved for metrics of the operator"),
        (b'{"name": "taken", "description": "d", "gauge": {}}', "taken is already a histogram"),
        (b'{"name": "taken_count", "description": "d", "gauge": {}}', "as samples of taken"),
    ],
)
def test_an_invalid_document_is_refused_with_the_reason_and_changes_nothing(
    metrics: UserMetrics, document: bytes, why: str
) -> None:
    post(metrics, "histogram", "taken")
    before = metrics.text()
    with pytest.raises(BadMetricError, match=why):
        metrics.take(document)
    assert metrics.text() == before


def test_names_of_the_operators_own_series_are_reserved() -> None:
    names = [metric.name for metric in Metrics().registry.collect()]
    assert names
    assert all(name.startswith(OWN_NAMES) for name in names)


def test_a_long_description_is_shortened(metrics: UserMetrics) -> None:
    metrics.take(json.dumps({"name": "a_metric", "description": "d" * 60_000, "counter": {}}).encode())
    assert len(metrics.text()) < 1100


def test_a_role_that_makes_names_up_costs_bounded_memory(metrics: UserMetrics) -> None:
    for number in range(1000):
        post(metrics, "counter", f"n{number}")
    with pytest.raises(BadMetricError, match="1000 metrics"):
        post(metrics, "counter", "one_more")
    with pytest.raises(BadMetricError, match="at most 200 letters"):
        post(metrics, "histogram", "n" * 201)
    post(metrics, "counter", "n7", increment=True)
    assert shown(metrics)["n7"] == 1


async def test_a_document_is_posted_and_a_bad_one_answered_with_why(metrics: UserMetrics) -> None:
    server, port = await role_metrics.serve(metrics, "127.0.0.1", 0)
    url = role_metrics.address("127.0.0.1", port)
    async with aiohttp.ClientSession() as session:
        good = {"name": "backups", "description": "d", "counter": {"increment": True}}
        async with session.post(url, json=good) as answer:
            assert answer.status == 200
        async with session.post(url, json={**good, "counter": {"add": -1}}) as answer:
            assert (answer.status, await answer.text()) == (400, "add is -1: a counter cannot decrease, use a gauge\n")
        async with session.post(url, data=b"x" * 70_000, headers=JSON) as answer:
            assert answer.status == 413
        async with session.get(url) as answer:
            assert answer.status == 405
    await server.cleanup()
    assert shown(metrics) == {"backups": 1}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({**JSON, "Origin": "https://elsewhere.example.com"}, 403),
        ({**JSON, "Origin": "null"}, 403),
        ({**JSON, "Sec-Fetch-Site": "cross-site"}, 403),
        ({**JSON, "Sec-Fetch-Site": "same-origin"}, 403),  # a name of another site that resolves to loopback
    ],
)
async def test_a_web_page_cannot_post_a_metric(metrics: UserMetrics, headers: dict[str, str], status: int) -> None:
    server, port = await role_metrics.serve(metrics, "127.0.0.1", 0)
    document = json.dumps({"name": "forged", "description": "d", "counter": {"increment": True}})
    url = role_metrics.address("127.0.0.1", port)
    async with aiohttp.ClientSession() as session:
        async with session.post(url, data=document, headers=headers) as answer:
            assert answer.status == status
        async with session.options(url, headers={**headers, "Access-Control-Request-Method": "POST"}) as answer:
            assert "Access-Control-Allow-Origin" not in answer.headers
    await server.cleanup()
    assert shown(metrics) == {}


async def test_a_configured_port_that_is_in_use_is_an_error_with_advice(metrics: UserMetrics) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--user-metrics-port: cannot listen on 127.0.0.1:{port}: .*; use"):
            await role_metrics.serve(metrics, "127.0.0.1", port)


async def test_if_the_default_port_is_in_use_another_one_is_used(
    metrics: UserMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        usual = taken.getsockname()[1]
        monkeypatch.setattr(role_metrics, "DEFAULT_PORT", usual)
        server, port = await role_metrics.serve(metrics, "127.0.0.1", None)
        assert port not in {0, usual}
        await server.cleanup()
