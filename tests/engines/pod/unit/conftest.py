"""A server for agents with an authority of its own, and the agent's connection in this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from runner.agent import frames, uplink
from runner.agent.spool import Spool
from runner.agent.uplink import Uplink
from runner.engines.pod.certificates import issue, make_authority, server_context
from runner.engines.pod.links import Link
from tests.kit.agents import (
    NAME,
    Client,
    Operator,
    Pod,
    ending,
)
from tests.unit.watches.fixtures import errors, load, one, project

__all__ = ["errors", "load", "one", "project"]


@pytest.fixture(scope="session")
def authority() -> tuple[bytes, bytes]:
    return make_authority()


@pytest.fixture(autouse=True)
def _reconnect_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FIRST_DELAY", 0.005)
    monkeypatch.setattr(uplink, "_LONGEST_DELAY", 0.05)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> dict[int, bytes]:
    """What agents in this process have written, by descriptor."""
    written: dict[int, bytes] = {1: b"", 2: b""}

    def write(text: bytes, descriptor: int = 1) -> None:
        written[descriptor] += text

    monkeypatch.setattr(frames, "write_log", write)
    return written


@pytest.fixture
async def operator(tmp_path: Path, authority: tuple[bytes, bytes]) -> AsyncIterator[Operator]:
    made = Operator(tmp_path, server_context(*issue(authority, [NAME])), authority[0])
    await made.start()
    yield made
    await made.links.close()


@pytest.fixture
async def link(operator: Operator) -> Link:
    """The engine's end of the run that the agent has."""
    return operator.open()


@pytest.fixture
async def pod(operator: Operator, tmp_path: Path, logged: dict[int, bytes]) -> AsyncIterator[Callable[..., Pod]]:
    """Start the connection of an agent."""
    pods: list[Pod] = []

    def start(settings: Path | None = None, output: bytes | None = None) -> Pod:
        """`output`: what the worker writes as soon as there is an order."""
        work = tmp_path / f"work-{len(pods)}"
        work.mkdir()
        spool = Spool(work / "spool")
        stops: list[None] = []

        def begin(error: str) -> None:
            assert not error
            if output is not None:
                spool.add(output)
                spool.end(ending())

        made = Uplink(settings or operator.settings(), work / "order", spool, begin, lambda: stops.append(None))
        pods.append(Pod(made, spool, work / "order", stops, asyncio.create_task(made.keep())))
        return pods[-1]

    yield start
    for each in pods:
        each.keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await each.keeping


@pytest.fixture
async def client(operator: Operator) -> AsyncIterator[Callable[..., object]]:
    made: list[Client] = []

    async def connect(protocol: str = frames.ALPN_LINK) -> Client:
        made.append(await Client.connect(operator, protocol))
        return made[-1]

    yield connect
    for each in made:
        each.close()
