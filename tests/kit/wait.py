"""The ways to wait for a condition: `wait_until`, and `until` in an event loop, whose time may be virtual.

All have one patience, which grows with the load of the machine. `patience` is the limit for what else waits, such as a
program or a request.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds on a machine without other load."""
_MOST = 5.0
"""More load than this is a machine that cannot run the tests."""
_FIRST, _LONGEST, _LONGEST_IN_LOOP = 0.002, 0.1, 0.02
"""Seconds between two questions, which grow with the time that was waited; benchmarks measure with the last."""

What = str | Callable[[], str]


def patience(seconds: float = PATIENCE) -> float:
    """Return how long to wait at the present load: how many programs want to run on each processor."""
    return seconds * min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), _MOST)


def wait_until(condition: Callable[[], T | None], what: What = "a condition", deadline: float = PATIENCE) -> T:
    """Ask until the answer is true, and return it; fail with `what` when the patience is at its end."""
    began = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - began
        assert waited < patience(deadline), _in_vain(what, waited)
        time.sleep(min(_FIRST + waited / 10, _LONGEST))
    return found


def wait_for_program(condition: Callable[[], T | None], process: subprocess.Popen[bytes], log: Path) -> T:
    """Wait for an effect of a program that runs; an OSError is that of a program which does not listen yet."""

    def found() -> T | None:
        assert process.poll() is None, f"it ended with {process.returncode}:\n{log.read_text(errors='replace')[-4000:]}"
        try:
            return condition()
        except OSError:
            return None

    return wait_until(found, lambda: f"a program that logged:\n{log.read_text(errors='replace')[-4000:]}")


async def until(condition: Callable[[], object], what: What = "a condition", deadline: float = PATIENCE) -> Any:
    """Do the same in an event loop; the condition may be a coroutine function."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        answer = condition()
        found = await answer if inspect.isawaitable(answer) else answer
        if found:
            return found
        waited = loop.time() - began
        assert waited < patience(deadline), _in_vain(what, waited)
        await asyncio.sleep(min(_FIRST + waited / 10, _LONGEST_IN_LOOP))


def _in_vain(what: What, waited: float) -> str:
    return f"waited {waited:.0f} s in vain for {what if isinstance(what, str) else what()}"
