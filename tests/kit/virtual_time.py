"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Never sleeps: where the loop would wait for a timer, its clock is moved there."""

    def __init__(self) -> None:
        super().__init__()
        self.advanced = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            self.advanced += timeout
        return super().select(0 if timeout is not None else None)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` is virtual. Fit for code that waits on timers and futures alone."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.advanced


def virtually(coroutine: Coroutine[object, object, T]) -> T:
    """Run a coroutine in virtual time. Tests with the marker `virtual_time` are run so."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
