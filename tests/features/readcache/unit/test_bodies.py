"""What is kept of owned objects, for how long, and what it may take. When it is fresh, `test_reads_history` shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import orjson
import pytest

from runner.core.kube.discovery import ApiResource
from runner.features.readcache.bodies import LARGEST, CallScope, ObjectResponse, ReadCache
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef
from tests.features.readcache.unit.watched import ObjectVersion, Watched

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

    def __post_init__(self) -> None:
        self.bodies = ReadCache(self.most)
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


def test_a_read_in_another_version_of_the_api_replaces_the_content(kept: Kept) -> None:
    kept.seen("a", 5)
    kept.read(widget("a", 5), "v1")
    kept.read(widget("a", 5), "v2")
    assert not kept.has("a", "v1")
    assert kept.has("a", "v2")
    kept.bodies.passed(kept.bodies.begin(place("a")))
    assert not kept.has("a", "v2")
    assert kept.bodies.size == 0


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


def test_calls_that_have_ended_leave_nothing(kept: Kept) -> None:
    attempts = [kept.bodies.begin(place(name)) for name in ("a", "a", "b", "")]
    kept.bodies.hold(attempts[0])
    kept.bodies.ended_unobserved(attempts[0])
    kept.bodies.passed(attempts[1])
    kept.bodies.passed(attempts[2], place("c"))
    kept.bodies.wrote(attempts[3], place("d"), ObjectResponse(path("d"), b"{}", widget("d")), wanted=True)
    assert len(kept.bodies._calls) == 0
    assert not kept.bodies._calls._held
