"""The ways to wait for a condition: `wait_until`, and `until` in an event loop, whose time may be virtual."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

DEADLINE = 90.0
_FIRST, _LONGEST, _LONGEST_IN_LOOP = 0.002, 0.1, 0.02
"""Seconds between two questions, which grow with the time that was waited; benchmarks measure with the last."""

What = str | Callable[[], str]


def wait_until(condition: Callable[[], T | None], what: What = "a condition", deadline: float = DEADLINE) -> T:
    """Ask until the answer is true, and return it; fail with `what` after the deadline."""
    began = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - began
        assert waited < deadline, _in_vain(what, deadline)
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


async def until(condition: Callable[[], object], what: What = "a condition", deadline: float = DEADLINE) -> None:
    """Do the same in an event loop; the condition may be a coroutine function."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        found = condition()
        if await found if inspect.isawaitable(found) else found:
            return
        waited = loop.time() - began
        assert waited < deadline, _in_vain(what, deadline)
        await asyncio.sleep(min(_FIRST + waited / 10, _LONGEST_IN_LOOP))


def _in_vain(what: What, deadline: float) -> str:
    return f"waited {deadline:g} s in vain for {what if isinstance(what, str) else what()}"
