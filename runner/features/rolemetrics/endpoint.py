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
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from itertools import accumulate
from typing import Any

import orjson
from aiohttp import web

from runner.base import log
from runner.base.config.settings import Settings
from runner.base.meters import Meters
from runner.base.monitoring import endpoints
from runner.core.reconcile.parts import Part
from runner.core.reconcile.run_access import LOOPBACK
from runner.values.errors import ConfigError

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
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, math.inf)
"""Default buckets of Prometheus' clients."""
_log = log.get(__name__)


class BadMetricError(ValueError):
    """Invalid document of a role; the message contains the reason."""


class _Metric(ABC):
    """One metric and its values."""

    suffixes: tuple[str, ...] = ("",)
    """Suffixes of the names of its samples."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._value = 0.0
        """The value, or the sum of all observations."""

    @abstractmethod
    def update(self, values: Mapping[str, Any]) -> None:
        """Apply posted values. Raises BadMetricError, without a change, if they are invalid."""

    @abstractmethod
    def samples(self) -> list[tuple[str, float]]:
        """Return suffixes with labels, and values."""


class _Counter(_Metric):
    def update(self, values: Mapping[str, Any]) -> None:
        added = 1.0 if _switch(values, "increment") else _number(values, "add") or 0.0
        if added < 0:
            raise BadMetricError(f"add is {added:g}: a counter cannot decrease, use a gauge")
        self._value += added

    def samples(self) -> list[tuple[str, float]]:
        return [("", self._value)]


class _Gauge(_Metric):
    def update(self, values: Mapping[str, Any]) -> None:
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
        return [("", self._value)]


class _Summary(_Metric):
    suffixes = ("", "_sum", "_count")

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._count = 0

    def update(self, values: Mapping[str, Any]) -> None:
        value = _number(values, "observe")
        if value is not None:
            self._value += value
            self._count += 1

    def samples(self) -> list[tuple[str, float]]:
        return [("_sum", self._value), ("_count", self._count)]


class _Histogram(_Metric):
    suffixes = ("", "_bucket", "_sum", "_count")

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._counts = [0] * len(_BUCKETS)

    def update(self, values: Mapping[str, Any]) -> None:
        value = _number(values, "observe")
        if value is not None:
            self._value += value
            self._counts[bisect.bisect_left(_BUCKETS, value)] += 1

    def samples(self) -> list[tuple[str, float]]:
        counts = list(accumulate(self._counts))
        shown = [f'_bucket{{le="{"+Inf" if bound == math.inf else f"{bound:g}"}"}}' for bound in _BUCKETS]
        return [*zip(shown, counts, strict=True), ("_sum", self._value), ("_count", counts[-1])]


_TYPES: Mapping[str, type[_Metric]] = {
    "counter": _Counter,
    "gauge": _Gauge,
    "histogram": _Histogram,
    "summary": _Summary,
}


class UserMetrics:
    """All metrics of roles. `clock` returns seconds since the epoch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._metrics: dict[str, tuple[str, str, _Metric]] = {}
        """Type, description and values by name."""
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
        metric = self._existing(name, kind) or self._new(name, kind)
        metric.update(values)
        if name not in self._metrics:
            self._metrics[name] = (kind, description, metric)
            self._taken |= dict.fromkeys((name + suffix for suffix in metric.suffixes), name)

    def text(self) -> bytes:
        """Return all metrics in the text format (https://prometheus.io/docs/instrumenting/exposition_formats/)."""
        lines: list[str] = []
        for name, (kind, description, metric) in self._metrics.items():
            shown = description.replace("\\", r"\\").replace("\n", r"\n")
            lines += [f"# HELP {name} {shown}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{what} {value!r}" for what, value in metric.samples()]
        return "".join(f"{line}\n" for line in lines).encode()

    def _existing(self, name: str, kind: str) -> _Metric | None:
        known = self._metrics.get(name)
        if known is None:
            return None
        if known[0] != kind:
            raise BadMetricError(f"{name} is already a {known[0]}, not a {kind}: use another name")
        return known[2]

    def _new(self, name: str, kind: str) -> _Metric:
        if not _NAME.fullmatch(name) or name.startswith("__"):
            raise BadMetricError(f"invalid metric name {name!r}: use letters, digits and underscores")
        if name.startswith(OWN_NAMES):
            raise BadMetricError(f"{name} is reserved for metrics of the operator: use another name")
        metric = _TYPES[kind](self._clock)
        other = next(
            (self._taken[shown] for suffix in metric.suffixes if (shown := name + suffix) in self._taken), None
        )
        if other is not None:
            raise BadMetricError(f"samples of {name} would have the same name as samples of {other}: use another name")
        if len(self._metrics) >= _MOST_METRICS:
            raise BadMetricError(f"maximum of {_MOST_METRICS} metrics of roles reached: use fewer names")
        return metric


class RoleMetrics(Part):
    """Metrics of all roles, and the server that receives them."""

    def __init__(self, settings: Settings, meters: Meters) -> None:
        self._port = settings.user_metrics_port
        self._metrics = UserMetrics(time.time)
        meters.add_text(self._text)

    async def open(self, stack: AsyncExitStack) -> Mapping[str, str]:
        """Serve until `stack` is closed.

        Returns the variable with the address for runs; none if the operator's environment sets one.
        """
        server, port = await serve(self._metrics, LOOPBACK, self._port)
        stack.push_async_callback(server.cleanup)
        self.connections = {ADDRESS_VARIABLE: partial(connection, server)}
        _log.info("Serving the endpoint for role metrics", port=port)
        return {} if os.environ.get(ADDRESS_VARIABLE) else {ADDRESS_VARIABLE: address(LOOPBACK, port)}

    async def _text(self) -> bytes:
        return self._metrics.text()


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
        "Default port for metrics of roles is in use, listening on another: roles that do not read the address from "
        f"{ADDRESS_VARIABLE} cannot reach it. Free the port, or set --user-metrics-port=0",
        default=requested,
        port=bound,
        error=why,
    )
    return bound


def _type(posted: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    present = [(kind, posted[kind]) for kind in _TYPES if posted.get(kind) is not None]
    if len(present) != 1:
        raise BadMetricError(f"exactly one of {', '.join(_TYPES)} is required")
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
