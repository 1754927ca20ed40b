"""Read cache of one operator: its parts, and its meters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from runner.base.meters import Meters
from runner.base.monitoring.background import Work
from runner.core.reconcile.controller import Controller
from runner.core.reconcile.feature import Part, ProxyParts
from runner.core.reconcile.kind import Operator
from runner.features.readcache.bodies import MOST_BYTES, ReadCache
from runner.features.readcache.handler import Reads, counter
from runner.features.readcache.refetch import Refetcher


class CachedReads(Part):
    """Read cache, which listens to the watches of dependents."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    async def open(self, operator: Operator) -> Mapping[str, str]:
        """Listen, and answer requests of runs."""
        self._refetcher = refetcher = Refetcher(operator.client.read)
        self._cache = cache = ReadCache(MOST_BYTES, refetcher.schedule)
        operator.dependents.listen(cache)
        size = self._meters.gauge("ansible_operator_dependents_kept_bytes", "Size of the cache of dependents")
        size.set_function(lambda: cache.size)
        self.proxy = ProxyParts(reads=(Reads(cache, operator.dependents.follows, counter(self._meters)),))
        return {}

    async def start(self, operator: Operator, kinds: Sequence[Controller]) -> Mapping[str, Work]:  # noqa: ARG002 - as Part has it
        """Refetch changed objects in the background."""
        return {"dependents/read": partial(self._refetcher.follow, self._cache)}
