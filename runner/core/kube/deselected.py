"""Objects that left a watch's selection with the operator's finalizer.

A change of a label or field can take an object out of the selection. The watch then does not contain it, but its
deletion would wait for the finalizer forever. While there are such objects, one metadata watch of each namespace (or of
all) reports changes of them, whatever their number. An object that is being deleted is read completely. An object is
forgotten when it is gone, has lost the finalizer, or is selected again. Objects that left while no watch was open are
found by a metadata list when a list of the selected objects is complete.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from functools import partial

from runner.base import log
from runner.core.kube.cache import Cache, Change, Summary
from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import Discovery
from runner.core.kube.object_watch import ObjectWatch
from runner.core.kube.watch import Watcher
from runner.core.kube.watch_events import Applied, Restarted, Synced
from runner.core.kube.watch_stream import WatchPolicy
from runner.values.backoff import JitteredBackoff
from runner.values.errors import ApiError, ApiUnavailableError, GoneError, NotFoundError
from runner.values.objects import GVK, Object, ObjectKey, finalizers_of, is_deleting, key_of

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
        self._namespaces = tuple(namespaces)
        self._finalizer = finalizer
        self._selection = Selection(fields=within, metadata_only=True)
        self._cache = Cache()
        """Objects that are being deleted."""
        self._keys: dict[str, set[ObjectKey]] = {}
        """Deselected objects by watched namespace; empty: all."""
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._due: dict[ObjectKey, bool] = {}
        """Objects to read, and whether a watch reported that they are gone."""
        self._is_due = asyncio.Event()
        self._unsearched = set(namespaces or ("",))
        self._searching: set[str] = set()
        """Namespaces in which a search has begun since `follow` began."""
        self._jobs: asyncio.Queue[tuple[str, Container[ObjectKey]]] = asyncio.Queue()
        self._log = log.get(__name__, gvk=str(gvk))
        self._logged = log.Once()

    def get(self, key: ObjectKey) -> Object | None:
        """Return the object as last seen; None if it is not being deleted."""
        return self._cache.get(key)

    def summary(self, key: ObjectKey) -> Summary | None:
        """Return the summary of the object; None if it is not being deleted."""
        return self._cache.summary(key)

    def deleting(self) -> list[ObjectKey]:
        """Return the keys of the objects that are being deleted."""
        return list(self._cache.keys())

    def left(self, key: ObjectKey) -> None:
        """Follow an object that is not selected any more, or was deleted."""
        self._keys.setdefault(self._scope(key), set()).add(key)
        self._look(key, is_gone=True)

    def returned(self, key: ObjectKey) -> None:
        """Forget an object that is selected again, or is gone."""
        scope = self._scope(key)
        keys = self._keys.get(scope, set())
        if key not in keys:
            return
        keys.remove(key)
        self._due.pop(key, None)
        self._cache.apply(str(key), Restarted(str(key)))
        self._cache.apply(str(key), Synced())
        if not keys and (watch := self._watches.pop(scope, None)) is not None:
            watch.cancel()

    def look_for(self, namespace: str, selected: Container[ObjectKey]) -> None:
        """Find the objects that left before the operator started, once per namespace."""
        if namespace in self._unsearched and namespace not in self._searching:
            self._searching.add(namespace)
            self._jobs.put_nowait((namespace, selected))

    async def follow(self, changed: Callable[[Change], None]) -> None:
        """Watch until cancelled; `changed` receives deselected objects that are being deleted."""
        # They end with this function.
        self._watches.clear()
        self._searching.clear()
        for key in [key for keys in self._keys.values() for key in keys]:
            self._look(key, is_gone=False)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._search(group))
            backoffs: defaultdict[str, JitteredBackoff] = defaultdict(partial(JitteredBackoff, 1.0, 30.0))
            while True:
                key, is_gone = await self._next()
                try:
                    await self._read(group, changed, key, is_gone=is_gone)
                except (ApiError, ApiUnavailableError) as error:
                    if self._logged.is_new(key.namespace):
                        self._log.warning("Cannot read objects outside the selection; retrying", error=str(error))
                    # Objects of other namespaces do not wait: the error may concern this one alone.
                    delay = backoffs[key.namespace].next()
                    asyncio.get_running_loop().call_later(delay, partial(self._look, key, is_gone=is_gone))
                else:
                    backoffs.pop(key.namespace, None)
                    self._logged.reset(key.namespace)

    def _scope(self, key: ObjectKey) -> str:
        """Return the watched namespace of an object; for cluster-scoped kinds any covers it."""
        return key.namespace if self._namespaces and key.namespace else "".join(self._namespaces[:1])

    def _follows(self, key: ObjectKey) -> bool:
        return key in self._keys.get(self._scope(key), ())

    def _look(self, key: ObjectKey, *, is_gone: bool) -> None:
        """Read an object soon. `is_gone`: a watch reported that it does not exist or is not selected."""
        if self._follows(key):
            self._due[key] = self._due.get(key, False) or is_gone
            self._is_due.set()

    async def _next(self) -> tuple[ObjectKey, bool]:
        while not self._due:
            self._is_due.clear()
            await self._is_due.wait()
        key = next(iter(self._due))
        return key, self._due.pop(key)

    async def _read(
        self, group: asyncio.TaskGroup, changed: Callable[[Change], None], key: ObjectKey, *, is_gone: bool
    ) -> None:
        """Read an object, and watch it while it has the finalizer. Raises ApiError or ApiUnavailableError."""
        try:
            obj = await self._client.get(await self._discovery.find(self._gvk), key)
        except NotFoundError:
            if is_gone:  # otherwise the watch is about to report it
                self.returned(key)
            return
        if not self._follows(key):
            return
        if self._finalizer not in finalizers_of(obj):
            self.returned(key)
            return
        scope = self._scope(key)
        if scope not in self._watches:
            self._watches[scope] = group.create_task(self._watch(scope))
        if is_deleting(obj):
            for change in self._cache.apply(str(key), Applied(obj)):
                changed(change)

    async def _watch(self, scope: str) -> None:
        """Watch the metadata of all objects in a namespace, and read those that change in a way that matters."""
        watcher = Watcher(self._client, self._discovery, self._gvk, scope, self._selection, WatchPolicy())
        await ObjectWatch(watcher, lambda: self._keys.get(scope, ()), self._saw).follow()

    def _saw(self, key: ObjectKey, obj: Object | None) -> None:
        if obj is None:
            self._look(key, is_gone=True)
        elif is_deleting(obj) or self._finalizer not in finalizers_of(obj):
            self._look(key, is_gone=False)

    async def _search(self, group: asyncio.TaskGroup) -> None:
        while True:
            group.create_task(self._search_in(*await self._jobs.get()))

    async def _search_in(self, namespace: str, selected: Container[ObjectKey]) -> None:
        """Follow the deselected objects with the finalizer; retry until the API server lists all objects."""
        backoff = JitteredBackoff(1.0, 30.0)
        while namespace in self._unsearched:
            try:
                for key in await self._list(namespace):
                    if key not in selected:
                        self.left(key)
                self._unsearched.remove(namespace)
            except (ApiError, ApiUnavailableError) as error:
                if not isinstance(error, GoneError):  # else the list took longer than its version is kept
                    self._log.warning("Cannot list objects outside the selection; retrying", error=str(error))
                await asyncio.sleep(backoff.next())

    async def _list(self, namespace: str) -> list[ObjectKey]:
        """List the objects with the finalizer."""
        resource = await self._discovery.find(self._gvk)
        keys: list[ObjectKey] = []
        token = ""
        while True:
            page = await self._client.list_page(resource, namespace, self._selection, _PAGE, token)
            keys += [key_of(item) for item in page.items if self._finalizer in finalizers_of(item)]
            if not (token := page.cont):
                return keys
