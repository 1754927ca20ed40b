"""What is kept of owned objects, for how long, and what it may take. When it is fresh, `test_reads_history` shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson
import pytest

from runner.core.kube.discovery import ApiResource
from runner.features.readcache.bodies import LARGEST, ObjectResponse, ReadCache
from runner.features.readcache.entries import ObjectVersion
from runner.features.readcache.inflight import CallScope
from runner.features.readcache.refetch import Refetcher
from runner.values.errors import ApiUnavailableError, NotFoundError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef
from tests.features.readcache.unit.watched import Watched

pytestmark = pytest.mark.virtual_time

OWNER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"))
VERBS = frozenset({"get", "list", "watch"})
WIDGETS = ApiResource(GVK("example.com", "v1", "Widget"), "widgets", True, VERBS, frozenset())  # noqa: FBT003 - namespaced


def key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def place(name: str) -> CallScope:
    return CallScope("example.com", "widgets", "ns", name)


def path(name: str, version: str = "v1") -> str:
    return f"/apis/example.com/{version}/namespaces/ns/widgets/{name}"


def widget(name: str, version: int = 1, size: int = 0, *, owned: bool = True) -> Object:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta, "owned": owned, "text": "x" * size}


@dataclass
class Kept:
    """`ReadCache` with one kind, whose watch the test speaks for."""

    most: int = 1 << 20
    requests: list[tuple[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bodies = ReadCache(self.most, lambda _, key, wait: self.requests.append((key.name, wait)))
        self.watch = Watched(self.bodies, WIDGETS, lambda obj: (OWNER,) if obj["owned"] else ())
        self.entries = self.watch.entries

    def seen(self, name: str, version: int = 1) -> None:
        self.watch.applied(key(name), ObjectVersion(f"uid-{name}", str(version)))

    def read(self, obj: Object, version: str = "v1", *, wanted: bool = True) -> None:
        """A run reads an object."""
        name = obj["metadata"]["name"]
        answer = ObjectResponse(path(name, version), orjson.dumps(obj), obj)
        self.bodies.showed(self.bodies.begin(place(name)), answer, wanted=wanted)

    def has(self, name: str, version: str = "v1") -> bool:
        return self.bodies.find(path(name, version)) is not None


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_a_read_object_is_found_once_the_watch_has_delivered_its_version(kept: Kept) -> None:
    kept.read(widget("a", 5))
    assert not kept.has("a")
    kept.seen("a", 4)
    assert not kept.has("a")
    kept.seen("a", 5)
    assert kept.bodies.find(path("a")) == orjson.dumps(widget("a", 5))
    kept.seen("a", 6)
    assert not kept.has("a")


def test_each_version_of_the_api_has_its_own_content_and_all_end_together(kept: Kept) -> None:
    kept.seen("a", 5)
    kept.read(widget("a", 5), "v1")
    kept.read(widget("a", 5), "v2")
    assert kept.has("a", "v1")
    assert kept.has("a", "v2")
    kept.bodies.passed(kept.bodies.begin(place("a")))
    assert not kept.has("a", "v1")
    assert not kept.has("a", "v2")
    assert kept.bodies.size == 0


def test_content_under_another_path_is_confirmed_by_a_read_of_the_same_version(kept: Kept) -> None:
    kept.seen("a", 5)
    kept.read(widget("a", 5), "v1")
    kept.bodies.passed(kept.bodies.begin(place("")))
    assert not kept.has("a", "v1")
    kept.read(widget("a", 5), "v2")
    assert kept.has("a", "v1")


@pytest.mark.parametrize(
    "end",
    [
        lambda kept: kept.watch.applied(key("a"), None),
        lambda kept: kept.bodies.forget(OWNER),
        lambda kept: kept.bodies.unfollow(WIDGETS),
        lambda kept: kept.watch.follow(),
        lambda kept: kept.read(widget("a", 6, owned=False)),
        lambda kept: kept.watch.lists(),
    ],
    ids=["object gone", "owner gone", "kind gone", "kind anew", "given up", "not in the list"],
)
def test_a_dropped_object_leaves_nothing(kept: Kept, end: Callable[[Kept], object]) -> None:
    kept.seen("a")
    kept.read(widget("a"))
    assert kept.has("a")
    end(kept)
    assert not kept.has("a")
    assert kept.bodies.size == 0
    assert not kept.entries.kept


def test_a_list_keeps_what_it_holds(kept: Kept) -> None:
    kept.seen("a")
    kept.read(widget("a"))
    kept.read(widget("b"))
    kept.watch.lists(key("a"))
    kept.seen("b")
    assert kept.has("b"), "the list can be older than the read"
    assert kept.has("a")


@pytest.mark.parametrize("obj", [widget("a", owned=False), widget("a", size=LARGEST), {**widget("a"), "metadata": {}}])
def test_objects_without_owner_or_version_and_too_large_ones_are_not_cached(kept: Kept, obj: Object) -> None:
    kept.seen("a")
    answer = ObjectResponse(path("a"), orjson.dumps(obj), obj)
    kept.bodies.showed(kept.bodies.begin(place("a")), answer, wanted=True)
    assert not kept.has("a")
    assert kept.bodies.size == 0
    assert not kept.entries.kept


def test_the_least_recently_used_object_is_dropped_if_the_cache_is_full(kept: Kept) -> None:
    kept = Kept(most=10_000)
    for name in "abc":
        kept.seen(name)
        kept.read(widget(name, size=1500))
    assert kept.has("a")
    kept.seen("d")
    kept.read(widget("d", size=1500))
    assert [name for name in "abcd" if kept.has(name)] == ["a", "c", "d"]
    assert kept.bodies.size <= 10_000
    kept.requests.clear()
    kept.seen("b", 2)
    assert kept.requests == []


def test_the_number_of_objects_that_the_watch_never_delivers_is_bounded(kept: Kept) -> None:
    for number in range(2000):
        kept.read(widget(f"n{number}"))
    assert len(kept.entries.kept) <= 1024


def test_the_number_of_namespaces_with_unknown_objects_is_bounded(kept: Kept) -> None:
    kept.seen("a")
    kept.read(widget("a"))
    other = place("")._replace(namespace="n0")
    kept.bodies.passed(kept.bodies.begin(other))
    assert kept.has("a")
    for number in range(2000):
        kept.bodies.passed(kept.bodies.begin(other._replace(namespace=f"n{number}")))
    assert len(kept.entries._eras) <= 1024
    assert not kept.has("a")
    kept.read(widget("a"))
    assert kept.has("a")


def test_after_a_gap_nothing_holds_until_it_is_read_again(kept: Kept) -> None:
    kept.seen("a")
    kept.read(widget("a"))
    kept.watch.unbroken = None
    assert not kept.has("a")
    kept.watch.unbroken = 1
    assert kept.has("a")
    kept.watch.unbroken = 2
    assert not kept.has("a")
    kept.read(widget("a"))
    assert kept.has("a")


def test_while_the_watch_is_broken_nothing_is_read_again_but_later_it_is(kept: Kept) -> None:
    kept.seen("a", 1)
    kept.read(widget("a", 1))
    kept.seen("a", 2)
    kept.watch.unbroken = None
    assert kept.bodies.due(kept.entries, key("a")) == ()
    kept.watch.unbroken = 2
    assert [name for name, _ in kept.requests] == ["a", "a"]
    assert kept.bodies.due(kept.entries, key("a")) == (path("a"),)


def test_calls_that_have_ended_leave_nothing(kept: Kept) -> None:
    attempts = [kept.bodies.begin(place(name)) for name in ("a", "a", "b", "")]
    kept.bodies.hold(attempts[0])
    kept.bodies.ended_unobserved(attempts[0])
    kept.bodies.passed(attempts[1])
    kept.bodies.passed(attempts[2], place("c"))
    kept.bodies.wrote(attempts[3], place("d"), ObjectResponse(path("d"), b"{}", widget("d")), wanted=True)
    assert len(kept.bodies._calls) == 0
    assert not kept.bodies._calls._held


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
        self.rereads = Refetcher(self.read)
        self.bodies = ReadCache(1 << 20, self.rereads.schedule)
        self.watch = Watched(self.bodies, WIDGETS, lambda _: (OWNER,))

    async def read(self, path: str) -> bytes:
        self.requests.append((asyncio.get_running_loop().time(), path))
        if self.trouble is not None:
            raise self.trouble
        return content(self.version)

    def delivered(self, version: int) -> None:
        self.version = version
        self.watch.applied(KEY, ObjectVersion("u", str(version)))

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

    asyncio.get_running_loop().call_later(1.2, reading.watch.applied, KEY, None)
    await reading.run(1.0)
    assert reading.requests == []
