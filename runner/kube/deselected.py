"""Objects that left a watch's selection with the operator's finalizer.

A change of a label or field can take an object out of the selection. The watch then does not contain it, but its
deletion would wait for the finalizer forever. Each such object is watched individually until it is deleted, loses the
finalizer, or is selected again. Objects that left while no watch was open are found by a metadata list when a list of
the selected objects is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence

from runner import log
from runner.errors import ApiError, ApiUnavailableError, GoneError, KindNotFoundError
from runner.kube.cache import Cache, Change, Summary
from runner.kube.client import Client, Selection
from runner.kube.discovery import Discovery
from runner.kube.watch import Watcher
from runner.kube.watch_events import Restarted, Synced
from runner.kube.watch_stream import WatchPolicy
from runner.objects import GVK, Object, ObjectKey, finalizers_of, key_of
from runner.watches.policy import JitteredBackoff

_PAGE = 500


class DeselectedObjects:
    """Deselected objects of one kind."""

    def __init__(
        self, client: Client, discovery: Discovery, gvk: GVK, namespaces: Sequence[str], finalizer: str, within: str
    ) -> None:
        """`within` is a field selector that no object can leave; other objects were never selected."""
        self._client = client
        self._discovery = discovery
        self._gvk = gvk
        self._finalizer = finalizer
        self._selection = Selection(fields=within, metadata_only=True)
        self._cache = Cache()
        self._followers: dict[ObjectKey, asyncio.Task[None]] = {}
        self._unsearched = set(namespaces or ("",))
        self._jobs: asyncio.Queue[tuple[str, Container[ObjectKey]]] = asyncio.Queue()
        self._changed: Callable[[Change], None] = lambda _: None
        self._log = log.get(__name__, gvk=str(gvk))

    def get(self, key: ObjectKey) -> Object | None:
        """Return the object as last seen; None if it is not watched."""
        return self._cache.get(key)

    def summary(self, key: ObjectKey) -> Summary | None:
        """Return the summary of the object; None if it is not watched."""
        return self._cache.summary(key)

    def deleting(self) -> list[ObjectKey]:
        """Return the keys of the objects that are being deleted."""
        found = ((key, self._cache.summary(key)) for key in self._followers)
        return [key for key, summary in found if summary is not None and summary.deleting]

    def left(self, key: ObjectKey) -> None:
        """Watch an object that is not selected any more, or was deleted."""
        if key not in self._followers:
            self._followers[key] = asyncio.create_task(self._follow(key))

    def returned(self, key: ObjectKey) -> None:
        """Stop watching: the object is selected again."""
        follower = self._followers.pop(key, None)
        if follower is not None:
            follower.cancel()
            self._drop(key)

    def look_for(self, namespace: str, selected: Container[ObjectKey]) -> None:
        """Find the objects that left before the operator started, once per namespace."""
        if namespace in self._unsearched:
            self._unsearched.remove(namespace)
            self._jobs.put_nowait((namespace, selected))

    async def follow(self, changed: Callable[[Change], None]) -> None:
        """Watch until cancelled; `changed` receives deselected objects that are being deleted."""
        self._changed = changed
        try:
            while True:
                namespace, selected = await self._jobs.get()
                for key in await self._holding(namespace):
                    if key not in selected:
                        self.left(key)
        finally:
            for key in list(self._followers):
                self.returned(key)

    async def _holding(self, namespace: str) -> list[ObjectKey]:
        """List the objects with the finalizer; retry until the API server responds."""
        backoff = JitteredBackoff(1.0, 30.0)
        while True:
            try:
                return await self._list(namespace)
            except KindNotFoundError:
                return []
            except GoneError:
                continue
            except (ApiError, ApiUnavailableError) as error:
                self._log.warning("Cannot list objects outside the selection; retrying", error=str(error))
                await asyncio.sleep(backoff.next())

    async def _list(self, namespace: str) -> list[ObjectKey]:
        resource = await self._discovery.find(self._gvk)
        found: list[ObjectKey] = []
        cont = ""
        while True:
            page = await self._client.list_page(resource, namespace, self._selection, _PAGE, cont)
            found += [key_of(item) for item in page.items if self._finalizer in finalizers_of(item)]
            if not (cont := page.cont):
                return found

    async def _follow(self, key: ObjectKey) -> None:
        selection = Selection(fields=f"metadata.name={key.name}")
        watcher = Watcher(self._client, self._discovery, self._gvk, key.namespace, selection, WatchPolicy())
        async for event in watcher.events():
            changes = self._cache.apply(str(key), event)
            if isinstance(event, Restarted):
                continue
            summary = self._cache.summary(key)
            if summary is None or self._finalizer not in summary.finalizers:
                del self._followers[key]
                self._drop(key)
                return
            for change in changes:
                if change.new is not None and change.new.deleting:
                    self._changed(change)

    def _drop(self, key: ObjectKey) -> None:
        self._cache.apply(str(key), Restarted(str(key)))
        self._cache.apply(str(key), Synced())
