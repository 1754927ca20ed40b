"""What is said of referenced objects, and which of it an object's own run has caused. Pure.

A watch may tell of a write before the run has its answer: while an object runs, its news waits, and what the run turns
out to have written itself is dropped at its end.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass

from runner.kube.object_state import Target
from runner.references.state import Asked

_MOST_WRITES = 4096


@dataclass(frozen=True, slots=True)
class ReferenceNews:
    """Something that an object should be run for."""

    target: Target
    asked: Asked
    what: str
    uid: str
    version: str
    """How the referenced object is now; empty when it is gone."""


class ReferenceRuns:
    """The runs that go on, what they wrote, and the news that waits for their end."""

    def __init__(self) -> None:
        self._running: Counter[Target] = Counter()
        self._waiting: dict[Target, list[ReferenceNews]] = {}
        self._written: OrderedDict[tuple[Target, str, str], None] = OrderedDict()

    def began(self, target: Target) -> None:
        """A run of this object begins."""
        self._running[target] += 1

    def ended(self, target: Target) -> list[ReferenceNews]:
        """It is over; returns what is news then."""
        self._running[target] -= 1
        if self._running[target] > 0:
            return []
        del self._running[target]
        return [news for news in self._waiting.pop(target, ()) if not self._is_own(news)]

    def wrote(self, target: Target, uid: str, version: str) -> None:
        """A run made this version of an object; empty: it deleted it."""
        self._written[target, uid, version] = None
        if len(self._written) > _MOST_WRITES:
            self._written.popitem(last=False)

    def holds(self, news: ReferenceNews) -> bool:
        """Keep an item that waits for a run's end, or is of the object's own making; False when it is due now."""
        if self._running[news.target] > 0:
            self._waiting.setdefault(news.target, []).append(news)
            return True
        del self._running[news.target]
        return self._is_own(news)

    def _is_own(self, news: ReferenceNews) -> bool:
        return (news.target, news.uid, news.version) in self._written
