"""When objects are read again, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import orjson
import pytest

from runner.core.kube.discovery import ApiResource
from runner.features.readcache.bodies import ObjectResponse, ReadCache
from runner.features.readcache.entries import ObjectVersion
from runner.features.readcache.inflight import CallScope
from runner.features.readcache.refetch import Refetcher
from runner.values.errors import ApiUnavailableError, NotFoundError
from runner.values.objects import GVK, ObjectKey, ObjectRef

pytestmark = pytest.mark.virtual_time

OWNER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"))
VERBS = frozenset({"get", "list", "watch"})
WIDGETS = ApiResource(GVK("example.com", "v1", "Widget"), "widgets", True, VERBS, frozenset())  # noqa: FBT003 - namespaced
KEY = ObjectKey("ns", "a:b c")
PATH = "/apis/example.com/v1/namespaces/ns/widgets/a:b c"


def content(version: int) -> bytes:
    meta = {"name": KEY.name, "namespace": "ns", "uid": "u", "resourceVersion": str(version)}
    return orjson.dumps({"metadata": meta})


@dataclass
class Reading:
    """`Refetcher` of one object, and the API server that it asks."""

    version: int = 1
    trouble: Exception | None = None
    requests: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rereads = Refetcher(self)
        self.bodies = ReadCache(1 << 20, self.rereads.schedule)
        self.entries = self.bodies.follow(WIDGETS, lambda _: 1, lambda _: (OWNER,))

    async def read(self, path: str) -> bytes:
        self.requests.append((asyncio.get_running_loop().time(), path))
        if self.trouble is not None:
            raise self.trouble
        return content(self.version)

    def delivered(self, version: int) -> None:
        self.version = version
        self.entries.applied(KEY, ObjectVersion("u", str(version)))

    def read_by_run(self) -> None:
        data = content(self.version)
        attempt = self.bodies.begin(CallScope("example.com", "widgets", *KEY))
        self.bodies.showed(attempt, ObjectResponse(PATH, data, orjson.loads(data)), wanted=True)

    async def run(self, *changes: float) -> None:
        """A run reads the object; then it changes after so many seconds each."""
        following = asyncio.create_task(self.rereads.follow(self.bodies))
        self.delivered(1)
        self.read_by_run()
        for wait in changes:
            await asyncio.sleep(wait)
            self.delivered(self.version + 1)
        await asyncio.sleep(1000)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_a_changed_object_is_read_half_a_second_later_once_for_any_number_of_changes() -> None:
    reading = Reading()
    await reading.run(1.0, 0.1, 0.1)
    assert reading.requests == [(1.5, PATH.replace(" ", "%20"))]
    assert reading.bodies.find(PATH) == content(4)


async def test_an_object_that_changes_continuously_is_read_less_and_less_often() -> None:
    reading = Reading()
    await reading.run(*[0.25] * 400)
    assert 5 <= len(reading.requests) <= 10
    assert reading.bodies.find(PATH) == content(401)


@pytest.mark.parametrize("trouble", [ApiUnavailableError("away"), NotFoundError("not there", status=404)])
async def test_a_read_that_fails_is_tried_again_for_a_while_only(trouble: Exception) -> None:
    reading = Reading(trouble=trouble)
    await reading.run(1.0)
    assert 1 <= len(reading.requests) <= 11
    assert reading.bodies.find(PATH) is None


async def test_an_object_deleted_before_its_refetch_is_not_read() -> None:
    reading = Reading()

    asyncio.get_running_loop().call_later(1.2, reading.entries.gone, KEY)
    await reading.run(1.0)
    assert reading.requests == []
