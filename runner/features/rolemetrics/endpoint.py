"""Metrics of roles: the server that receives them from the module `osdk_metric`, and their text for Prometheus.

Metrics exist until the operator ends. A name has no suffix added, and keeps its first type and description. An invalid
document changes nothing; the response contains the reason. Names of the operator's own metrics are reserved, and the
number of names is bounded.
"""

from __future__ import annotations

import asyncio
import bisect
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate
from typing import Any

import orjson
from aiohttp import web

from runner.base import log
from runner.base.monitoring import endpoints
from runner.core.reconcile.feature import Operator, Part
from runner.core.reconcile.run_access import LOOPBACK
from runner.values.errors import ConfigError, shortened

ADDRESS_VARIABLE = "OSDK_METRICS_ADDRESS"
"""Variable with the address for `osdk_metric`."""
DEFAULT_PORT = 5050
"""Default port of `osdk_metric`; roles can contain it as a literal."""
OWN_NAMES = (
    *(
        "ansible_operator_",
        "controller_runtime_",
        "rest_client_",
        "workqueue_",
        "resource_created_at_",
        "leader_election_master_status",
    ),
    *("process_cpu_seconds", "process_resident_memory_", "process_virtual_memory_", "process_start_time_"),
    *("process_open_fds", "process_max_fds"),
)
"""Prefixes of the operator's own metrics."""

_PATH = "/metrics"
_JSON = "application/json"
"""Required media type. A web page can send it to another site only after a preflight request, which fails."""
_OF_BROWSERS = ("Origin", "Sec-Fetch-Site")
"""Headers that every browser adds to a POST of a web page, and no other client."""
_MOST_METRICS = 1000
_LARGEST = 64 << 10
"""Maximum size of a document in bytes."""
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,199}")
_LONGEST = 1000
"""Characters of a description. Names and descriptions remain in memory, and are sent with each scrape."""
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, math.inf)
"""Default buckets of Prometheus' clients."""
_log = log.get(__name__)


class BadMetricError(ValueError):
    """Invalid document of a role; the message contains the reason."""


_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "counter": ("",),
    "gauge": ("",),
    "histogram": ("", "_bucket", "_sum", "_count"),
    "summary": ("", "_sum", "_count"),
}
"""Suffixes of the names of samples, by the type of the metric."""


class _Metric:
    """One metric and its values."""

    def __init__(self, kind: str, description: str, clock: Callable[[], float]) -> None:
        self.kind = kind
        self.description = description
        self._clock = clock
        self._value = 0.0
        """The value, or the sum of all observations."""
        self._counts = [0] * len(_BUCKETS)
        """Observations by bucket."""

    def update(self, values: Mapping[str, Any]) -> None:
        """Apply posted values. Raises BadMetricError, without a change, if they are invalid."""
        if self.kind == "counter":
            added = 1.0 if _switch(values, "increment") else _number(values, "add") or 0.0
            if added < 0:
                raise BadMetricError(f"add is {added:g}: a counter cannot decrease, use a gauge")
            self._value += added
        elif self.kind == "gauge":
            self._update_gauge(values)
        elif (value := _number(values, "observe")) is not None:
            self._value += value
            self._counts[bisect.bisect_left(_BUCKETS, value)] += 1

    def _update_gauge(self, values: Mapping[str, Any]) -> None:
        add, subtract, value = (_number(values, name) for name in ("add", "subtract", "set"))
        if _switch(values, "increment"):
            self._value += 1
        elif _switch(values, "decrement"):
            self._value -= 1
        elif add:
            self._value += add
        elif subtract:
            self._value -= subtract
        elif value is not None:
            self._value = value
        elif _switch(values, "set_to_current_time"):
            self._value = self._clock()

    def samples(self) -> list[tuple[str, float]]:
        """Return suffixes with labels, and values."""
        if self.kind in {"counter", "gauge"}:
            return [("", self._value)]
        counts = list(accumulate(self._counts))
        total = [("_sum", self._value), ("_count", counts[-1])]
        if self.kind == "summary":
            return total
        shown = [f'_bucket{{le="{"+Inf" if bound == math.inf else f"{bound:g}"}"}}' for bound in _BUCKETS]
        return [*zip(shown, counts, strict=True), *total]


class UserMetrics:
    """All metrics of roles. `clock` returns seconds since the epoch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._metrics: dict[str, _Metric] = {}
        self._taken: dict[str, str] = {}
        """Metric by name of its samples."""

    def take(self, document: bytes) -> None:
        """Create or update the metric of a document. Raises BadMetricError."""
        try:
            posted = orjson.loads(document)
        except orjson.JSONDecodeError as error:
            raise BadMetricError(f"invalid JSON: {error}") from None
        if not isinstance(posted, dict):
            raise BadMetricError("the document must be a JSON object with name, description and a type")
        name, description = posted.get("name"), posted.get("description")
        if not isinstance(name, str) or not isinstance(description, str):
            raise BadMetricError("name and description are required and must be text")
        kind, values = _type(posted)
        metric = self._metrics.get(name) or self._new(name, kind, description)
        if metric.kind != kind:
            raise BadMetricError(f"{name} is already a {metric.kind}, not a {kind}: use another name")
        metric.update(values)
        if name not in self._metrics:
            self._metrics[name] = metric
            self._taken |= dict.fromkeys((name + suffix for suffix in _SUFFIXES[kind]), name)

    def text(self) -> bytes:
        """Return all metrics in the text format (https://prometheus.io/docs/instrumenting/exposition_formats/)."""
        lines: list[str] = []
        for name, metric in self._metrics.items():
            shown = metric.description.replace("\\", r"\\").replace("\n", r"\n")
            lines += [f"# HELP {name} {shown}", f"# TYPE {name} {metric.kind}"]
            lines += [f"{name}{what} {value!r}" for what, value in metric.samples()]
        return "".join(f"{line}\n" for line in lines).encode()

    def _new(self, name: str, kind: str, description: str) -> _Metric:
        if not _NAME.fullmatch(name) or name.startswith("__"):
            raise BadMetricError(
                f"invalid metric name {name[:_LONGEST]!r}: use at most 200 letters, digits and underscores"
            )
        if name.startswith(OWN_NAMES):
            raise BadMetricError(f"{name} is reserved for metrics of the operator: use another name")
        other = next((self._taken[shown] for end in _SUFFIXES[kind] if (shown := name + end) in self._taken), None)
        if other is not None:
            raise BadMetricError(f"samples of {name} would have the same name as samples of {other}: use another name")
        if len(self._metrics) >= _MOST_METRICS:
            raise BadMetricError(f"maximum of {_MOST_METRICS} metrics of roles reached: use fewer names")
        return _Metric(kind, shortened(description, _LONGEST), self._clock)


class RoleMetrics(Part):
    """Metrics of all roles, and the server that receives them."""

    async def open(self, operator: Operator) -> Mapping[str, str]:
        """Serve until the operator ends.

        Returns the variable with the address for runs; none if the operator's environment sets one.
        """
        metrics = UserMetrics(time.time)

        async def text() -> bytes:
            return metrics.text()

        operator.metrics.add_text(text)
        server, port = await serve(metrics, LOOPBACK, operator.settings.user_metrics_port)
        operator.stack.push_async_callback(server.cleanup)
        self.connections = {ADDRESS_VARIABLE: partial(connection, server)}
        _log.info("Serving the endpoint for role metrics", port=port)
        return {} if os.environ.get(ADDRESS_VARIABLE) else {ADDRESS_VARIABLE: address(LOOPBACK, port)}


async def serve(metrics: UserMetrics, host: str, port: int | None) -> tuple[web.AppRunner, int]:
    """Start the server; return it (call `cleanup`) and its port. Port 0 means a free port.

    None means the default port, or a free one if another process, such as a second operator, uses it. Raises
    ConfigError if an explicit port is in use.
    """

    async def post(request: web.Request) -> web.Response:
        if any(header in request.headers for header in _OF_BROWSERS):
            return web.Response(status=403, text="requests of web pages are not accepted\n")
        if request.content_type != _JSON:
            return web.Response(status=415, text=f"send the header Content-Type: {_JSON}\n")
        try:
            metrics.take(await request.read())
        except BadMetricError as error:
            return web.Response(status=400, text=f"{error}\n")
        return web.Response()

    app = web.Application(client_max_size=_LARGEST)
    app.router.add_post(_PATH, post)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        return runner, await _listen_somewhere(runner, host, port)
    except BaseException:
        await runner.cleanup()
        raise


def connection(server: web.AppRunner) -> asyncio.Protocol:
    """Return the protocol of a further connection to a server that `serve` started."""
    assert server.server is not None  # noqa: S101 - it is started, for the types
    return server.server()


def address(host: str, port: int) -> str:
    """Return the URL for roles."""
    return f"http://{host}:{port}{_PATH}"


async def _listen_somewhere(runner: web.AppRunner, host: str, port: int | None) -> int:
    requested = DEFAULT_PORT if port is None else port
    try:
        return await endpoints.listen(runner, host, requested)
    except OSError as error:
        why = error.strerror or str(error)
        if port is not None:
            raise ConfigError(
                f"--user-metrics-port: cannot listen on {host}:{port}: {why}; use another port, or 0 for a free one"
            ) from error
    bound = await endpoints.listen(runner, host, 0)
    _log.warning(
        "Another program, such as a second operator, uses the port to which roles send metrics; this operator uses a "
        "free one. Ignore this if no role sends metrics to a fixed address. To hide it, set --user-metrics-port=0",
        default=requested,
        port=bound,
        error=why,
    )
    return bound


def _type(posted: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    present = [(kind, posted[kind]) for kind in _SUFFIXES if posted.get(kind) is not None]
    if len(present) != 1:
        raise BadMetricError(f"exactly one of {', '.join(_SUFFIXES)} is required")
    kind, values = present[0]
    if not isinstance(values, dict):
        raise BadMetricError(f"{kind} must be a JSON object; it can be empty")
    return kind, values


def _number(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadMetricError(f"{name} must be a number")
    return float(value)


def _switch(values: Mapping[str, Any], name: str) -> bool:
    value = values.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadMetricError(f"{name} must be true or false")
    return bool(value)
