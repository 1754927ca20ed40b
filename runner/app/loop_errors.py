"""What the event loop reports of errors that nobody else sees: logged once, not once for each attempt.

A server that has no descriptor left for a connection tries again by itself a second later; asyncio meets the same error
for each place of the queue of connections meanwhile, hundreds of times with a traceback each.
"""

from __future__ import annotations

import asyncio
from typing import Any

from runner import log
from runner.config import shortages

_AGAIN_AFTER = 10.0
"""Seconds after which a shortage that goes on is told again."""


class LoopErrors:
    """An exception handler for a loop (`asyncio.loop.set_exception_handler`)."""

    def __init__(self) -> None:
        self._log = log.get(__name__)
        self._told_at: float | None = None

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log what the loop reports."""
        error = context.get("exception")
        if not isinstance(error, OSError) or not shortages.passes(error) or "socket" not in context:
            loop.default_exception_handler(context)
        elif self._told_at is None or loop.time() - self._told_at >= _AGAIN_AFTER:
            self._told_at = loop.time()
            self._log.warning(
                "Connections cannot be accepted for now; raise the limit of open files (ulimit -n) if this goes on",
                reason=error.strerror,
            )
