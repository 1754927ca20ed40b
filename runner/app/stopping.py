"""When the process has been asked to stop, and whether in a hurry.

SIGTERM and SIGINT ask; the second one says that it is urgent. One for the process's whole life, so that no signal falls
between two operators that follow each other.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from types import FrameType

from runner import log

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = log.get(__name__)


class Stopping:
    """What the signals of this process have asked for."""

    def __init__(self, grace: float) -> None:
        """`grace`: seconds that runs may still take once asked."""
        self.asked = asyncio.Event()
        self.hurry = asyncio.Event()
        self._grace = grace

    def catch(self) -> None:
        """Take the signals of the process from now on. Call it in the main thread, in the loop."""
        loop = asyncio.get_running_loop()

        def pass_on(number: int, _: FrameType | None) -> None:
            with suppress(RuntimeError):  # the loop has ended: so has everything else
                loop.call_soon_threadsafe(self._caught, signal.Signals(number).name)

        # Not by the loop, which lets signals kill the process again as soon as it ends.
        for each in _SIGNALS:
            signal.signal(each, pass_on)

    def _caught(self, name: str) -> None:
        if self.hurry.is_set():
            return
        if self.asked.is_set():
            _log.warning("Runs are ended at once", signal=name)
            self.hurry.set()
            return
        _log.info("Stopping", signal=name, grace_seconds=self._grace)
        self.asked.set()


def ignore() -> None:
    """Let signals do nothing: all has been stopped, and one that comes now must not make a failure of a clean end."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
