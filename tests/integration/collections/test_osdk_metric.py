from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class MetricsServer:
    """What was posted, and what is answered."""

    url: str
    status: int = 200
    body: bytes = b""
    posted: list[tuple[str, str, Any]] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known.posted.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(known.status)
            self.send_header("Content-Length", str(len(known.body)))
            self.end_headers()
            self.wfile.write(known.body)

        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        known = MetricsServer(f"http://127.0.0.1:{listening.server_address[1]}/metrics")
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield known
        listening.shutdown()
        thread.join()


def test_a_metric_is_posted_as_given(module: Any, server: MetricsServer) -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"counter": {}}, {"counter": {}}),
        ({"counter": {"add": 3.5}}, {"counter": {"add": 3.5}}),
        ({"gauge": {"set": 0}}, {"gauge": {"set": 0.0}}),
        ({"gauge": {"set_to_current_time": True}}, {"gauge": {"set_to_current_time": True}}),
        ({"histogram": {"observe": 2}}, {"histogram": {"observe": 2.0}}),
        ({"summary": {"observe": 2}}, {"summary": {"observe": 2.0}}),
    ]
    for given, posted in cases:
        server.posted.clear()
        result = module("osdk_metric", name="my_metric", description="Help", address=server.url, **given)
        assert result["changed"]
        expected = {"name": "my_metric", "description": "Help", **posted}
        assert server.posted == [("/metrics", "application/json", expected)]


def test_the_address_comes_from_the_environment_where_the_operator_sets_it(
    module: Any, server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSDK_METRICS_ADDRESS", server.url)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert module("osdk_metric", name="my_metric", description="Help", counter={})["changed"]
    assert len(server.posted) == 1


def test_check_mode_sends_nothing(module: Any, server: MetricsServer) -> None:
    result = module("osdk_metric", name="m", description="Help", address=server.url, counter={}, check=True)
    assert result["changed"]
    assert server.posted == []


def test_a_refused_metric_fails_with_the_message_of_the_operator(module: Any, server: MetricsServer) -> None:
    server.status, server.body = 400, b"my_metric is a gauge\n"
    result = module("osdk_metric", name="my_metric", description="Help", address=server.url, counter={})
    assert result["failed"]
    assert result["status_code"] == 400
    assert result["msg"].endswith("did not take the metric my_metric: my_metric is a gauge")


def test_an_unreachable_operator_fails_with_the_address(module: Any) -> None:
    address = "http://127.0.0.1:1/metrics"
    result = module("osdk_metric", name="my_metric", description="Help", address=address, counter={})
    assert result["status_code"] == -1
    assert address in result["msg"]


def test_a_metric_has_one_type(module: Any) -> None:
    cases: list[dict[str, Any]] = [{}, {"counter": {}, "gauge": {}}]
    for given in cases:
        result = module("osdk_metric", name="my_metric", description="Help", **given)
        assert result["failed"]
        assert "counter" in result["msg"]
