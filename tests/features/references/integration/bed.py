"""`References` on a real control plane: objects with references, runs as the proxy sees them, and triggers.

The objects that name others are told by hand, as their controller would. All else is on the API server.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self, TypeAlias

from runner.base.credentials import auth
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource
from runner.core.watches.spec_paths import SpecPath
from runner.features.references.fields import WatchReference
from runner.features.references.watching import References
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, Owner
from tests.kit.objects import Hand
from tests.kit.wait import until

SECRET, CONFIG_MAP, CLUSTER_ROLE = (
    GVK("", "v1", "Secret"),
    GVK("", "v1", "ConfigMap"),
    GVK("rbac.authorization.k8s.io", "v1", "ClusterRole"),
)
THING = GVK("test.example.com", "v1", "Thing")


def by_path(gvk: GVK, path: str = "spec.ref", namespaces: frozenset[str] = frozenset()) -> WatchReference:
    return WatchReference(gvk, SpecPath.parse(path), "", "", "", namespaces)


def by_label(gvk: GVK, labels: str, namespace: str = "") -> WatchReference:
    return WatchReference(gvk, None, "", labels, namespace)


def secret(name: str, value: str = "one", **meta: Any) -> Object:
    data = {"key": base64.b64encode(value.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **meta}, "data": data}


def content(value: str) -> Object:
    """A patch that changes a Secret's content."""
    return {"data": {"key": base64.b64encode(value.encode()).decode()}}


LABEL: Object = {"metadata": {"labels": {"seen": "yes"}}}


class Counting(Client):
    """A client that remembers which watches it opened."""

    def __init__(self, credentials: auth.Credentials) -> None:
        super().__init__(credentials)
        self.opened: list[tuple[str, str, bool]] = []
        """Path, field selector, and whether only metadata was requested."""
        self.read_names: list[str] = []

    async def get(self, resource: ApiResource, key: ObjectKey) -> Object:
        found = await super().get(resource, key)
        self.read_names.append(key.name)
        return found

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, idle: float, metadata_only: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.opened.append((path, params.get("fieldSelector", ""), metadata_only))
        async with super().stream(path, params, idle=idle, metadata_only=metadata_only) as lines:
            yield lines


class Referring:
    """Watched references and the objects that they trigger."""

    def __init__(self, references: References, client: Counting, hand: Hand, triggered: list[tuple[str, str]]) -> None:
        self.references = references
        self.client = client
        self.hand = hand
        self.triggered = triggered

    def key(self, name: str) -> ObjectKey:
        return ObjectKey(self.hand.namespace, name)

    def names(self, name: str, ref: object, namespace: str | None = None) -> None:
        """Tell that an object is there and names something."""
        space = self.hand.namespace if namespace is None else namespace
        self.references.update(THING, {"metadata": {"name": name, "namespace": space}, "spec": {"ref": ref}})

    async def knows(self, name: str) -> None:
        """Wait until all is known that an object names."""
        await until(
            lambda: self.references.fingerprint(THING, self.key(name)) is not None, f"{name}'s references to be known"
        )

    async def has_read(self, *names: str) -> None:
        """Wait until the content of these is known, where only metadata are watched."""
        await until(lambda: set(names) <= set(self.client.read_names), f"{names} to be read")

    async def triggers(self, *expected: tuple[str, str]) -> None:
        """Wait for exactly these: name of the object, and what happened."""
        await until(lambda: len(self.triggered) >= len(expected), f"{expected}; woken: {self.triggered}")
        found = sorted((name, why) for name, why in self.triggered)
        assert [name for name, _ in found] == sorted(name for name, _ in expected), found
        for (_, why), (_, said) in zip(found, sorted(expected), strict=True):
            assert said in why, found
        self.triggered.clear()

    def run(self, name: str) -> Run:
        return Run(self, Owner(ObjectRef(THING, self.key(name), "uid"), namespaced=True))


class Run:
    """A run, as the proxy sees it."""

    def __init__(self, referring: Referring, owner: Owner) -> None:
        self._referring = referring
        self._owner = owner

    async def __aenter__(self) -> Self:
        self._referring.references.began(self._owner)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._referring.references.ended(self._owner)

    async def create(self, obj: Object) -> None:
        hand = self._referring.hand
        answer = await hand.create(obj)
        self._referring.references.wrote(self._owner, await hand.discovery.find(GVK.of(obj)), answer)

    async def patch(self, gvk: GVK, name: str, patch: Object) -> None:
        hand = self._referring.hand
        answer = await hand.patch(gvk, name, patch)
        self._referring.references.wrote(self._owner, await hand.discovery.find(gvk), answer)

    async def delete(self, gvk: GVK, name: str) -> None:
        hand = self._referring.hand
        answer = await hand.delete(gvk, name)
        self._referring.references.deleted(self._owner, await hand.discovery.find(gvk), answer)


Refer: TypeAlias = Callable[..., AbstractAsyncContextManager[Referring]]
Allow: TypeAlias = Callable[..., Awaitable[None]]
