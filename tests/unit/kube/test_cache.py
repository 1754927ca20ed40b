from __future__ import annotations

import random
from typing import Any

import pytest

from runner.core.kube.cache import Cache, Change
from runner.core.kube.watch_events import Applied, Deleted, Relist, Restarted, Synced
from runner.values.objects import Object, ObjectKey

KEY = ObjectKey("ns", "a")


def obj(name: str = "a", version: int = 1, **more: Any) -> Object:
    meta = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "generation": 1}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {**meta, **more}, "spec": {"size": 3}}


def listed(cache: Cache, scope: str, *objects: Object) -> list[Change]:
    changes = cache.apply(scope, Restarted(scope))
    for found in objects:
        changes += cache.apply(scope, Applied(found))
    return changes + cache.apply(scope, Synced())


def test_an_object_is_held_without_managed_fields_and_handed_out_as_a_copy() -> None:
    cache = Cache()
    cache.apply("", Applied(obj(managedFields=[{"manager": "kubectl"}])))
    assert cache.get(KEY) == obj()
    held = cache.get(KEY)
    assert held is not None
    held["spec"]["size"] = 99
    assert cache.get(KEY) == obj()
    assert cache.get(ObjectKey("ns", "b")) is None
    assert KEY in cache
    assert list(cache.keys()) == [KEY]


def test_objects_of_the_first_list_are_marked_as_initial() -> None:
    cache = Cache()
    assert [change.initial for change in listed(cache, "", obj("a"), obj("b"))] == [True, True]
    assert cache.apply("", Applied(obj("c")))[0].initial is False
    assert [change.initial for change in listed(cache, "", obj("a"), obj("b"), obj("c"), obj("d"))] == [False]


def test_an_object_created_while_the_first_list_goes_wrong_still_belongs_to_it() -> None:
    cache = Cache()
    cache.apply("", Restarted(""))
    cache.apply("", Applied(obj("a")))
    (change,) = listed(cache, "", obj("a"), obj("b"))
    assert (change.key.name, change.initial) == ("b", True)


def test_a_list_that_breaks_off_drops_nothing() -> None:
    cache = Cache()
    listed(cache, "", obj("a"), obj("b"))
    cache.apply("", Restarted(""))
    cache.apply("", Applied(obj("a")))
    assert len(cache) == 2
    assert listed(cache, "", obj("b")) != []
    assert list(cache.keys()) == [ObjectKey("ns", "b")]


def test_a_deletion_is_reported_once() -> None:
    cache = Cache()
    listed(cache, "", obj("a"))
    (change,) = cache.apply("", Deleted(obj("a", 5)))
    assert change.old is not None
    assert change.new is None
    assert cache.apply("", Deleted(obj("a", 5))) == []


def test_a_scope_drops_its_own_objects_only() -> None:
    cache = Cache()
    listed(cache, "one", obj("a", namespace="one"))
    listed(cache, "two", obj("b", namespace="two"))
    (change,) = listed(cache, "one")
    assert change.key == ObjectKey("one", "a")
    assert list(cache.keys()) == [ObjectKey("two", "b")]


def test_the_summary_has_generation_deletion_and_finalizers() -> None:
    cache = Cache()
    deleting = obj(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["a/b", "c/d"], generation=7)
    cache.apply("", Applied(deleting))
    summary = cache.summary(KEY)
    assert summary is not None
    assert summary.generation == 7
    assert summary.deleting
    assert summary.finalizers == ("a/b", "c/d")
    assert summary.content_digest == b""
    assert cache.summary(ObjectKey("ns", "b")) is None


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"data": {"k": "other"}}, True),
        ({"metadata": {"labels": {"a": "b"}}}, True),
        ({"metadata": {"resourceVersion": "2"}}, False),
        ({"metadata": {"managedFields": [{"manager": "x"}]}}, False),
    ],
)
def test_changes_of_a_kind_without_generation_are_detected_by_content(change: dict[str, Any], *, differs: bool) -> None:
    def secret(more: dict[str, Any]) -> Object:
        meta = {"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": "1", **more.get("metadata", {})}
        return {"apiVersion": "v1", "kind": "Secret", "data": more.get("data", {"k": "v"}), "metadata": meta}

    first, second = Cache(), Cache()
    first.apply("", Applied(secret({})))
    second.apply("", Applied(secret(change)))
    one, two = first.summary(KEY), second.summary(KEY)
    assert one is not None
    assert two is not None
    assert (one.content_digest != two.content_digest) is differs


def test_the_digest_of_annotations_does_not_depend_on_their_order() -> None:
    def digest(annotations: dict[str, str]) -> bytes:
        cache = Cache()
        cache.apply("", Applied(obj(annotations=annotations)))
        summary = cache.summary(KEY)
        assert summary is not None
        return summary.annotations_digest

    assert digest({"a": "1", "b": "2"}) == digest({"b": "2", "a": "1"})
    assert digest({"a": "1"}) != digest({"a": "2"})
    assert digest({}) != digest({"a": ""})


@pytest.mark.parametrize("seed", range(20))
def test_after_any_history_the_cache_holds_what_the_server_holds(seed: int) -> None:
    """Changes reach the cache by events, or are missed until the next list; the changes add up to the same."""
    rng = random.Random(seed)
    cache, server, reported = Cache(), dict[str, Object](), dict[str, str]()

    def tell(changes: list[Change]) -> None:
        for change in changes:
            if change.new is None:
                del reported[change.key.name]
            else:
                reported[change.key.name] = change.new.uid

    connected = False
    for version in range(300):
        name = f"w{rng.randrange(12)}"
        if rng.random() < 0.1:
            connected = not connected
            if connected:
                tell(listed(cache, "", *rng.sample(list(server.values()), len(server))))
        elif name in server and rng.random() < 0.3:
            gone = server.pop(name)
            if connected:
                tell(cache.apply("", Deleted(gone)))
        else:
            uid = server[name]["metadata"]["uid"] if name in server else f"{name}-{version}"
            server[name] = obj(name, version, uid=uid)
            if connected:
                tell(cache.apply("", Applied(server[name])))
    tell(listed(cache, "", *server.values()))
    assert {key.name: cache.get(key) for key in cache.keys()} == server  # noqa: SIM118 - a cache is no mapping
    assert reported == {name: held["metadata"]["uid"] for name, held in server.items()}


@pytest.mark.parametrize("generation", [1, None])
def test_the_operators_record_of_the_last_run_is_not_a_change_of_an_object(generation: int | None) -> None:
    cache = Cache()
    listed(cache, "", obj(generation=generation, annotations={"theirs": "1"}))
    annotations = {"theirs": "1", "ansible.sdk.operatorframework.io/last-run": "{}"}
    (change,) = cache.apply("", Applied(obj(version=2, generation=generation, annotations=annotations)))
    assert change.old is not None
    assert change.new is not None
    assert change.new.annotations_digest == change.old.annotations_digest
    assert change.new.content_digest == change.old.content_digest
    assert "last-run" in str(cache.get(KEY))


A, B = ObjectKey("ns", "a"), ObjectKey("ns", "b")


def test_a_list_that_starts_over_expects_every_known_object_again() -> None:
    relist = Relist()
    relist.begin("ns", [A, B])
    relist.saw(A)
    relist.begin("ns", [A, B])
    relist.saw(B)
    assert list(relist.end("ns")) == [A]


def test_an_object_that_another_scope_shows_is_not_missing() -> None:
    relist = Relist()
    relist.begin("ns", [A])
    relist.begin("", [])
    relist.saw(A)
    assert not relist.end("ns")


def test_lists_are_initial_until_one_is_complete() -> None:
    relist = Relist()
    assert not relist.is_initial("ns")
    relist.begin("ns", [])
    relist.begin("ns", [])
    assert relist.is_initial("ns")
    relist.end("ns")
    relist.begin("ns", [])
    assert not relist.is_initial("ns")


def test_the_requests_of_lists_are_counted_by_scope() -> None:
    relist = Relist()
    relist.request("ns")
    relist.begin("ns", [])
    relist.request("ns")
    assert (relist.round("ns"), relist.round("")) == (2, 0)
