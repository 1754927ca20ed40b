"""Counters, gauges and histograms of one process, in the Prometheus text format.

A module declares its meters itself. Parts that declare the same name share the meter, so that each watched kind
declares those of its features.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Meter = TypeVar("Meter", Counter, Gauge, Histogram)
Values = Callable[[], Mapping[Any, float]]
"""Returns the value for each label value."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
"""Buckets of durations."""


class Meters:
    """Meters of one process, with a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._declared: dict[str, Any] = {}
        self._texts: list[Callable[[], Awaitable[bytes]]] = []

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """Return the counter `name`; the first call creates it. `text` is its help."""
        return self._declare(Counter, name, text, labels)

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        """Return the gauge `name`; the first call creates it. `text` is its help."""
        return self._declare(Gauge, name, text, labels)

    def histogram(
        self, name: str, text: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS
    ) -> Histogram:
        """Return the histogram `name`; the first call creates it. `text` is its help."""
        return self._declare(Histogram, name, text, labels, buckets=buckets)

    def observable_counter(self, name: str, text: str, labels: Sequence[str], values: Values) -> None:
        """Declare a counter whose values are read at each scrape. All its labels have the same value."""
        self.registry.register(_Observable(lambda: CounterMetricFamily(name, text, labels=labels), labels, values))

    def observable_gauge(self, name: str, text: str, labels: Sequence[str], values: Values) -> None:
        """Declare a gauge whose values are read at each scrape. All its labels have the same value."""
        self.registry.register(_Observable(lambda: GaugeMetricFamily(name, text, labels=labels), labels, values))

    def add_text(self, text: Callable[[], Awaitable[bytes]]) -> None:
        """Add metrics that their owner renders in the text format itself."""
        self._texts.append(text)

    async def text(self) -> bytes:
        """Return all metrics in the text format."""
        return b"".join([generate_latest(self.registry), *[await text() for text in self._texts]])

    def _declare(self, kind: type[Meter], name: str, text: str, labels: Sequence[str], **options: Any) -> Meter:
        if name not in self._declared:
            self._declared[name] = kind(name, text, labels, registry=self.registry, **options)
        meter: Meter = self._declared[name]
        return meter


class _Observable(Collector):
    """Meter that is computed at each scrape."""

    def __init__(
        self, family: Callable[[], CounterMetricFamily | GaugeMetricFamily], labels: Sequence[str], values: Values
    ) -> None:
        self._family = family
        self._labels = labels
        self._values = values

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        for value, number in self._values().items():
            family.add_metric([str(value)] * len(self._labels), number)
        return [family]
