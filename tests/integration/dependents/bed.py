"""Owners, their runs, and `Dependents` that watches what these make, on a real control plane.

A run here is what the proxy sees of one: requests that are made owned and whose answers are told. Everything else that
a test does is done by hand, past the proxy.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from runner.core.dependents.store import KindStore
from runner.core.dependents.watching import Dependents
from runner.core.kube.discovery import ApiResource
from runner.core.proxy.handlers.owners import own
from runner.core.watches.watch import Role, Watch
from runner.values.objects import GVK, Object, Owner
from tests.kit.objects import Hand
from tests.kit.wait import until
from tests.kit.watch_values import watch_value

DEPLOYMENT = GVK("apps", "v1", "Deployment")
CONFIG_MAP = GVK("", "v1", "ConfigMap")
CLUSTER_ROLE = GVK("rbac.authorization.k8s.io", "v1", "ClusterRole")


def deployment(name: str, replicas: int = 1) -> Object:
    """A Deployment's definition."""
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "example.com/i:1"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def config_map(name: str, value: str = "a") -> Object:
    """A ConfigMap's definition."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}}


@dataclass
class Operator:
    """`Dependents`, and runs that report their reads and writes to it."""

    dependents: Dependents
    hand: Hand
    mark: Owner
    """Owns what `sleeps` makes."""
    store: KindStore
    triggered: list[tuple[str, str]]
    """Name of the owner, and why."""

    @asynccontextmanager
    async def run(self, owner: Owner) -> AsyncIterator[Run]:
        self.dependents.began(owner)
        try:
            yield Run(self, owner)
        finally:
            self.dependents.ended(owner)

    async def live(self, *gvks: GVK) -> None:
        """Wait until the kinds are watched."""
        await until(lambda: set(gvks) <= self.dependents.watched(), f"a watch of {gvks}")
        await until(lambda: not self.dependents.problems(), "live watches")

    async def stores(self, *gvks: GVK) -> None:
        """Wait until these kinds are stored, and no others."""

        async def is_stored() -> bool:
            return frozenset().union(*(await self.store.load())[0].values()) == set(gvks)

        await until(is_stored, f"{gvks} in the store")

    async def triggers(self, *names: str) -> None:
        """Wait until exactly these objects were triggered, in any order."""
        # After the API server was away, two waits of a watch may follow each other, ten seconds each.
        await until(lambda: len(self.triggered) >= len(names), f"{names}; woken: {self.triggered}")
        assert sorted(name for name, _ in self.triggered) == sorted(names), self.triggered

    async def stays_quiet(self, gvk: GVK = CONFIG_MAP) -> None:
        """Wait until all events of a kind were received, and assert that they triggered no object."""
        before = list(self.triggered)
        name = f"mark-{uuid.uuid4().hex[:6]}"
        async with self.run(self.mark) as run:
            await run.create(config_map(name) if gvk == CONFIG_MAP else deployment(name))
        # Events and reads are processed in order: those of the mark's change are the last.
        await self.hand.patch(gvk, name, {"metadata": {"labels": {"mark": "me"}}})
        await until(lambda: any(name in why for _, why in self.triggered), f"the change of {name}")
        self.triggered[:] = [item for item in self.triggered if item[0] != self.mark.ref.key.name]
        assert self.triggered == before


@dataclass
class Run:
    """A run, as the proxy sees it."""

    operator: Operator
    owner: Owner

    async def create(self, obj: Object) -> Object:
        hand = self.operator.hand
        resource = await hand.discovery.find(GVK.of(obj))
        space = hand.namespace if resource.namespaced else ""
        owned = own(obj, self.owner, resource, space)
        answer = await hand.create(owned.obj, space)
        self.operator.dependents.wrote(self.owner, resource, answer)
        return answer

    async def patch(self, gvk: GVK, name: str, patch: Object, subresource: str = "") -> Object:
        hand = self.operator.hand
        answer = await hand.patch(gvk, name, patch, subresource)
        self.operator.dependents.wrote(self.owner, await hand.discovery.find(gvk), answer)
        return answer

    async def delete(self, gvk: GVK, name: str) -> None:
        hand = self.operator.hand
        answer = await hand.delete(gvk, name)
        self.operator.dependents.deleted(self.owner, await hand.discovery.find(gvk), answer)


Operate: TypeAlias = Callable[..., Any]
MakeOwner: TypeAlias = Callable[[ApiResource, str], Awaitable[Owner]]


def watch_of(gvk: GVK, **different: Any) -> Watch:
    """A watch with every default, but for what is given."""
    return watch_value(gvk=gvk, content=Role("r", Path("/roles/r")), **different)
