"""Gaps of a watch, which decide whether cached objects are up to date."""

from __future__ import annotations

import asyncio

from runner.core.kube.watch_health import WatchState
from tests.kit.following import Follow
from tests.kit.wait import until
from tests.unit.kube.scripted import Api

ALL = "/apis/example.com/v1/widgets"


async def test_an_unbroken_period_begins_with_the_end_of_the_list(api: Api, follow: Follow) -> None:
    go = asyncio.Event()
    api.on(ALL, api.stream(api.event("ADDED", api.widget("a", 1)), go, api.bookmark(3, ends_list=True), "stay"))
    async with follow() as follower:
        await follower.reaches("[ +a")
        assert (follower.watcher.health.state, follower.watcher.health.unbroken_period) == (WatchState.LISTING, None)
        go.set()
        await follower.reaches("[ +a ]")
        assert (follower.watcher.health.state, follower.watcher.health.unbroken_period) == (WatchState.LIVE, 1)


async def test_the_end_of_a_watch_at_its_timeout_is_not_a_gap(api: Api, follow: Follow) -> None:
    first = api.stream(api.bookmark(3, ends_list=True), api.event("ADDED", api.widget("a", 4)))
    api.on(ALL, first, api.stream(api.event("ADDED", api.widget("b", 5)), "stay"))
    async with follow(shortest_watch=1.0, longest_watch=1.0) as follower:
        await follower.reaches("[ ] +a +b")
        assert follower.watcher.health.unbroken_period == 1


async def test_the_end_of_a_watch_before_its_time_is_a_gap(api: Api, follow: Follow) -> None:
    first = api.stream(api.bookmark(3, ends_list=True), api.event("ADDED", api.widget("a", 4)))
    api.on(ALL, first, api.stream(api.event("ADDED", api.widget("b", 5)), "stay"))
    async with follow() as follower:
        await follower.reaches("[ ] +a +b")
        assert follower.watcher.health.unbroken_period == 2


async def test_a_watch_whose_connection_breaks_has_a_gap_however_soon_it_reconnects(api: Api, follow: Follow) -> None:
    first = api.stream(api.bookmark(3, ends_list=True), api.event("ADDED", api.widget("a", 4)), "abort")
    api.on(ALL, first, api.stream(api.event("ADDED", api.widget("b", 5)), "stay"))
    async with follow(shortest_watch=1.0, longest_watch=1.0) as follower:
        await follower.reaches("[ ] +a +b")
        assert follower.watcher.health.unbroken_period == 2


async def test_there_is_no_unbroken_period_while_no_watch_is_open(api: Api, follow: Follow) -> None:
    first = api.stream(api.bookmark(3, ends_list=True), api.event("ADDED", api.widget("a", 4)))
    api.on(ALL, first, api.hang)
    async with follow(shortest_watch=1.0, longest_watch=1.0) as follower:
        await until(lambda: len(api.of(ALL)) == 2)
        assert follower.watcher.health.unbroken_period is None
        assert follower.watcher.health.state is WatchState.LIVE


async def test_an_expired_version_has_a_gap_before_the_list(api: Api, follow: Follow) -> None:
    first = api.stream(api.bookmark(3, ends_list=True), api.expired())
    api.on(ALL, first, api.stream(api.bookmark(9, ends_list=True), "stay"))
    async with follow() as follower:
        await follower.reaches("[ ] [ ]")
        assert follower.watcher.health.unbroken_period == 2
