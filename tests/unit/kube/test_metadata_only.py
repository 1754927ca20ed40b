"""A watcher that asks for metadata alone."""

from __future__ import annotations

import asyncio

import pytest

from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import Discovery
from runner.core.kube.watch import Watcher
from runner.core.kube.watch_stream import WatchPolicy
from runner.values.objects import GVK
from tests.kit.wait import until
from tests.unit.kube.scripted import Api

pytestmark = pytest.mark.lengthy

ALL = "/apis/example.com/v1/widgets"
WATCH = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


async def accepted(api: Api, client: Client, *, metadata_only: bool) -> list[str]:
    """Follow until a list was refused as a stream, read by pages, and is watched; return what was accepted."""
    api.on(ALL, api.refuse(422, "Invalid"), api.page(1, api.widget("a", 1)), api.stream("stay"))
    selection = Selection(metadata_only=metadata_only)
    watcher = Watcher(client, Discovery(client), GVK("example.com", "v1", "Widget"), "", selection, WatchPolicy())
    task = asyncio.create_task(watcher.follow(lambda _: None))
    await until(lambda: len(api.of(ALL)) == 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return [request.headers["Accept"] for request in api.of(ALL)]


async def test_streams_and_pages_request_only_metadata(api: Api, client: Client) -> None:
    assert await accepted(api, client, metadata_only=True) == [WATCH, LIST, WATCH]


async def test_whole_objects_are_requested_by_default(api: Api, client: Client) -> None:
    assert set(await accepted(api, client, metadata_only=False)) == {"application/json"}
