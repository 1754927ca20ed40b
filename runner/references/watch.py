"""One watch of referenced objects.

Guarantees: `saw` receives every object of an event, and the absence of each expected object that a list did not
contain. Must not import: proxy, reconcile, controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from runner.kube.relist import Relist
from runner.kube.watch import Watcher, WatchState
from runner.kube.watch_events import Applied, Deleted, Restarted, Synced
from runner.objects import Object, ObjectKey, key_of


class ReferenceWatch:
    """Events of one watcher."""

    def __init__(
        self,
        watcher: Watcher,
        expected: Callable[[], Iterable[ObjectKey]],
        saw: Callable[[ObjectKey, Object | None], None],
        synced: Callable[[], None],
    ) -> None:
        """`expected` returns the objects that the list may contain; `saw` receives an object, or None if it is absent.

        `synced` is called when a list is complete for the first time.
        """
        self.is_synced = False
        """True if a list was ever complete."""
        self._watcher = watcher
        self._expected = expected
        self._saw = saw
        self._synced = synced
        self._relist = Relist()

    @property
    def namespace(self) -> str:
        """Namespace of the watch; empty for all."""
        return self._watcher.namespace

    @property
    def is_absent(self) -> bool:
        """True if the API server does not serve the kind now."""
        return self._watcher.state is WatchState.WAITING_FOR_KIND

    @property
    def trouble(self) -> str:
        """Current error; empty if there is none."""
        return self._watcher.last_error or ""

    async def follow(self) -> None:
        """Watch until cancelled."""
        async for event in self._watcher.events():
            match event:
                case Restarted():
                    self._relist.begin(self.namespace, self._expected())
                case Applied(obj):
                    self._relist.saw(key_of(obj))
                    self._saw(key_of(obj), obj)
                case Deleted(obj):
                    self._saw(key_of(obj), None)
                case Synced():
                    for key in self._relist.end(self.namespace):
                        self._saw(key, None)
                    if not self.is_synced:
                        self.is_synced = True
                        self._synced()
