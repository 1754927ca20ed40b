"""Referenced objects that are found by their labels: all that have them, and what is known of each.

The API server selects; what it sends is read whole, so that no further right is needed. Must not import: proxy,
reconcile, controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from runner.kube.client import Client, Selection
from runner.kube.discovery import Discovery
from runner.kube.watch import watchers
from runner.kube.watch_stream import WatchPolicy
from runner.objects import GVK, Object, ObjectKey, ObjectRef
from runner.references.state import ReferencedState, difference
from runner.references.watch import ReferenceWatch


class LabelSelection(NamedTuple):
    """Which objects."""

    gvk: GVK
    labels: str
    """Label selector in the API's own spelling."""
    namespace: str
    """Where they are; empty: wherever the operator watches."""


OnSelectedChange = Callable[[LabelSelection, ObjectRef, str, ReferencedState], None]
"""Told of each change of a selected object: what happened, and how it is now, or how it was last if it is gone."""


class LabelledReferences:
    """All objects of one selection."""

    def __init__(
        self,
        client: Client,
        discovery: Discovery,
        namespaces: Sequence[str],
        selected: LabelSelection,
        heard: OnSelectedChange,
        synced: Callable[[LabelledReferences], None],
    ) -> None:
        """`synced` is called each time that a namespace is known for the first time."""
        self.selected = selected
        self._heard = heard
        self._states: dict[ObjectKey, ReferencedState] = {}
        scopes = [selected.namespace] if selected.namespace else namespaces
        found = watchers(client, discovery, selected.gvk, scopes, Selection(labels=selected.labels), WatchPolicy())
        self._watches = tuple(
            ReferenceWatch(watcher, partial(self._held, number), partial(self._saw, number), partial(synced, self))
            for number, watcher in enumerate(found)
        )

    async def follow(self) -> None:
        """Follow for ever."""
        async with asyncio.TaskGroup() as group:
            for watch in self._watches:
                group.create_task(watch.follow())

    def is_seen(self, namespace: str) -> bool:
        """Whether what there is for objects of a namespace has ever been seen."""
        return all(watch.is_synced for watch in self._for(namespace))

    def is_known(self, namespace: str) -> bool:
        """Whether it is known; of a kind that is not served there is nothing."""
        return all(watch.is_synced or watch.is_absent for watch in self._for(namespace))

    def trouble(self, namespace: str) -> str:
        """What keeps it from being known; empty while nothing does."""
        return next((watch.trouble for watch in self._for(namespace) if watch.trouble), "")

    def states(self, namespace: str) -> Iterator[tuple[ObjectRef, ReferencedState]]:
        """What there is for objects of a namespace."""
        for key, seen in self._states.items():
            if self.concerns(key, namespace):
                yield ObjectRef(self.selected.gvk, key), seen

    def concerns(self, key: ObjectKey, namespace: str) -> bool:
        """Whether a selected object is of interest to the objects of a namespace (empty: those without one)."""
        return bool(self.selected.namespace) or key.namespace == namespace or not (key.namespace and namespace)

    def _for(self, namespace: str) -> list[ReferenceWatch]:
        """The watches that see what is of interest to objects of a namespace."""
        if not namespace or self.selected.namespace:
            return list(self._watches)
        # The first one sees a kind without namespaces as a whole.
        return [watch for n, watch in enumerate(self._watches) if n == 0 or watch.namespace == namespace]

    def _held(self, number: int) -> list[ObjectKey]:
        scope = self._watches[number].namespace
        return [key for key in self._states if key.namespace == scope or not scope or not (key.namespace or number)]

    def _saw(self, number: int, key: ObjectKey, obj: Object | None) -> None:
        old = self._states.get(key)
        new = None if obj is None else ReferencedState.of(obj, whole=True, generation_tells=False)
        if new is None:
            self._states.pop(key, None)
        else:
            self._states[key] = new
        what = difference(old, new)
        last = new or old
        if what and last is not None and self._watches[number].is_synced:
            self._heard(self.selected, ObjectRef(self.selected.gvk, key), what, last)
