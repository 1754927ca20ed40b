"""The watcher against a scripted API server (the I/O seam): what it says and asks when the server misbehaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from runner.base import log
from runner.core.kube.client import EVERYTHING, Client, Selection
from runner.core.kube.discovery import Discovery
from runner.core.kube.watch import WatchPolicy, WatchStream, watchers
from runner.core.kube.watch_health import WatchHealth, WatchState
from runner.values.errors import ApiUnavailableError, KindNotFoundError
from runner.values.objects import GVK, ObjectKey
from tests.kit.following import Follow, names_of_list
from tests.kit.wait import patience, until
from tests.unit.kube.scripted import Api

DISCOVERY = "/apis/example.com/v1"
ALL = f"{DISCOVERY}/widgets"


async def test_a_list_is_bracketed_and_then_followed(api: Api, follow: Follow) -> None:
    later = [api.event("MODIFIED", api.widget("a", 4)), api.event("DELETED", api.widget("b", 5))]
    api.on(ALL, api.page(3, api.widget("a", 1), api.widget("b", 2)), api.stream(*later, "stay"))
    async with follow() as follower:
        await follower.reaches("[ +a +b ] +a -b")
        assert follower.watcher.health.state is WatchState.LIVE
    query = api.of(ALL)[1].query
    assert query["resourceVersion"] == "3"
    assert query["allowWatchBookmarks"] == "true"
    assert 240 <= int(query["timeoutSeconds"]) <= 480


WATCH = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


@pytest.mark.parametrize(("metadata_only", "accept"), [(True, [LIST, WATCH]), (False, ["application/json"] * 2)])
async def test_the_selection_is_sent_with_lists_and_watches(
    api: Api, follow: Follow, *, metadata_only: bool, accept: list[str]
) -> None:
    api.on(ALL, api.page(1, api.widget("a", 1)), api.stream("stay"))
    async with follow(selector=Selection("a=b,c in (d,e)", metadata_only=metadata_only)) as follower:
        await follower.reaches("[ +a ]")
        await until(lambda: len(api.of(ALL)) == 2)
    assert {request.query["labelSelector"] for request in api.of(ALL)} == {"a=b,c in (d,e)"}
    assert [request.headers["Accept"] for request in api.of(ALL)] == accept


async def test_pages_grow_where_objects_are_small_and_shrink_where_they_are_large(api: Api, follow: Follow) -> None:
    small = [api.widget(f"s{i}", i) for i in range(2)]
    large = [api.widget(f"l{i}", i, spec={"text": "x" * 40_000}) for i in range(4)]
    pages = [api.page(9, *small, cont="1"), api.page(9, *large, cont="2"), api.page(9)]
    api.on(ALL, *pages, api.stream("stay"))
    async with follow(page_bytes=100_000) as follower:
        await until(lambda: len(api.of(ALL)) == 4)
        assert len(follower.cache) == 6
    limits = [request.query.get("limit") for request in api.of(ALL)]
    assert limits == ["2", "500", "2", None]


async def test_an_expired_continue_token_starts_the_list_over_and_repeats_no_object(api: Api, follow: Follow) -> None:
    gone = api.refuse(410, "Expired")
    first = api.page(5, api.widget("a", 1), cont="more")
    whole = [api.page(6, api.widget("a", 1), cont="more"), api.page(6, api.widget("b", 6))]
    api.on(ALL, first, gone, *whole, api.stream("stay"))
    async with follow() as follower:
        await follower.reaches("[ +a [ +a +b ]")
    assert [change.key.name for change in follower.changes] == ["a", "b"]


async def test_a_watch_that_a_busy_event_loop_opens_late_still_times_out(
    api: Api, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = client.stream

    @asynccontextmanager
    async def late(*args: Any, **options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async with stream(*args, **options) as lines:
            time.sleep(0.1)  # noqa: ASYNC251 - this is the busy event loop
            yield lines

    monkeypatch.setattr(client, "stream", late)
    api.on(ALL, api.stream("stay"))
    health = WatchHealth(GVK("example.com", "v1", "Widget"), "", log.get(__name__), 60.0)
    watch = WatchStream(client, ALL, EVERYTHING, WatchPolicy(idle_limit=0.3), health, "1")
    end = await watch.read(lambda _: None)
    assert isinstance(end.error, ApiUnavailableError)
    assert "did not respond in time" in str(end.error)
    assert end.was_silent


@pytest.mark.lengthy
async def test_without_bookmarks_silence_causes_no_relist(api: Api, follow: Follow) -> None:
    api.on(ALL, api.page(5, api.widget("a", 1)), api.stream("stay"))
    async with follow(idle_limit=0.5) as follower:
        await until(lambda: len(api.of(ALL)) >= 5)
        assert str(follower) == "[ +a ]"
        assert follower.watcher.health.last_error is None
    assert {request.query["resourceVersion"] for request in api.of(ALL)[1:]} == {"5"}


@pytest.mark.lengthy
async def test_after_a_broken_connection_the_watch_continues_at_the_last_version(api: Api, follow: Follow) -> None:
    api.on(
        ALL,
        api.page(3),
        api.stream("abort"),
        api.stream(api.event("ADDED", api.widget("a", 4)), "stay"),
        api.abort,
        api.stream(api.event("ADDED", api.widget("b", 5)), b'{"type":"ADD', "abort"),
        api.stream(api.event("ADDED", api.widget("c", 6)), "stay"),
    )
    async with follow(idle_limit=2.0) as follower:
        await follower.passes("[ ] +a +b +c")
    assert [request.query.get("resourceVersion") for request in api.of(ALL)][1:6] == ["3", "3", "4", "4", "5"]


async def test_lines_may_come_in_pieces_slowly_or_be_huge(api: Api, follow: Follow) -> None:
    line = orjson.dumps(api.event("ADDED", api.widget("a", 1))) + b"\n"
    huge = orjson.dumps(api.event("ADDED", api.widget("b", 2, spec={"text": "x" * 3_000_000}))) + b"\n"
    pieces: list[bytes | float] = []
    for byte in range(0, len(line), 40):
        pieces += [line[byte : byte + 40], 0.002]
    api.on(ALL, api.page(0), api.stream(*pieces, b"\n", huge, "stay"))
    async with follow() as follower:
        await follower.reaches("[ ] +a +b")
        found = follower.cache.get(ObjectKey("ns", "b"))
        assert found is not None
        assert len(found["spec"]["text"]) == 3_000_000


async def test_an_invalid_watch_event_is_an_error_and_the_watch_is_retried(api: Api, follow: Follow) -> None:
    api.on(ALL, api.page(3), api.stream(b"<html>Bad gateway</html>\n", "stay"), api.stream("stay"))
    async with follow() as follower:
        await until(lambda: "is not a watch event" in (follower.watcher.health.last_error or ""))
        await follower.reaches("[ ]")


async def test_a_server_that_cannot_be_reached_is_tried_until_it_is_back(api: Api, follow: Follow) -> None:
    api.on(DISCOVERY, api.abort, api.refuse(503, "ServiceUnavailable"), api.refuse(500, "InternalError"), api.served())
    api.on(ALL, api.page(3), api.stream("stay"))
    async with follow() as follower:
        await follower.reaches("[ ]")
        await until(lambda: follower.watcher.health.state is WatchState.LIVE)
        assert follower.watcher.health.last_error is None
        assert follower.watcher.health.last_contact is not None


@pytest.mark.lengthy
async def test_retry_after_is_obeyed(api: Api, follow: Follow) -> None:
    api.on(ALL, api.page(3), api.refuse(429, "TooManyRequests", Retry_After="1"), api.stream("stay"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with follow() as follower:
        await until(lambda: follower.watcher.health.state is WatchState.LIVE)
    assert loop.time() - began >= 1.0


@pytest.mark.lengthy
async def test_a_server_that_closes_every_watch_at_once_is_not_stormed(api: Api, follow: Follow) -> None:
    api.on(ALL, api.page(3), api.stream())
    async with follow(settled=1.0, first_backoff=0.1, longest_backoff=0.2) as follower:
        await until(lambda: follower.watcher.health.state is WatchState.FAILING)
        await asyncio.sleep(0.5)
    assert 3 <= len(api.of(ALL)) <= 10


async def test_the_objects_of_a_kind_that_is_not_served_are_unknown_until_it_is_listed_again(
    api: Api, follow: Follow
) -> None:
    api.on(ALL, api.page(3, api.widget("a", 1), api.widget("b", 1)), api.refuse(404, "NotFound"))
    async with follow(settled=0.0) as follower:
        watcher = follower.watcher
        assert watcher.health.unknown is not None
        await follower.reaches("[ +a +b ]")
        api.on(DISCOVERY, api.refuse(404, "NotFound"))
        await until(lambda: len(api.of(DISCOVERY)) >= 5)
        assert watcher.health.state is WatchState.WAITING_FOR_KIND
        assert "the API server does not serve" in str(watcher.health.unknown)
        assert len(follower.changes) == 2
        api.on(ALL, api.page(22, api.widget("a", 21, uid="other")), api.stream("stay"))
        api.on(DISCOVERY, api.served())
        await follower.reaches("[ +a +b ] [ +a ]")
        assert watcher.health.unknown is None
    replaced, gone = follower.changes[2:]
    assert (replaced.key.name, replaced.new.uid, gone.key.name, gone.new) == ("a", "other", "b", None)
    assert not replaced.initial


async def test_a_kind_that_is_no_longer_served_is_not_refused_any_more() -> None:
    health = WatchHealth(GVK("example.com", "v1", "Widget"), "", log.get(__name__), 60.0)
    health.is_refused = True
    health.absent(KindNotFoundError("no such kind"))
    assert (health.state, health.is_refused) == (WatchState.WAITING_FOR_KIND, False)


async def test_with_several_namespaces_one_watcher_lists_a_cluster_scoped_kind(api: Api, client: Client) -> None:
    api.on(DISCOVERY, api.served(namespaced=False))
    api.on(ALL, api.page(3, api.widget("a", 1)), api.stream("stay"))
    gvk = GVK("example.com", "v1", "Widget")
    made = watchers(client, Discovery(client), gvk, ["one", "two"], EVERYTHING)
    assert [watcher.namespace for watcher in made] == ["one", "two"]

    assert await names_of_list(made[0]) == ["Requested", "Restarted", "Applied", "Synced"]
    assert await names_of_list(made[1]) == ["Requested", "Restarted", "Synced"]
    assert made[1].health.state is WatchState.LIVE
    assert len(api.of(ALL)) <= 2


async def test_a_kind_that_becomes_cluster_scoped_is_listed_again(api: Api, follow: Follow) -> None:
    path = f"{DISCOVERY}/namespaces/ns/widgets"
    api.on(DISCOVERY, api.served(), api.served(namespaced=False))
    api.on(path, api.page(3, api.widget("a", 1)), api.stream())
    api.on(ALL, api.page(10, api.widget("b", 9, namespace="")), api.stream("stay"))
    async with follow(namespace="ns") as follower:
        await follower.reaches("[ +a ] [ +b ]")
        assert follower.names == ["b"]


@pytest.mark.lengthy
async def test_many_events_leave_the_event_loop_to_others(api: Api, follow: Follow) -> None:
    objects = [api.widget(f"w{i}", i, spec={"text": "x" * 1000}) for i in range(3000)]
    wire = b"".join(orjson.dumps(api.event("ADDED", obj)) + b"\n" for obj in objects)
    api.on(ALL, api.page(0), api.stream(wire, "stay"))
    turns = 0
    async with follow() as follower:

        async def take_turns() -> None:
            nonlocal turns
            while len(follower.cache) < 3000:
                turns += 1
                await asyncio.sleep(0)

        async with asyncio.timeout(patience()):
            await take_turns()
    assert turns >= 10


async def test_an_unbroken_period_begins_with_the_watch(api: Api, follow: Follow) -> None:
    api.on(ALL, api.page(2, api.widget("a", 1), cont="more"), api.hang)
    async with follow() as follower:
        await follower.reaches("[ +a")
        assert (follower.watcher.health.state, follower.watcher.health.unbroken_period) == (WatchState.LISTING, None)
    api.on(ALL, api.page(3, api.widget("a", 1)), api.stream("stay"))
    async with follow() as follower:
        await until(lambda: follower.watcher.health.state is WatchState.LIVE)
        assert follower.watcher.health.unbroken_period == 1


@pytest.mark.parametrize(
    ("seconds", "end", "period"),
    [(1.0, (), 1), (240.0, (), 2), (1.0, ("abort",), 2)],
    ids=["at its timeout", "before its time", "a broken connection"],
)
async def test_the_end_of_a_watch_is_a_gap_unless_it_comes_at_its_timeout(
    api: Api, follow: Follow, seconds: float, end: tuple[str, ...], period: int
) -> None:
    first = api.stream(api.event("ADDED", api.widget("a", 4)), *end)
    api.on(ALL, api.page(3), first, api.stream(api.event("ADDED", api.widget("b", 5)), "stay"))
    async with follow(shortest_watch=seconds, longest_watch=seconds) as follower:
        await follower.reaches("[ ] +a +b")
        assert follower.watcher.health.unbroken_period == period


async def test_there_is_no_unbroken_period_while_no_watch_is_open(api: Api, follow: Follow) -> None:
    first = api.stream(api.event("ADDED", api.widget("a", 4)))
    api.on(ALL, api.page(3), first, api.hang)
    async with follow(shortest_watch=1.0, longest_watch=1.0) as follower:
        await until(lambda: len(api.of(ALL)) == 3)
        assert follower.watcher.health.unbroken_period is None
        assert follower.watcher.health.state is WatchState.LIVE


async def test_an_expired_version_has_a_gap_before_the_list(api: Api, follow: Follow) -> None:
    api.on(ALL, api.page(3), api.stream(api.expired()), api.page(9), api.stream("stay"))
    async with follow() as follower:
        await follower.reaches("[ ] [ ]")
        await until(lambda: follower.watcher.health.unbroken_period == 2)
