"""`References` on a real control plane: objects with references, runs as the proxy sees them, and triggers.

The objects that name others are told by hand, as their controller would. All else is on the API server.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runner.base.credentials import auth
from runner.base.credentials.auth import HostEnvironment
from runner.base.monitoring.background import Background
from runner.core.kube.discovery import Discovery
from runner.features.references.fields import WatchReference, referring
from runner.features.references.watching import References
from tests.features.references.integration.bed import (
    THING,
    Allow,
    Counting,
    Refer,
    Referring,
)
from tests.kit.cluster import altered
from tests.kit.objects import Hand
from tests.kit.rights import granted
from tests.kit.watch_values import watch_value


@pytest.fixture
def user() -> str:
    """Somebody without any right but to discover kinds."""
    return f"limited-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def allow(hand: Hand, user: str) -> Allow:
    """Give that user rights on Secrets of the test's namespace."""

    async def give(*verbs: str) -> None:
        rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": list(verbs)}]
        for each in granted(f"{user}-{uuid.uuid4().hex[:4]}", rules, namespace=hand.namespace, user=user):
            await hand.create(each)

    return give


@pytest.fixture
def refer(hand: Hand, kubeconfig: Path, tmp_path: Path) -> Refer:
    """Follow references for as long as a block lasts."""

    @asynccontextmanager
    async def run(
        *references: WatchReference, namespaces: tuple[str, ...] | None = None, user: str = "", **watch: Any
    ) -> AsyncIterator[Referring]:
        triggered: list[tuple[str, str]] = []
        config = {"as": user, "as-groups": ["system:authenticated"]} if user else {}
        path = altered(kubeconfig, tmp_path, user=config)
        async with Counting(await auth.load(str(path), None, HostEnvironment({}, tmp_path))) as client:
            followed = References(
                client,
                Discovery(client),
                (hand.namespace,) if namespaces is None else namespaces,
                [watch_value(gvk=THING, more=referring(references), **watch)],
                lambda notification: triggered.append((notification.target.key.name, notification.cause.details[0])),
                lambda: True,
            )
            task = asyncio.create_task(followed.follow(Background()))
            try:
                yield Referring(followed, client, hand, triggered)
                assert not task.done(), "following references ended"
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    return run
