"""Metrics of single objects and namespaces: creation times, number of objects, time of runs.

The number of namespaces is bounded. There is a sample for every object, so a thread renders the text without
`prometheus_client`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

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
                f'name="{key.name}"}} {created!r}'
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


def _family(name: str, kind: str, text: str, samples: Iterable[str]) -> str:
    lines = "".join(f"{name}{sample}\n" for sample in samples)
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{lines}"
