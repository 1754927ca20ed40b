"""Refetches owned objects that changed since a run read them, so that the cache can serve the next read.

Promises: one read at a time, a few per second, one read for any number of changes. The interval grows for an object
that changes repeatedly, until a run reads it again. A failed read is only logged at debug level, because the API server
serves the next read of a run. Must not import: the proxy.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from itertools import count
from urllib.parse import quote

import orjson

from runner.base import log
from runner.core.kube import decode
from runner.features.readcache.bodies import ObjectResponse, ReadCache
from runner.features.readcache.entries import CacheEntries
from runner.values.errors import ApiError, ApiUnavailableError, NotFoundError
from runner.values.objects import ObjectKey

_PAUSE = 0.02
"""Seconds between two reads."""
_SOON = 0.001
"""Seconds that are not worth a timer, which may fire slightly early."""
_log = log.get(__name__)


class Refetcher:
    """Queue of the reads that are due."""

    def __init__(self, request: Callable[[str], Awaitable[bytes]]) -> None:
        """`request` returns the JSON at a path, byte for byte. Raises NotFoundError and errors of the client."""
        self._request = request
        self._due: list[tuple[float, int, CacheEntries, ObjectKey]] = []
        self._numbers = count()
        self._requested = asyncio.Event()

    def schedule(self, entries: CacheEntries, key: ObjectKey, wait: float) -> None:
        """Schedule the read of an object in `wait` seconds."""
        at = asyncio.get_running_loop().time() + wait
        heapq.heappush(self._due, (at, next(self._numbers), entries, key))
        self._requested.set()

    async def follow(self, bodies: ReadCache) -> None:
        """Read the scheduled objects until cancelled."""
        time = asyncio.get_running_loop().time
        while True:
            self._requested.clear()
            if not self._due:
                await self._requested.wait()
            elif (wait := self._due[0][0] - time()) > _SOON:
                await _first(self._requested, wait)
            else:
                _, _, entries, key = heapq.heappop(self._due)
                for path in bodies.due(entries, key):
                    await self._read(bodies, entries, key, path)
                    await asyncio.sleep(_PAUSE)

    async def _read(self, bodies: ReadCache, entries: CacheEntries, key: ObjectKey, path: str) -> None:
        attempt = bodies.begin(entries.place(key))
        try:
            data = await self._request(quote(path, safe="/:"))
            obj = decode.loads(data)
        except NotFoundError:
            bodies.passed(attempt)
        except (ApiError, ApiUnavailableError, orjson.JSONDecodeError) as error:
            bodies.ended_unobserved(attempt)
            _log.debug("Cannot refetch an owned object", path=path, error=str(error))
            bodies.consider(entries, key)
        except BaseException:
            bodies.ended_unobserved(attempt)
            raise
        else:
            read = ObjectResponse(path, data, obj)
            bodies.read_again(attempt, read)
            _log.debug("Refetched an owned object", path=path, version=read.version and read.version.version)


async def _first(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, at most for `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
