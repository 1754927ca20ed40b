"""Reads owned objects again that have changed since a run read them, so that its next read is answered from memory.

Promises: one read at a time and few per second, one for any number of changes; an object that goes on changing is read
at ever longer intervals, until a run reads it again. A read that fails is not worth a word: the next one by a run is
answered by the API server. Must not import: the proxy.
"""

from __future__ import annotations

import asyncio
import heapq
from itertools import count
from typing import Protocol
from urllib.parse import quote

import orjson

from runner import log
from runner.errors import ApiError, ApiUnavailableError, NotFoundError
from runner.objects import ObjectKey
from runner.readcache.bodies import ObjectResponse, ReadCache
from runner.readcache.entries import CacheEntries

_PAUSE = 0.02
"""Seconds between two reads."""
_SOON = 0.001
"""Seconds that are not worth waiting for: timers may end by a trifle early."""
_log = log.get(__name__)


class RawReader(Protocol):
    """Reads with the operator's own rights."""

    async def read(self, path: str) -> bytes:
        """Read what is under a path, as JSON, byte for byte; NotFoundError when there is nothing."""
        ...


class Refetcher:
    """The reads that are due."""

    def __init__(self, reader: RawReader) -> None:
        self._reader = reader
        self._due: list[tuple[float, int, CacheEntries, ObjectKey]] = []
        self._numbers = count()
        self._asked = asyncio.Event()

    def ask(self, shelf: CacheEntries, key: ObjectKey, wait: float) -> None:
        """Have an object read in `wait` seconds."""
        at = asyncio.get_running_loop().time() + wait
        heapq.heappush(self._due, (at, next(self._numbers), shelf, key))
        self._asked.set()

    async def follow(self, bodies: ReadCache) -> None:
        """Read for ever."""
        time = asyncio.get_running_loop().time
        while True:
            self._asked.clear()
            if not self._due:
                await self._asked.wait()
            elif (wait := self._due[0][0] - time()) > _SOON:
                await _first(self._asked, wait)
            else:
                _, _, shelf, key = heapq.heappop(self._due)
                for path in bodies.due(shelf, key):
                    await self._read(bodies, shelf, key, path)
                    await asyncio.sleep(_PAUSE)

    async def _read(self, bodies: ReadCache, shelf: CacheEntries, key: ObjectKey, path: str) -> None:
        attempt = bodies.begin(shelf.place(key))
        try:
            data = await self._reader.read(quote(path, safe="/:"))
            obj = orjson.loads(data)
        except NotFoundError:
            bodies.passed(attempt)
        except (ApiError, ApiUnavailableError, orjson.JSONDecodeError) as error:
            bodies.taught_nothing(attempt)
            _log.debug("Cannot refetch an owned object", path=path, error=str(error))
            bodies.consider(shelf, key)
        except BaseException:
            bodies.taught_nothing(attempt)
            raise
        else:
            read = ObjectResponse(path, data, obj)
            bodies.read_again(attempt, read)
            _log.debug("Refetched an owned object", path=path, version=read.version and read.version.version)


async def _first(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, but not for longer."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
