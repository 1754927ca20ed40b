"""Warnings about kinds of dependents that are not watched for a long time.

A watch retries forever and logs each error itself. This module logs the consequence once per outage: changes by other
clients are not detected, and the cache does not serve the kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Protocol

from runner import log
from runner.objects import GVK

_LOOK = 5.0
_PATIENCE = 30.0
"""Seconds that a watch may take until it is live."""
_log = log.get(__name__)


class WatchedKind(Protocol):
    """A watched kind."""

    gvk: GVK

    def problems(self) -> list[str]:
        """Return the problems of its watches."""
        ...


class DependentWatchHealth:
    """Periodic check of the kinds."""

    def __init__(self, kinds: Collection[WatchedKind]) -> None:
        """`kinds` may change."""
        self._kinds = kinds
        self._since: dict[GVK, float] = {}
        self._reported: set[GVK] = set()

    async def follow(self) -> None:
        """Check until cancelled."""
        while True:
            self.look(asyncio.get_running_loop().time())
            await asyncio.sleep(_LOOK)

    def look(self, now: float) -> None:
        """Check once."""
        problems = {kind.gvk: "; ".join(kind.problems()) for kind in self._kinds}
        for gvk, problem in problems.items():
            if not problem:
                self._since.pop(gvk, None)
            elif now - self._since.setdefault(gvk, now) >= _PATIENCE and gvk not in self._reported:
                self._reported.add(gvk)
                _log.warning(
                    "Dependents of this kind are not watched: changes by other clients are not detected",
                    gvk=str(gvk),
                    why=problem,
                )
        for gvk in [each for each in self._reported if not problems.get(each)]:
            self._reported.remove(gvk)
            _log.info("Dependents of this kind are watched again", gvk=str(gvk))
