"""News that waits for the end of its owner's run. Pure.

A watch may tell of a write before the run has its answer, so that nobody can say yet whose write it was. While an owner
runs, its news waits here; each write or deletion that is told takes back the news that it caused; what is left when the
run ends is somebody else's doing.
"""

from __future__ import annotations

from collections import Counter

from runner.dependents.ledger import News, Write
from runner.kube.object_state import Target
from runner.objects import GVK, ObjectKey


class PendingNews:
    """The news of all owners that have runs. Each item is of a kind of dependents."""

    def __init__(self) -> None:
        self._runs: Counter[Target] = Counter()
        self._news: dict[Target, list[tuple[GVK, News]]] = {}

    def began(self, target: Target) -> None:
        """A run of this owner begins."""
        self._runs[target] += 1

    def ended(self, target: Target) -> list[tuple[GVK, News]]:
        """It is over; returns what is news when it was the owner's only one."""
        self._runs[target] -= 1
        if self._runs[target] > 0:
            return []
        del self._runs[target]
        return self._news.pop(target, [])

    def holds(self, kind: GVK, news: News) -> bool:
        """Keep an item while its owner runs; False when it has no run."""
        if not self._runs[news.target]:
            del self._runs[news.target]
            return False
        self._news.setdefault(news.target, []).append((kind, news))
        return True

    def wrote(self, kind: GVK, key: ObjectKey, write: Write, *, with_status: bool) -> None:
        """A run wrote an object."""
        self._keep(
            write.target,
            [
                (where, news)
                for where, news in self._news.get(write.target, ())
                if (where, news.key) != (kind, key)
                or news.state is None
                or not write.explains(news.state, with_status=with_status)
            ],
        )

    def deleted(self, kind: GVK, target: Target, uid: str) -> bool:
        """A run deleted an object; says whether its end was among the news, and is not to come any more."""
        before = self._news.get(target, [])
        ends = [
            (where, news)
            for where, news in before
            if where == kind and news.uid == uid and (news.state is None or news.state.deleting)
        ]
        self._keep(target, [item for item in before if item not in ends])
        return any(news.state is None for _, news in ends)

    def _keep(self, target: Target, left: list[tuple[GVK, News]]) -> None:
        if left:
            self._news[target] = left
        else:
            self._news.pop(target, None)
