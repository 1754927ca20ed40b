"""5,000 objects of one kibibyte on a real API server: they are all held, and others have their turn meanwhile.

What they take in memory is tested in tests/unit/kube/test_cache.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from runner.core.kube.client import Client
from runner.core.kube.watch_health import WatchState
from tests.kit.following import QUICK
from tests.kit.wait import until

if TYPE_CHECKING:
    from tests.integration.kube.widgets import Kind
    from tests.kit.following import Follow

COUNT = 5000


class Turns:
    """How often others have their turn of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    async def take(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1


@pytest.mark.nightly
async def test_five_thousand_objects_are_held_and_leave_the_loop_to_others(
    kind: Kind, client: Client, follow: Follow, namespace: str
) -> None:
    gate = asyncio.Semaphore(16)

    async def create(number: int) -> None:
        async with gate:
            await kind.create(namespace, f"widget-{number:04d}", spec={"size": 3, "text": "x" * 750})

    await asyncio.gather(*(create(number) for number in range(COUNT)))
    turns = Turns()
    async with follow(client, kind.gvk, policy=replace(QUICK, slice=0.0)) as followed:
        taking = asyncio.create_task(turns.take())
        await until(lambda: followed.watcher.health.state is WatchState.LIVE)
        taking.cancel()
    assert len(followed.cache) == COUNT
    # How long the loop is held is measured by the benchmark `spine`. With a slice of no length it has to be given
    # back after each object; how many objects fit into one of real length depends on the machine.
    assert turns.count >= COUNT
