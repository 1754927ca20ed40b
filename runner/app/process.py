"""Handlers of the whole process: stop signals, and errors that the event loop reports.

Both exist once per process, so that no signal is lost between two operators that follow each other.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from types import FrameType
from typing import Any

from runner import log
from runner.config import shortages

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SHORTAGE_INTERVAL = 10.0
"""Seconds after which a shortage that goes on is logged again."""

_log = log.get(__name__)


class StopSignals:
    """SIGTERM and SIGINT: the first requests a stop, the second makes it urgent."""

    def __init__(self, grace: float) -> None:
        """`grace`: seconds that runs may take after the first signal."""
        self.stop = asyncio.Event()
        self.urgent = asyncio.Event()
        self._grace = grace

    def catch(self) -> None:
        """Handle the process's signals from now on. Call it in the main thread, in the loop."""
        loop = asyncio.get_running_loop()

        def forward(number: int, _: FrameType | None) -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it everything else
                loop.call_soon_threadsafe(self._caught, signal.Signals(number).name)

        # Not with loop.add_signal_handler: signals would kill the process again as soon as the loop ends.
        for each in _SIGNALS:
            signal.signal(each, forward)

    def _caught(self, name: str) -> None:
        if self.urgent.is_set():
            return
        if self.stop.is_set():
            _log.warning("Canceling all runs", signal=name)
            self.urgent.set()
            return
        _log.info("Stopping", signal=name, grace_seconds=self._grace)
        self.stop.set()


def ignore_signals() -> None:
    """Ignore stop signals once everything has stopped: a late one must not turn a clean exit into a failure."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)


class LoopErrorHandler:
    """Exception handler of an event loop (`asyncio.loop.set_exception_handler`) that logs shortages once.

    A server without a free file descriptor retries by itself a second later. Until then asyncio reports the same error
    for each pending connection, hundreds of times, with a traceback each.
    """

    def __init__(self) -> None:
        self._logged_at: float | None = None

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error that the loop reports."""
        error = context.get("exception")
        if not isinstance(error, OSError) or not shortages.passes(error) or "socket" not in context:
            loop.default_exception_handler(context)
        elif self._logged_at is None or loop.time() - self._logged_at >= _SHORTAGE_INTERVAL:
            self._logged_at = loop.time()
            _log.warning(
                "Cannot accept connections; if this continues, raise the limit of open files (ulimit -n)",
                reason=error.strerror,
            )
