"""How a supervisor comes to be: what both engines have in common, and the way that starts a new interpreter.

A `Starter` gives an order to a new supervisor and hands back its streams and a way to wait for it; everything else
about runs is the same for all of them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Protocol

import orjson

from runner.config import shortages
from runner.engine.wire import Order

TAKEN_BY_START = 10
"""Descriptors that starting a process takes for a moment at most: three pipes, one more for its errors, one to wait."""
READ_AHEAD = 1 << 20
"""Bytes of a supervisor's output that are held before it has to wait."""


@dataclass(frozen=True, slots=True)
class Started:
    """A supervisor that has its order."""

    pid: int
    control: asyncio.StreamWriter
    events: asyncio.StreamReader
    complaints: asyncio.StreamReader
    """Its standard error."""
    wait: Callable[[], Awaitable[int | None]]
    """Waits for its end and reaps it: its exit code, minus a signal's number, or None when that got lost."""


class Starter(Protocol):
    """Starts supervisors."""

    async def start(self, order: Order, environment: Mapping[str, str]) -> Started:
        """Start one with exactly this environment. An `OSError` says that no process could be started."""
        ...

    def learn(self, environment: Mapping[str, str], lines: str) -> None:
        """Take note of what a run with this environment loaded: the lines of `wire.LEARNED`."""
        ...

    async def close(self) -> None:
        """End whatever it keeps to start supervisors from; those that run go on."""
        ...


class ColdStarter:
    """A new interpreter for each run."""

    def __init__(self) -> None:
        self.begun = 0
        """Runs that were started."""

    async def start(self, order: Order, environment: Mapping[str, str]) -> Started:
        """Start `python -m runner.engine.child`."""
        shortages.check_descriptors(TAKEN_BY_START)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # a folder named like one of our packages in the operator's working directory is none of ours
            "-m",
            "runner.engine.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
            limit=READ_AHEAD,
        )
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise OSError("the run's process was started without its streams")
        process.stdin.write(line(order))
        self.begun += 1
        return Started(process.pid, process.stdin, process.stdout, process.stderr, process.wait)

    def learn(self, environment: Mapping[str, str], lines: str) -> None:
        """Each run loads everything anew."""

    async def close(self) -> None:
        """Nothing is kept."""


def line(order: Order) -> bytes:
    """Write an order as the line that a supervisor reads."""
    return orjson.dumps(asdict(order)) + b"\n"
