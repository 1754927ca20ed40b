"""Says when a kind of dependents is not watched for long, and when it is again.

A watch that fails is tried for ever, and each error is logged by the watch itself. What that means is said here, once
for each time: changes by others go unnoticed, and the kind's objects are not answered from memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Protocol

from runner import log
from runner.objects import GVK

_LOOK = 5.0
_PATIENCE = 30.0
"""Seconds that a watch may take to live."""
_log = log.get(__name__)


class WatchedKind(Protocol):
    """A kind that is watched."""

    gvk: GVK

    def problems(self) -> list[str]:
        """Say what keeps it from being watched."""
        ...


class DependentWatchHealth:
    """Looks at the kinds now and then."""

    def __init__(self, kinds: Collection[WatchedKind]) -> None:
        """`kinds` may change."""
        self._kinds = kinds
        self._since: dict[GVK, float] = {}
        self._told: set[GVK] = set()

    async def follow(self) -> None:
        """Look for ever."""
        while True:
            self.look(asyncio.get_running_loop().time())
            await asyncio.sleep(_LOOK)

    def look(self, now: float) -> None:
        """Look once."""
        problems = {kind.gvk: "; ".join(kind.problems()) for kind in self._kinds}
        for gvk, problem in problems.items():
            if not problem:
                self._since.pop(gvk, None)
            elif now - self._since.setdefault(gvk, now) >= _PATIENCE and gvk not in self._told:
                self._told.add(gvk)
                _log.warning(
                    "Dependents of this kind are not watched: changes by other clients are not detected",
                    gvk=str(gvk),
                    why=problem,
                )
        for gvk in [told for told in self._told if not problems.get(told)]:
            self._told.remove(gvk)
            _log.info("Dependents of this kind are watched again", gvk=str(gvk))
