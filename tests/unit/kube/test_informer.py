"""What an informer knows of its objects, also of those that left its selection while they were deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from runner.core.kube.cache import Change
from runner.core.kube.client import EVERYTHING, Client, Selection
from runner.core.kube.discovery import Discovery
from runner.core.kube.informer import Informer
from runner.core.kube.watch_health import ABSENT, PRESENT, Unknown
from runner.values.objects import GVK, Object, ObjectKey
from tests.kit.wait import until
from tests.unit.kube.scripted import ALL, DISCOVERY, WIDGET, Api

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
    api.on(path("b"), api.page(3, api.widget("x", 1, namespace="b")), api.stream("stay"))
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
        api.page(3),
        api.stream(end, "abort"),
        api.refuse(503, "Unavailable"),
        api.stream(api.bookmark(4), "stay"),
    )
    async with informing(client) as informer:
        renewals = informer.renewals()
        await anext(renewals)
        end.set()
        await anext(renewals)
        assert informer.unknown() is None


async def test_after_a_defect_in_the_work_on_a_change_objects_are_unknown_until_they_are_listed_again(
    api: Api, client: Client
) -> None:
    for namespace in ("a", "b"):
        api.on(path(namespace), api.page(3), api.stream("stay"))
    end = asyncio.Event()
    api.on(path("a"), api.page(3), api.stream(end, api.event("ADDED", api.widget("x", 4, namespace="a"))))
    informer = Informer(client, Discovery(client), GVK_, ("a", "b"), EVERYTHING, "")

    def fail(_: Change) -> None:
        raise LookupError("a defect")

    task = asyncio.create_task(informer.follow(fail))
    await until(lambda: informer.unknown() is None)
    end.set()
    await asyncio.gather(task, return_exceptions=True)
    assert [isinstance(informer.presence(ObjectKey(namespace, "y")), Unknown) for namespace in "ab"] == [True, True]


FINALIZER = "example.com/finalizer"
DELETED = "2026-01-01T00:00:00Z"


def left_object(api: Api) -> Object:
    widget = api.widget("left", 2)
    return {**widget, "metadata": {**widget["metadata"], "finalizers": [FINALIZER], "deletionTimestamp": DELETED}}


@pytest.fixture
def informer(client: Client) -> Informer:
    """An informer of a selection that objects with the finalizer have left."""
    return Informer(client, Discovery(client), WIDGET, (), Selection(labels="tier=gold"), FINALIZER)


@asynccontextmanager
async def following(informer: Informer) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.follow(lambda _: None))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.lengthy
async def test_a_refused_read_is_logged_once_for_each_namespace(
    api: Api, informer: Informer, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [f"{DISCOVERY}/namespaces/{namespace}/widgets/left" for namespace in ("ns", "other")]
    for path in paths:
        api.on(path, api.refuse(403, "Forbidden"))
    left = left_object(api)
    listed = api.page(4, left, {**left, "metadata": {**left["metadata"], "namespace": "other"}})

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await api.stream("stay")(request)
        return await (api.page(3) if "labelSelector" in request.query else listed)(request)

    api.on(ALL, answer)
    async with following(informer):
        await until(lambda: all(len(api.of(path)) > 1 for path in paths))
    assert capsys.readouterr().out.count("Cannot read objects outside the selection") == 2


@pytest.mark.lengthy
async def test_an_object_outside_the_selection_that_is_gone_when_its_read_is_answered_is_not_known(
    api: Api, informer: Informer
) -> None:
    left, gone = left_object(api), asyncio.Event()

    async def read(request: web.Request) -> web.StreamResponse:
        gone.set()  # the watch reports the deletion while the answer is on its way
        await asyncio.sleep(0.2)
        return await api.reply(left)(request)

    async def answer(request: web.Request) -> web.StreamResponse:
        is_selected = "labelSelector" in request.query
        if "watch" in request.query:
            return await api.stream(*(["stay"] if is_selected else [gone, api.event("DELETED", left), "stay"]))(request)
        return await (api.page(3) if is_selected else api.page(4, left))(request)

    api.on(ALL, answer)
    api.on(f"{DISCOVERY}/namespaces/ns/widgets/left", read)
    changes: list[Change] = []
    task = asyncio.create_task(informer.follow(changes.append))
    await until(gone.is_set)
    await asyncio.sleep(0.4)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (informer.all_keys(), changes) == ([], [])
