"""Read cache of one operator: its parts, and its meters."""

from __future__ import annotations

from runner.base.meters import Meters
from runner.core.dependents.watching import Dependents
from runner.features.readcache.bodies import MOST_BYTES, ReadCache
from runner.features.readcache.handler import Reads, counter
from runner.features.readcache.refetch import RawReader, Refetcher


class CachedReads:
    """Read cache, which listens to the watches of dependents."""

    def __init__(self, client: RawReader, dependents: Dependents, meters: Meters) -> None:
        self._refetcher = Refetcher(client)
        self._cache = ReadCache(MOST_BYTES, self._refetcher.schedule)
        dependents.listen(self._cache)
        size = meters.gauge("ansible_operator_dependents_kept_bytes", "Size of the cache of dependents")
        size.set_function(lambda: self._cache.size)
        self.handler = Reads(self._cache, dependents, counter(meters))
        """Handler of the proxy. Its place is after content negotiation, and before handlers that send requests."""

    async def follow(self) -> None:
        """Refetch changed objects until cancelled."""
        await self._refetcher.follow(self._cache)
