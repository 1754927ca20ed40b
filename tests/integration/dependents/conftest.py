"""Owners, their runs, and `Dependents` that watches what these make, on a real control plane.

A run here is what the proxy sees of one: requests that are made owned and whose answers are told. Everything else that
a test does is done by hand, past the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runner.base.monitoring.background import Background
from runner.core.dependents.store import KindStore
from runner.core.dependents.watching import Dependents
from runner.core.kube.client import EVERYTHING
from runner.core.kube.discovery import ApiResource, Discovery
from runner.core.kube.state import FileState
from runner.core.queue.reasons import Cause
from runner.features.loopguard.guard import LoopGuard
from runner.values.errors import ConflictError, NotFoundError
from runner.values.objects import ObjectRef, Owner, key_of
from tests.integration.dependents.bed import (
    MakeOwner,
    Operate,
    Operator,
    watch_of,
)
from tests.kit.objects import CRD, Hand, definition


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
async def shop(app: ApiResource, make_owner: MakeOwner) -> Owner:
    """An object that owns."""
    return await make_owner(app, "shop")


@pytest.fixture
def operate(hand: Hand, make_owner: MakeOwner, tmp_path: Path) -> Operate:
    """Follow dependents for as long as a block lasts."""

    @asynccontextmanager
    async def run(
        *resources: ApiResource, namespaces: tuple[str, ...] = (), store: KindStore | None = None, **watch: Any
    ) -> AsyncIterator[Operator]:
        watches = [watch_of(resource.gvk, **watch) for resource in resources]
        triggered: list[tuple[str, str]] = []

        def wake(target: ObjectRef, cause: Cause) -> None:
            triggered.append((target.key.name, cause.details[0]))

        store = store or KindStore(FileState(tmp_path))
        dependents = Dependents(
            hand.client,
            Discovery(hand.client),
            namespaces,
            watches,
            LoopGuard(wake).trigger,
            store,
            lambda: True,
        )
        mark = await make_owner(resources[0], f"mark-{uuid.uuid4().hex[:6]}")
        operator = Operator(dependents, hand, mark, store, triggered)
        task = asyncio.create_task(dependents.follow(Background()))
        try:
            yield operator
            assert not task.done(), "following dependents ended"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return run
