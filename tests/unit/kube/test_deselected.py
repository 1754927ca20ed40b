"""Search for the objects that left the selection before the operator started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import Discovery
from runner.core.kube.informer import Informer
from runner.values.objects import Object, ObjectKey
from tests.kit.wait import until
from tests.unit.kube.scripted import ALL, DISCOVERY, WIDGET, Answer, Api, Seen

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
async def test_a_search_whose_list_expires_starts_over_after_a_pause(api: Api, informer: Informer) -> None:
    respond_to_searches(api, api.page(4, cont="more"), api.refuse(410, "Expired"), api.page(4, left_object(api)))
    began = asyncio.get_running_loop().time()
    async with following(informer):
        await until(lambda: informer.get(LEFT) is not None)
    assert asyncio.get_running_loop().time() - began >= 0.5
    assert [request.query.get("continue") for request in searches(api)] == [None, "more", None]
