"""Background work of the operator, which never ends it.

Rule: whatever works beside the runs is kept by `Background`. An error is logged once, counted, and shown by
`/readyz?verbose`. The work begins again with backoff, and other work continues. Only the leader lease is not kept: a
replica that cannot renew it must end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from runner.base import log
from runner.values.backoff import JitteredBackoff
from runner.values.errors import OperatorError

_SHOWN = 300.0
"""Seconds for which a failure is shown, and after which the backoff begins again."""

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

_log = log.get(__name__)


class Background:
    """Keeper of background work."""

    def __init__(self, count: Callable[[str], object] = lambda _: None) -> None:
        """`count` counts a failure of work by its name."""
        self._count = count
        self._failed: dict[str, tuple[str, float]] = {}
        """Last failure of each work, and its time by the event loop's clock."""

    def notes(self) -> Mapping[str, str]:
        """Return the last failures, by `background/NAME`."""
        now = asyncio.get_running_loop().time()
        return {f"background/{name}": why for name, (why, at) in self._failed.items() if now - at < _SHOWN}

    async def keep(self, name: str, work: Work) -> None:
        """Do work until it ends by itself. Begin it again after each error."""
        clock, backoff = asyncio.get_running_loop().time, JitteredBackoff(1.0, 60.0)
        while True:
            began = clock()
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - a defect in one part must not end the others
                if clock() - began > _SHOWN:
                    backoff.reset()
                self.note(name, error, "it begins again with backoff")
                await asyncio.sleep(backoff.next())
            else:
                return

    def note(self, name: str, error: Exception, effect: str) -> None:
        """Log, count and show an error. `effect`: what follows it, for the log."""
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        why = f"{type(error).__name__}: {error}"
        before, _ = self._failed.get(name, ("", 0.0))
        self._failed[name] = why, asyncio.get_running_loop().time()
        self._count(name)
        if why != before:
            is_known = isinstance(error, OperatorError | OSError)
            _log.error(
                f"Background work failed; {effect}",
                work=name,
                error=why,
                exc_info=None if is_known else error,
            )
