"""Watch of objects whose states the consumer keeps by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from runner.core.kube.watch import Watcher
from runner.core.kube.watch_events import Applied, Deleted, Relist, Restarted, Synced, WatchEvent
from runner.values.objects import Object, ObjectKey, key_of


class ObjectWatch:
    """The objects that one watcher reports.

    Guarantees: `saw` receives every object of an event, and the absence of each expected object that a list did not
    contain.
    """

    def __init__(
        self,
        watcher: Watcher,
        expected: Callable[[], Iterable[ObjectKey]],
        saw: Callable[[ObjectKey, Object | None], None],
        synced: Callable[[], None] = lambda: None,
    ) -> None:
        """`expected` returns the objects that a list may contain; `saw` receives an object, or None if it is absent.

        `synced` is called when a list is complete for the first time.
        """
        self.health = watcher.health
        self.is_synced = False
        """True if a list was ever complete."""
        self._watcher = watcher
        self._expected = expected
        self._saw = saw
        self._synced = synced
        self._relist = Relist()

    async def follow(self) -> NoReturn:
        """Watch until cancelled."""
        await self._watcher.follow(self._take)

    def _take(self, event: WatchEvent) -> None:
        scope = self.health.namespace
        match event:
            case Restarted():
                self._relist.begin(scope, self._expected())
            case Applied(obj):
                self._relist.saw(key_of(obj))
                self._saw(key_of(obj), obj)
            case Deleted(obj):
                self._saw(key_of(obj), None)
            case Synced():
                for key in self._relist.end(scope):
                    self._saw(key, None)
                if not self.is_synced:
                    self.is_synced = True
                    self._synced()
