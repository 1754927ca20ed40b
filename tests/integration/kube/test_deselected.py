"""Objects that leave the selection with the operator's finalizer, on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runner.base.credentials import auth
from runner.base.credentials.auth import HostEnvironment
from runner.core.kube.cache import Change
from runner.core.kube.client import Client, PatchType, Selection
from runner.core.kube.discovery import ApiResource, Discovery
from runner.core.kube.informer import Informer
from runner.values.objects import ObjectKey
from tests.kit.wait import until

if TYPE_CHECKING:
    from tests.integration.kube.widgets import Kind

FINALIZER = "example.com/finalizer"


class CountingClient(Client):
    """A client that counts its open watches."""

    watches = 0
    most_watches = 0

    @asynccontextmanager
    async def stream(self, path: str, params: Any, **options: Any) -> AsyncIterator[Any]:
        self.watches += 1
        self.most_watches = max(self.watches, self.most_watches)
        try:
            async with super().stream(path, params, **options) as lines:
                yield lines
        finally:
            self.watches -= 1


class Selected:
    """An informer of objects with the label `tier: gold`."""

    def __init__(self, client: CountingClient, resource: ApiResource, namespace: str) -> None:
        self.client = client
        self.resource = resource
        self.namespace = namespace
        self.deleting: set[str] = set()
        self.informer = Informer(
            client, Discovery(client), resource.gvk, (namespace,), Selection(labels="tier=gold"), FINALIZER
        )

    def changed(self, change: Change) -> None:
        if change.new is not None and change.new.deleting:
            self.deleting.add(change.key.name)

    def key(self, name: str) -> ObjectKey:
        return ObjectKey(self.namespace, name)

    async def patch(self, name: str, **meta: Any) -> None:
        patch = {"metadata": meta}
        await self.client.patch(self.resource, self.key(name), patch, content_type=PatchType.MERGE)

    async def label(self, names: list[str], tier: str) -> None:
        await asyncio.gather(*(self.patch(name, labels={"tier": tier}) for name in names))

    async def delete(self, names: list[str]) -> None:
        await asyncio.gather(*(self.client.delete(self.resource, self.key(name)) for name in names))

    async def release(self, names: list[str]) -> None:
        await asyncio.gather(*(self.patch(name, finalizers=None) for name in names))

    def gets(self, names: list[str]) -> list[bool]:
        return [self.informer.get(self.key(name)) is not None for name in names]


@pytest.fixture
async def selected(kind: Kind, kubeconfig: Path, namespace: str) -> AsyncIterator[Selected]:
    credentials = await auth.load(str(kubeconfig), None, HostEnvironment({}, kubeconfig.parent))
    async with CountingClient(credentials) as client:
        made = Selected(client, await kind.discovery.find(kind.gvk), namespace)
        following = asyncio.create_task(made.informer.follow(made.changed))
        yield made
        assert not following.done(), "the informer ended"
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_any_number_of_objects_that_left_the_selection_costs_one_watch(
    kind: Kind, selected: Selected, namespace: str
) -> None:
    names = [f"widget-{number}" for number in range(40)]
    for name in names:
        await kind.create(namespace, name, metadata={"labels": {"tier": "gold"}, "finalizers": [FINALIZER]})
    await until(lambda: len(selected.informer) == 40)
    await selected.label(names, "lead")
    await until(lambda: len(selected.informer) == 0)

    await selected.delete(names[:10])
    await until(lambda: selected.deleting == set(names[:10]), f"saw {selected.deleting}")
    assert (selected.informer.get(selected.key(names[0])) or {})["spec"] == {"size": 1}
    assert {key.name for key in selected.informer.all_keys()} == set(names[:10])
    assert not any(selected.gets(names[10:]))

    await selected.release(names[:10])
    await until(lambda: not any(selected.gets(names[:10])))
    await selected.label(names[10:], "gold")
    await until(lambda: all(selected.gets(names[10:])))
    assert selected.client.most_watches == 2


async def test_an_object_that_leaves_the_selection_while_it_is_deleted_is_reported(
    kind: Kind, selected: Selected, namespace: str
) -> None:
    finalizers = [FINALIZER, "example.com/other"]
    await kind.create(namespace, "widget", metadata={"labels": {"tier": "gold"}, "finalizers": finalizers})
    await until(lambda: len(selected.informer) == 1)
    await selected.label(["widget"], "lead")
    await selected.delete(["widget"])
    await until(lambda: selected.deleting == {"widget"})
    await selected.patch("widget", finalizers=["example.com/other"])
    await until(lambda: not any(selected.gets(["widget"])))
    await selected.release(["widget"])
