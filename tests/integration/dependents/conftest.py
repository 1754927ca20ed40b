"""Owners, their runs, and `Dependents` that watches what these make, on a real control plane.

A run here is what the proxy sees of one: requests that are made owned and whose answers are told. Everything else that
a test does is done by hand, past the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from runner.dependents.loop_guard import LoopGuard
from runner.dependents.store import FileStore, KindStore
from runner.dependents.watching import Dependents
from runner.errors import ConflictError, KindNotFoundError, NotFoundError
from runner.kube.client import EVERYTHING, Client, PatchType
from runner.kube.credentials import auth
from runner.kube.discovery import ApiResource, Discovery
from runner.objects import GVK, Object, ObjectKey, ObjectRef, key_of
from runner.ownership import Owner
from runner.proxy.handlers.owners import own
from runner.watches.watch import Role, Watch
from tests.watch_values import watch_value

CRD = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
DEPLOYMENT = GVK("apps", "v1", "Deployment")
CONFIG_MAP = GVK("", "v1", "ConfigMap")
CLUSTER_ROLE = GVK("rbac.authorization.k8s.io", "v1", "ClusterRole")


async def until(condition: Callable[[], object], what: str, deadline: float = 30.0) -> None:
    """Wait until `condition` holds."""
    try:
        async with asyncio.timeout(deadline):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"waited {deadline:g} s in vain for {what}") from None


def deployment(name: str, replicas: int = 1) -> Object:
    """A Deployment's definition."""
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "example.com/i:1"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def config_map(name: str, value: str = "a") -> Object:
    """A ConfigMap's definition."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}}


def definition(
    group: str, kind: str, *, scope: str = "Namespaced", status: bool = True, versions: tuple[str, ...] = ("v1",)
) -> Object:
    """A CRD whose objects hold anything; the last of its versions is stored."""
    served = [
        {
            "name": version,
            "served": True,
            "storage": version == versions[-1],
            "subresources": {"status": {}} if status else {},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }
        for version in versions
    ]
    names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()}
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {"group": group, "names": names, "scope": scope, "versions": served},
    }


@dataclass
class Hand:
    """Requests of another client, which do not pass the proxy."""

    client: Client
    discovery: Discovery
    namespace: str
    manager: str = "ansible-operator"
    """The field manager that the API server takes us for."""

    async def create(self, obj: Object, namespace: str | None = None) -> Object:
        resource = await self.discovery.find(GVK.of(obj))
        space = self.namespace if namespace is None else namespace
        return await self.client.create(resource, space if resource.namespaced else "", obj)

    async def patch(self, gvk: GVK, name: str, patch: Object, subresource: str = "", **params: str) -> Object:
        resource = await self.discovery.find(gvk)
        key = ObjectKey(self.namespace if resource.namespaced else "", name)
        kind = PatchType.APPLY if params else PatchType.MERGE
        return await self.client.patch(
            resource, key, patch, content_type=kind, subresource=subresource, params=params or None
        )

    async def get(self, gvk: GVK, name: str) -> Object:
        resource = await self.discovery.find(gvk)
        return await self.client.get(resource, ObjectKey(self.namespace if resource.namespaced else "", name))

    async def delete(self, gvk: GVK, name: str) -> Object:
        resource = await self.discovery.find(gvk)
        return await self.client.delete(resource, ObjectKey(self.namespace if resource.namespaced else "", name))

    async def install(self, crd: Object) -> ApiResource:
        """Create a CRD; return once objects can be created in its first version."""
        spec = crd["spec"]
        gvk = GVK(spec["group"], spec["versions"][0]["name"], spec["names"]["kind"])
        async with asyncio.timeout(30):
            await self.create(crd)
            while True:
                with contextlib.suppress(KindNotFoundError, NotFoundError):
                    resource = await self.discovery.find(gvk)
                    await self.client.list_page(resource, "", EVERYTHING, 1, "")
                    return resource
                await asyncio.sleep(0.05)


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

    until = staticmethod(until)

    async def stores(self, *gvks: GVK) -> None:
        """Wait until these kinds are stored, and no others."""
        async with asyncio.timeout(10):
            while frozenset().union(*(await self.store.load()).values()) != set(gvks):
                await asyncio.sleep(0.02)

    async def triggers(self, *names: str) -> None:
        """Wait until exactly these objects were triggered, in any order."""
        # After the API server was away, two waits of a watch may follow each other, ten seconds each.
        await until(lambda: len(self.triggered) >= len(names), f"{names}; woken: {self.triggered}", 60)
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

    async def create(self, obj: Object, namespace: str | None = None) -> Object:
        hand = self.operator.hand
        resource = await hand.discovery.find(GVK.of(obj))
        space = (hand.namespace if namespace is None else namespace) if resource.namespaced else ""
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

    async def read(self, gvk: GVK, name: str) -> None:
        hand = self.operator.hand
        answer = await hand.get(gvk, name)
        self.operator.dependents.read(self.owner, await hand.discovery.find(gvk), answer)


class Objects:
    """Definitions."""

    deployment = staticmethod(deployment)
    config_map = staticmethod(config_map)
    definition = staticmethod(definition)


@pytest.fixture
def objects() -> Objects:
    """Definitions of objects."""
    return Objects()


Operate: TypeAlias = Callable[..., Any]
MakeOwner: TypeAlias = Callable[[ApiResource, str], Awaitable[Owner]]


@pytest.fixture
async def hand(kubeconfig: Path, namespace: str) -> AsyncIterator[Hand]:
    """The administrator's hand, in a namespace of its own."""
    async with Client(await auth.load(str(kubeconfig), None, auth.HostEnvironment.of_process())) as client:
        yield Hand(client, Discovery(client), namespace)


@pytest.fixture
async def group(hand: Hand) -> AsyncIterator[str]:
    """An API group of the test's own; its CRDs go at the end."""
    name = f"d{uuid.uuid4().hex[:8]}.example.com"
    yield name
    crds = await hand.discovery.find(CRD)
    page = await hand.client.list_page(crds, "", EVERYTHING, 500, "")
    for crd in page.items:
        if crd["spec"]["group"] == name:
            with contextlib.suppress(NotFoundError, ConflictError):
                await hand.client.delete(crds, key_of(crd))


@pytest.fixture
async def app(hand: Hand, group: str) -> ApiResource:
    """The namespaced kind that owns."""
    return await hand.install(definition(group, "App"))


@pytest.fixture
def make_owner(hand: Hand) -> MakeOwner:
    """Create an object that owns."""

    async def make(resource: ApiResource, name: str) -> Owner:
        obj = {"apiVersion": resource.gvk.api_version, "kind": resource.gvk.kind, "metadata": {"name": name}}
        made = await hand.create(obj)
        return Owner(ObjectRef.of(resource.gvk, made), resource.namespaced)

    return make


@pytest.fixture
def operate(hand: Hand, make_owner: MakeOwner, tmp_path: Path) -> Operate:
    """Follow dependents for as long as a block lasts."""

    @asynccontextmanager
    async def run(
        *resources: ApiResource, namespaces: tuple[str, ...] = (), store: KindStore | None = None, **watch: Any
    ) -> AsyncIterator[Operator]:
        watches = [watch_of(resource.gvk, **watch) for resource in resources]
        triggered: list[tuple[str, str]] = []

        def wake(_: GVK, key: ObjectKey, why: str) -> None:
            triggered.append((key.name, why))

        store = store or FileStore(tmp_path)
        dependents = Dependents(
            hand.client,
            Discovery(hand.client),
            namespaces,
            watches,
            LoopGuard(wake, wake, lambda *_: None),
            store,
            lambda *_: True,
        )
        mark = await make_owner(resources[0], f"mark-{uuid.uuid4().hex[:6]}")
        operator = Operator(dependents, hand, mark, store, triggered)
        task = asyncio.create_task(dependents.follow())
        try:
            yield operator
            assert not task.done(), "following dependents ended"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return run


def watch_of(gvk: GVK, **different: Any) -> Watch:
    """A watch with every default, but for what is given."""
    return watch_value(gvk=gvk, content=Role("r", Path("/roles/r")), **different)
