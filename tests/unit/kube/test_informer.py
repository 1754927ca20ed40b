"""What an informer knows of its objects, also of those that left its selection while they were deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from runner.core.kube.client import EVERYTHING, Client, Selection
from runner.core.kube.discovery import Discovery
from runner.core.kube.informer import Informer
from runner.core.kube.presence import ABSENT, PRESENT, Unknown
from runner.values.objects import GVK, Object, ObjectKey
from tests.kit.wait import until
from tests.unit.kube.scripted import ALL, DISCOVERY, WIDGET, Answer, Api, Seen

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


FINALIZER = "example.com/finalizer"
DELETED = "2026-01-01T00:00:00Z"
LEFT = ObjectKey("ns", "left")


def left_object(api: Api) -> Object:
    widget = api.widget("left", 2)
    return {**widget, "metadata": {**widget["metadata"], "finalizers": [FINALIZER], "deletionTimestamp": DELETED}}


@pytest.fixture
def informer(api: Api, client: Client) -> Informer:
    """An informer of a selection that an object with the finalizer has left."""
    api.on(f"{DISCOVERY}/namespaces/ns/widgets/left", api.reply(left_object(api)))
    return Informer(client, Discovery(client), WIDGET, (), Selection(labels="tier=gold"), FINALIZER)


def respond_to_searches(api: Api, *answers: Answer) -> None:
    """Respond to lists by pages one by one, and to watches with an empty list."""
    watch, left = api.stream(api.bookmark(3, ends_list=True), "stay"), list(answers)

    async def answer(request: web.Request) -> web.StreamResponse:
        return await (left.pop(0) if "limit" in request.query else watch)(request)

    api.on(ALL, answer)


def searches(api: Api) -> list[Seen]:
    return [request for request in api.of(ALL) if "limit" in request.query]


@asynccontextmanager
async def following(informer: Informer) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.follow(lambda _: None))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_search_that_the_end_of_the_watch_interrupts_is_repeated(api: Api, informer: Informer) -> None:
    respond_to_searches(api, api.refuse(403, "Forbidden"))
    async with following(informer):
        await until(lambda: searches(api))
    respond_to_searches(api, api.page(4, left_object(api)))
    async with following(informer):
        await until(lambda: informer.get(LEFT) is not None)


@pytest.mark.lengthy
async def test_a_refused_read_is_logged_once_for_each_namespace(
    api: Api, informer: Informer, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [f"{DISCOVERY}/namespaces/{namespace}/widgets/left" for namespace in ("ns", "other")]
    for path in paths:
        api.on(path, api.refuse(403, "Forbidden"))
    left = left_object(api)
    respond_to_searches(api, api.page(4, left, {**left, "metadata": {**left["metadata"], "namespace": "other"}}))
    async with following(informer):
        await until(lambda: all(len(api.of(path)) > 1 for path in paths))
    assert capsys.readouterr().out.count("Cannot read objects outside the selection") == 2


@pytest.mark.lengthy
async def test_a_search_whose_list_expires_starts_over_after_a_pause(api: Api, informer: Informer) -> None:
    respond_to_searches(api, api.page(4, cont="more"), api.refuse(410, "Expired"), api.page(4, left_object(api)))
    began = asyncio.get_running_loop().time()
    async with following(informer):
        await until(lambda: informer.get(LEFT) is not None)
    assert asyncio.get_running_loop().time() - began >= 0.5
    assert [request.query.get("continue") for request in searches(api)] == [None, "more", None]
