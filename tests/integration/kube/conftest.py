"""A client and a kind of its own for each test, and a wire to the real API server that a test can cut or freeze."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import Discovery
from runner.core.kube.watch import Watcher, WatchPolicy
from runner.sdk.devcluster import DevCluster
from runner.values.objects import GVK, Object, ObjectKey
from tests.integration.kube.widgets import Connect, Kind, direct
from tests.kit.cluster import altered, connect
from tests.kit.following import QUICK, Follow, following
from tests.kit.wire import Wire


@pytest.fixture
def follow() -> Follow:
    """Follow a kind for as long as a block lasts."""

    def run(
        client: Client, gvk: GVK, namespace: str = "", selector: str = "", policy: WatchPolicy = QUICK
    ) -> AbstractAsyncContextManager[Any]:
        return following(Watcher(client, Discovery(client), gvk, namespace, Selection(selector), policy))

    return run


@pytest.fixture
async def client(kubeconfig: Path) -> AsyncIterator[Client]:
    """The administrator's client."""
    async with await connect(kubeconfig) as made:
        yield made


@pytest.fixture
def connected(tmp_path: Path, kubeconfig: Path) -> Connect:
    """Make another client of the same cluster, its kubeconfig's user changed."""

    async def make(**user: Any) -> Client:
        return await connect(altered(kubeconfig, tmp_path, user=user))

    return make


@pytest.fixture
async def kind(client: Client) -> AsyncIterator[Kind]:
    """A namespaced kind, installed."""
    made = Kind(client)
    await made.install()
    yield made
    await made.remove()


@pytest.fixture
async def absent_kind(client: Client) -> AsyncIterator[Kind]:
    """A namespaced kind whose CRD is not installed yet."""
    made = Kind(client)
    yield made
    await made.remove()


@pytest.fixture
async def wire(devcluster: DevCluster, tmp_path: Path) -> AsyncIterator[tuple[Wire, Client]]:
    """A wire, and a client at its end."""
    made = Wire(devcluster.url)
    async with await connect(altered(devcluster.kubeconfig, tmp_path, server=await made.start())) as far:
        yield made, far
    await made.stop()


@pytest.fixture
def everything() -> Callable[..., Awaitable[dict[ObjectKey, Object]]]:
    """List straight from the API server."""
    return direct
