"""5,000 objects of one kibibyte on a real API server: they are all held, and others have their turn meanwhile.

What they take in memory is tested in tests/unit/kube/test_cache.py.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from runner.kube.client import Client
from runner.kube.watch import State

if TYPE_CHECKING:
    from tests.integration.kube.conftest import Follow, Kind

COUNT = 5000


class Turns:
    """How long the event loop is held, in CPU time between two of its turns.

    Not by the clock: on a busy machine this process waits too.
    """

    def __init__(self) -> None:
        self.held: list[float] = []

    async def measure(self) -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)
            self.held.append(time.thread_time() - began)


@pytest.mark.full
async def test_five_thousand_objects_are_held_and_leave_the_loop_to_others(
    kind: Kind, client: Client, follow: Follow, namespace: str
) -> None:
    gate = asyncio.Semaphore(16)

    async def create(number: int) -> None:
        async with gate:
            await kind.create(namespace, f"widget-{number:04d}", spec={"size": 3, "text": "x" * 750})

    await asyncio.gather(*(create(number) for number in range(COUNT)))
    for streamed in (True, False):
        turns = Turns()
        async with follow(client, kind.gvk) as told:
            told.watcher._streams_lists = streamed
            measuring = asyncio.create_task(turns.measure())
            await told.until(lambda told=told: told.watcher.state is State.LIVE)
            measuring.cancel()
        assert len(told.cache) == COUNT
        # How long it takes is measured by the benchmark `spine`; that others have their turn meanwhile is asked here.
        assert len(turns.held) > COUNT / 100
