"""One watch of referenced objects, told as what is there and what is not.

Guarantees: `saw` is told of every object that comes by, and of each that was expected when a list began and was not in
it. Must not import: proxy, reconcile, controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from runner.kube.relist import Relist
from runner.kube.watch import Watcher, WatchState
from runner.kube.watch_events import Applied, Deleted, Restarted, Synced
from runner.objects import Object, ObjectKey, key_of


class ReferenceWatch:
    """Follows what one watcher says."""

    def __init__(
        self,
        watcher: Watcher,
        expected: Callable[[], Iterable[ObjectKey]],
        saw: Callable[[ObjectKey, Object | None], None],
        synced: Callable[[], None],
    ) -> None:
        """`expected`: what may be there, as the list has to show; `saw` takes an object, or that there is none.

        `synced` is called when a list is complete for the first time.
        """
        self.is_synced = False
        """Whether a list was ever complete."""
        self._watcher = watcher
        self._expected = expected
        self._saw = saw
        self._synced = synced
        self._relist = Relist()

    @property
    def namespace(self) -> str:
        """Where it looks; empty: everywhere."""
        return self._watcher.namespace

    @property
    def is_absent(self) -> bool:
        """Whether the API server does not serve the kind now, so that there is nothing."""
        return self._watcher.state is WatchState.WAITING_FOR_KIND

    @property
    def trouble(self) -> str:
        """What is wrong now; empty while nothing is."""
        return self._watcher.last_error or ""

    async def follow(self) -> None:
        """Follow for ever."""
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
