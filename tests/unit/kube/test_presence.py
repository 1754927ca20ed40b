"""Whether an object exists: present, absent, or unknown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from runner.core.kube.client import EVERYTHING, Client
from runner.core.kube.discovery import Discovery
from runner.core.kube.informer import Informer
from runner.core.kube.presence import ABSENT, PRESENT, Unknown
from runner.values.objects import GVK, ObjectKey
from tests.kit.wait import until
from tests.unit.kube.scripted import Api

DISCOVERY = "/apis/example.com/v1"
GVK_ = GVK("example.com", "v1", "Widget")


def path(namespace: str) -> str:
    return f"{DISCOVERY}/namespaces/{namespace}/widgets"


@asynccontextmanager
async def informing(client: Client, *namespaces: str) -> AsyncIterator[Informer]:
    informer = Informer(client, Discovery(client), GVK_, namespaces, EVERYTHING, "")
    task = asyncio.create_task(informer.follow(lambda _: None))
    try:
        yield informer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_before_the_first_list_and_outside_the_watched_namespaces_every_object_is_unknown(client: Client) -> None:
    informer = Informer(client, Discovery(client), GVK_, ["a"], EVERYTHING, "")
    for namespace, why in (("a", "not listed yet"), ("other", "does not watch it")):
        found = informer.presence(ObjectKey(namespace, "x"))
        assert isinstance(found, Unknown)
        assert f"in the namespace {namespace}" in str(found)
        assert why in str(found)


async def test_a_refused_namespace_is_unknown_and_its_neighbour_is_known(api: Api, client: Client) -> None:
    api.on(path("a"), api.refuse(403, "Forbidden", "may not list widgets"))
    listed = api.event("ADDED", api.widget("x", 1, namespace="b"))
    api.on(path("b"), api.stream(listed, api.bookmark(3, ends_list=True), "stay"))
    async with informing(client, "a", "b") as informer:
        known = [await anext(informer.known_namespaces())]
        assert known == ["b"]
        await until(lambda: "may not list" in str(informer.unknown("a")))
        assert informer.presence(ObjectKey("b", "x")) is PRESENT
        assert informer.presence(ObjectKey("b", "x"), "another") is ABSENT
        assert informer.presence(ObjectKey("b", "y")) is ABSENT
        assert isinstance(informer.presence(ObjectKey("a", "y")), Unknown)
        assert informer.unknown() is informer.unknown("a")


async def test_a_waiter_learns_each_time_that_all_objects_become_known(api: Api, client: Client) -> None:
    end = asyncio.Event()
    api.on(
        f"{DISCOVERY}/widgets",
        api.stream(api.bookmark(3, ends_list=True), end, "abort"),
        api.refuse(503, "Unavailable"),
        api.stream(api.bookmark(4), "stay"),
    )
    async with informing(client) as informer:
        renewals = informer.renewals()
        await anext(renewals)
        end.set()
        await anext(renewals)
        assert informer.unknown() is None
