"""An API server whose answers the test scripts.

A real HTTP server on loopback that can misbehave as no real one does on demand. It stands at the I/O seam; what a
well-behaved API server does is tested against the real one in tests/integration/kube.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from runner.base.credentials import auth
from runner.base.credentials.auth import HostEnvironment
from runner.core.kube.client import EVERYTHING, Client, ClientLimits, Selection
from runner.core.kube.discovery import Discovery
from runner.core.kube.watch import Watcher
from tests.kit.cluster import kubeconfig_of
from tests.kit.following import Follow, following, policy
from tests.unit.kube.scripted import (
    DISCOVERY,
    WIDGET,
    Api,
    KubeConfigFile,
    served,
)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """The scripted server, running; it serves the discovery of Widgets."""
    made = Api()
    made.on(DISCOVERY, served())
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
def write_kubeconfig(tmp_path: Path) -> KubeConfigFile:
    """Write a kubeconfig with one context."""

    def write(server: str, *, name: str = "config", user: dict[str, Any] | None = None, **cluster: Any) -> Path:
        path = tmp_path / name
        path.write_text(kubeconfig_of({"server": server, **cluster}, user or {}))
        return path

    return write


@pytest.fixture
async def client(api: Api, write_kubeconfig: KubeConfigFile, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of the scripted server."""
    path = write_kubeconfig(api.url, user={"token": "t0ken"})
    credentials = await auth.load(str(path), None, HostEnvironment({}, tmp_path))
    async with Client(credentials, ClientLimits(longest_wait=0.02)) as made:
        yield made


@pytest.fixture
def follow(client: Client) -> Follow:
    """Follow Widgets for as long as a block lasts."""

    def run(namespace: str = "", selector: Selection = EVERYTHING, **changes: Any) -> AbstractAsyncContextManager[Any]:
        watcher = Watcher(client, Discovery(client), WIDGET, namespace, selector, policy(**changes))
        return following(watcher)

    return run
