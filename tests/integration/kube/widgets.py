"""A client and a kind of its own for each test, and a wire to the real API server that a test can cut or freeze."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from runner.core.kube.client import EVERYTHING, Client
from runner.core.kube.discovery import ApiResource, Discovery
from runner.values.errors import NotFoundError
from runner.values.objects import GVK, Object, ObjectKey, key_of
from tests.kit.objects import ANYTHING, CRD, Hand, definition


class Kind:
    """A kind that a CRD makes, and its objects."""

    def __init__(self, client: Client, *, scope: str = "Namespaced") -> None:
        self.client = client
        self.discovery = Discovery(client)
        self.group = f"t{uuid.uuid4().hex[:8]}.example.com"
        self.gvk = GVK(self.group, "v1", "Widget")
        self._scope = scope

    @property
    def _name(self) -> ObjectKey:
        return ObjectKey("", f"widgets.{self.group}")

    async def install(self, schema: Object | None = None) -> ApiResource:
        """Create the CRD, whose objects hold anything without a schema; return once objects can be created."""
        hand = Hand(self.client, self.discovery, "")
        return await hand.install(definition(self.group, "Widget", scope=self._scope, schema=schema or ANYTHING))

    async def remove(self) -> None:
        """Delete the CRD and with it all objects."""
        self.discovery.forget(self.gvk)
        with contextlib.suppress(NotFoundError):
            await self.client.delete(await self.discovery.find(CRD), self._name)

    async def create(self, namespace: str, name: str, **more: Any) -> Object:
        meta = {"name": name, **more.pop("metadata", {})}
        obj = {"apiVersion": self.gvk.api_version, "kind": "Widget", "metadata": meta, "spec": {"size": 1}, **more}
        return await self.client.create(await self.discovery.find(self.gvk), namespace, obj)


Connect: TypeAlias = Callable[..., Awaitable[Client]]


async def direct(client: Client, resource: ApiResource, namespace: str) -> dict[ObjectKey, Object]:
    """Everything there is, straight from the API server, without `managedFields`."""
    found: dict[ObjectKey, Object] = {}
    cont = ""
    while True:
        page = await client.list_page(resource, namespace, EVERYTHING, 200, cont)
        for obj in page.items:
            obj["metadata"].pop("managedFields", None)
            found[key_of(obj)] = obj
        if not (cont := page.cont):
            return found
