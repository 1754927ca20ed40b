"""Objects that left a watch's selection with the operator's finalizer.

A change of a label or field can take an object out of the selection. The watch then does not contain it, but its
deletion would wait for the finalizer forever. One metadata watch of each namespace (or of all) reports the objects with
the finalizer that are being deleted. Those that are not selected are read completely. An object is forgotten when it is
gone, has lost the finalizer, or is selected again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from functools import partial

from runner.base import log
from runner.core.kube.cache import Cache, Change
from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import Discovery
from runner.core.kube.watch import ObjectWatch, watchers
from runner.core.kube.watch_events import Applied, Restarted, Synced
from runner.values.backoff import JitteredBackoff
from runner.values.errors import ApiError, ApiUnavailableError, NotFoundError
from runner.values.objects import GVK, Object, ObjectKey, finalizers_of, is_deleting


class DeselectedObjects:
    """Deselected objects of one kind that are being deleted."""

    def __init__(
        self,
        client: Client,
        discovery: Discovery,
        gvk: GVK,
        namespaces: Sequence[str],
        finalizer: str,
        within: str,
        selected: Container[ObjectKey],
    ) -> None:
        """`within` is a field selector that no object can leave; other objects were never selected."""
        self._client = client
        self._discovery = discovery
        self._gvk = gvk
        self._finalizer = finalizer
        self._selected = selected
        self.objects = Cache()
        self._deleting: dict[str, set[ObjectKey]] = {}
        """All objects with the finalizer that are being deleted, by scope of the watch."""
        self._due: dict[ObjectKey, None] = {}
        """Objects to read."""
        self._is_due = asyncio.Event()
        selection = Selection(fields=within, metadata_only=True)
        self._watches: list[ObjectWatch] = []
        for watcher in watchers(client, discovery, gvk, namespaces, selection):
            keys = self._deleting.setdefault(watcher.namespace, set())
            self._watches.append(ObjectWatch(watcher, keys.copy, partial(self._saw, keys)))
        self._log = log.get(__name__, gvk=str(gvk))
        self._logged = log.Once()

    def look(self, key: ObjectKey) -> None:
        """Read an object soon that is not selected any more, or that has changed."""
        if self._is_deleting(key):
            self._due[key] = None
            self._is_due.set()

    def forget(self, key: ObjectKey) -> None:
        """Forget an object that is selected again, is gone, or has lost the finalizer."""
        self._due.pop(key, None)
        if key in self.objects:
            self.objects.apply(str(key), Restarted(str(key)))
            self.objects.apply(str(key), Synced())

    async def follow(self, changed: Callable[[Change], None]) -> None:
        """Watch until cancelled; `changed` receives the objects."""
        async with asyncio.TaskGroup() as group:
            for watch in self._watches:
                group.create_task(watch.follow())
            backoffs: defaultdict[str, JitteredBackoff] = defaultdict(partial(JitteredBackoff, 1.0, 30.0))
            while True:
                key = await self._next()
                try:
                    await self._read(changed, key)
                except (ApiError, ApiUnavailableError) as error:
                    if self._logged.is_new(key.namespace):
                        self._log.warning("Cannot read objects outside the selection; retrying", error=str(error))
                    # Objects of other namespaces do not wait: the error may concern this one alone.
                    asyncio.get_running_loop().call_later(backoffs[key.namespace].next(), self.look, key)
                else:
                    backoffs.pop(key.namespace, None)
                    self._logged.reset(key.namespace)

    async def _next(self) -> ObjectKey:
        while not self._due:
            self._is_due.clear()
            await self._is_due.wait()
        key = next(iter(self._due))
        del self._due[key]
        return key

    async def _read(self, changed: Callable[[Change], None], key: ObjectKey) -> None:
        """Read an object. Raises ApiError or ApiUnavailableError."""
        try:
            obj = await self._client.get(await self._discovery.find(self._gvk), key)
        except NotFoundError:
            return  # the watch is about to report it
        # The watch may have reported its end before the answer arrived, and reports it no second time.
        if self._is_deleting(key) and is_deleting(obj) and self._finalizer in finalizers_of(obj):
            for change in self.objects.apply(str(key), Applied(obj)):
                changed(change)

    def _is_deleting(self, key: ObjectKey) -> bool:
        return key not in self._selected and any(key in keys for keys in self._deleting.values())

    def _saw(self, keys: set[ObjectKey], key: ObjectKey, obj: Object | None) -> None:
        if obj is not None and is_deleting(obj) and self._finalizer in finalizers_of(obj):
            keys.add(key)
            self.look(key)
        else:
            keys.discard(key)
            self.forget(key)
