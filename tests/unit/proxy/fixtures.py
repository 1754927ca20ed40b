"""A proxy on loopback between a raw client and a raw server, so that every byte on both sides is the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.unit.proxy.stage import Stage, stand


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """A proxy without handlers of its own, and a server that answers `{}`."""
    async with stand(tmp_path) as made:
        yield made


@pytest.fixture
def staged(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Stage]]:
    """Start a stage with handlers of the test's own."""
    return partial(stand, tmp_path)


@pytest.fixture
def with_stage(tmp_path: Path) -> Iterator[Callable[[Callable[[Stage], Awaitable[None]]], None]]:
    """Run checks on one stage; for properties, which are plain functions and take many examples."""
    with asyncio.Runner() as runner:
        standing = stand(tmp_path)
        made = runner.run(standing.__aenter__())

        def run(check: Callable[[Stage], Awaitable[None]]) -> None:
            async def one() -> None:
                made.api.seen.clear()
                await check(made)

            runner.run(one())

        yield run
        runner.run(standing.__aexit__(None, None, None))
