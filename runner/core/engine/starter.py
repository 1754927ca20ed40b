"""Start of a supervisor: the parts that all ways share, and the start with a new interpreter.

A `Starter` gives an order to a new supervisor and returns its streams and a way to wait for it. Everything else about
runs is the same for all of them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Protocol

import orjson

from runner.base.config import shortages
from runner.core.engine.wire import Order

TAKEN_BY_START = 10
"""File descriptors that the start of a process opens at most: three pipes, one more for its errors, one to wait."""
READ_AHEAD = 1 << 20
"""Bytes of a supervisor's output that are buffered before the supervisor has to wait."""


@dataclass(frozen=True, slots=True)
class Started:
    """A supervisor that has its order."""

    pid: int
    control: asyncio.StreamWriter
    events: asyncio.StreamReader
    complaints: asyncio.StreamReader
    """Standard error of the supervisor."""
    wait: Callable[[], Awaitable[int | None]]
    """Waits for the end and reaps it. Returns the exit code, the negative signal number, or None if that is unknown."""


class Starter(Protocol):
    """Starter of supervisors."""

    async def start(self, order: Order, environment: Mapping[str, str]) -> Started:
        """Start a supervisor with exactly this environment.

        Raises:
            OSError: no process could be started.
        """
        ...

    def learn(self, environment: Mapping[str, str], lines: str, ident: str) -> None:
        """Store what a run with this environment and name loaded: the lines of `wire.LEARNED`."""
        ...

    async def close(self) -> None:
        """End the processes that start supervisors. Running supervisors continue."""
        ...


class ColdStarter:
    """Starter of a new interpreter for each run."""

    def __init__(self) -> None:
        self.started_runs = 0
        """Number of started runs."""

    async def start(self, order: Order, environment: Mapping[str, str]) -> Started:
        """Start `python -m runner.core.engine.child`."""
        shortages.check_descriptors(TAKEN_BY_START)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # ignore a folder in the operator's working directory that has the name of one of its packages
            "-m",
            "runner.core.engine.child",
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
        self.started_runs += 1
        return Started(process.pid, process.stdin, process.stdout, process.stderr, process.wait)

    def learn(self, environment: Mapping[str, str], lines: str, ident: str) -> None:
        """Do nothing: each run loads everything again."""

    async def close(self) -> None:
        """Do nothing: there are no processes to end."""


def line(order: Order) -> bytes:
    """Return an order as the line that a supervisor reads."""
    return orjson.dumps(asdict(order)) + b"\n"
