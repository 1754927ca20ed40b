"""Everything that is known of one kind's selected objects, kept current, and who is told of changes.

Owns: the kind's watchers, their cache, and what left the selection with a finalizer of ours on it (`departed`).
Guarantees: `changed` is called for every change in the order in which it was seen; for departed objects only when they
are being deleted. What `get` returns is the caller's own copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from runner.kube.cache import Cache, Change, Summary
from runner.kube.client import Client, Selection
from runner.kube.deselected import DeselectedObjects
from runner.kube.discovery import Discovery
from runner.kube.watch import Watcher, WatchState, watchers
from runner.kube.watch_events import Synced
from runner.kube.watch_stream import WatchPolicy
from runner.objects import GVK, Object, ObjectKey
from runner.watches import field_selectors

_SILENCE = 900.0
"""Seconds. A watch ends, and is opened anew, after half of it at the latest, whatever server or network do."""


class Informer:
    """Follows one kind."""

    def __init__(
        self,
        client: Client,
        discovery: Discovery,
        gvk: GVK,
        namespaces: Sequence[str],
        selection: Selection,
        finalizer: str,
    ) -> None:
        """`finalizer` is the name of ours, empty where there is none."""
        self._watchers = watchers(client, discovery, gvk, namespaces, selection, WatchPolicy())
        self.namespaces = tuple(namespaces)
        """Where it looks; none: everywhere."""
        self._cache = Cache()
        self._finalizer = finalizer
        self._departed: DeselectedObjects | None = None
        self.revision = 0
        """Counts changes, for whoever looks on."""
        self.synced = asyncio.Event()
        """Set once all selected objects are known."""
        if finalizer and (selection.labels or field_selectors.can_be_left(selection.fields)):
            within = field_selectors.lasting(selection.fields)
            self._departed = DeselectedObjects(client, discovery, gvk, namespaces, finalizer, within)

    def __len__(self) -> int:
        """Count the selected objects."""
        return len(self._cache)

    def created(self) -> list[tuple[ObjectKey, float]]:
        """The selected objects, and when each was created, in seconds since the epoch."""
        return self._cache.created()

    def all_keys(self) -> list[ObjectKey]:
        """The keys of all objects that may have to be run: the selected, and the departed that are being deleted."""
        return [*self._cache.keys(), *(self._departed.deleting() if self._departed is not None else ())]

    def __contains__(self, key: ObjectKey) -> bool:
        """Whether an object is selected and there."""
        return key in self._cache

    def get(self, key: ObjectKey) -> Object | None:
        """An object as last seen; None when it is not there."""
        found = self._cache.get(key)
        if found is None and self._departed is not None:
            found = self._departed.get(key)
        return found

    def summary(self, key: ObjectKey) -> Summary | None:
        """What is known of a selected object without parsing it."""
        return self._cache.summary(key)

    def problem(self) -> str | None:
        """Say what keeps the kind from being watched; None while it is watched, or not served by the API server yet."""
        for watcher in self._watchers:
            if watcher.state not in {WatchState.LIVE, WatchState.WAITING_FOR_KIND}:
                return f"{watcher.state}: {watcher.last_error or 'no response yet'}"
        return None

    def age(self) -> float | None:
        """Seconds since the API server was last heard of by the watch that waits longest; None before it was at all."""
        now = asyncio.get_running_loop().time()
        heard = [watcher.last_contact for watcher in self._watchers]
        return max(now - at for at in heard if at is not None) if None not in heard else None

    def silence(self) -> str | None:
        """Say that a watch that is held to be live has been silent for longer than any may be."""
        now = asyncio.get_running_loop().time()
        for watcher in self._watchers:
            if watcher.state is WatchState.LIVE and watcher.last_contact is not None:
                silent = now - watcher.last_contact
                if silent > _SILENCE:
                    return f"no data from the API server for {silent:.0f} s"
        return None

    async def follow(self, changed: Callable[[Change], None]) -> None:
        """Follow for ever, telling `changed`."""

        def counted(change: Change) -> None:
            self.revision += 1
            changed(change)

        async with asyncio.TaskGroup() as group:
            for watcher in self._watchers:
                group.create_task(self._follow(watcher, counted))
            if self._departed is not None:
                group.create_task(self._departed.follow(counted))

    async def _follow(self, watcher: Watcher, changed: Callable[[Change], None]) -> None:
        async for event in watcher.events():
            for change in self._cache.apply(watcher.namespace, event):
                changed(change)
                self._note_departure(change)
            if isinstance(event, Synced) and self._departed is not None:
                # What our finalizer stands on and the list did not hold left before we were there.
                self._departed.look_for(watcher.namespace, self._cache)
            if all(self._cache.is_synced(watcher.namespace) for watcher in self._watchers):
                self.synced.set()

    def _note_departure(self, change: Change) -> None:
        if self._departed is None:
            return
        if change.new is not None:
            self._departed.returned(change.key)
        elif change.old is not None and self._finalizer in change.old.finalizers:
            self._departed.left(change.key)
