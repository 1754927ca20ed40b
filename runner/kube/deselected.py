"""Objects that left a watch's selection with our finalizer on them.

A change of a label or field takes an object out of the selection; what is watched no longer holds it, yet its deletion
would wait for our finalizer for ever. Each such object is followed on its own until it is gone, loses our finalizer, or
comes back. Those that left while nobody watched are found by their metadata alone, once a list of the selected ones is
complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence

from runner import log
from runner.errors import ApiError, ApiUnavailableError, GoneError, KindNotFoundError
from runner.kube.cache import Cache, Change
from runner.kube.client import Client, Selection
from runner.kube.discovery import Discovery
from runner.kube.watch import Watcher
from runner.kube.watch_events import Restarted, Synced
from runner.kube.watch_stream import WatchPolicy
from runner.objects import GVK, Object, ObjectKey, finalizers_of, key_of
from runner.watches.policy import JitteredBackoff

_PAGE = 500


class DeselectedObjects:
    """Follows the departed objects of one kind."""

    def __init__(
        self, client: Client, discovery: Discovery, gvk: GVK, namespaces: Sequence[str], finalizer: str, within: str
    ) -> None:
        """`within`: a field selector of what no object can leave; the others were never ours."""
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
        """The object as last seen; None when it is not followed."""
        return self._cache.get(key)

    def deleting(self) -> list[ObjectKey]:
        """The keys of those that are being deleted."""
        found = ((key, self._cache.summary(key)) for key in self._followers)
        return [key for key, summary in found if summary is not None and summary.deleting]

    def left(self, key: ObjectKey) -> None:
        """Follow an object that is no longer selected, or gone: it turns out which."""
        if key not in self._followers:
            self._followers[key] = asyncio.create_task(self._follow(key))

    def returned(self, key: ObjectKey) -> None:
        """Stop following: the object is selected again."""
        follower = self._followers.pop(key, None)
        if follower is not None:
            follower.cancel()
            self._drop(key)

    def look_for(self, namespace: str, selected: Container[ObjectKey]) -> None:
        """Find what left before we were there, once per namespace: later departures are seen as they happen."""
        if namespace in self._unsearched:
            self._unsearched.remove(namespace)
            self._jobs.put_nowait((namespace, selected))

    async def follow(self, changed: Callable[[Change], None]) -> None:
        """Work for ever; `changed` is told of departed objects that are being deleted."""
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
        """List the objects that our finalizer stands on; tries until the API server has told."""
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
