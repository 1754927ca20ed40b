"""Read cache of one operator: its parts, and its meters."""

from __future__ import annotations

from collections.abc import Mapping

from runner.core.reconcile.feature import Part, ProxyParts
from runner.core.reconcile.kind import Operator
from runner.features.readcache.bodies import MOST_BYTES, ReadCache
from runner.features.readcache.handler import Reads, counter


class CachedReads(Part):
    """Read cache, which listens to the watches of dependents."""

    async def open(self, operator: Operator) -> Mapping[str, str]:
        """Listen, and answer requests of runs."""
        cache = ReadCache(MOST_BYTES)
        operator.dependents.listen(cache)
        size = operator.metrics.gauge("ansible_operator_dependents_kept_bytes", "Size of the cache of dependents")
        size.set_function(lambda: cache.size)
        self.proxy = ProxyParts(reads=(Reads(cache, operator.dependents.follows, counter(operator.metrics)),))
        return {}
