"""Referenced objects that are selected by labels.

The API server selects them. They are read whole, so that no further permission is needed. Must not import: proxy,
reconcile, controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import Discovery
from runner.core.kube.watch import ObjectWatch, watchers
from runner.core.kube.watch_health import WatchHealth, WatchState, covering
from runner.features.references.state import ReferenceChange, ReferencedState
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef


class LabelSelection(NamedTuple):
    """Selected objects of a kind."""

    gvk: GVK
    labels: str
    """Label selector as in the API."""
    namespace: str
    """Their namespace; empty for all namespaces of the operator."""


OnSelectedChange = Callable[[LabelSelection, ObjectRef, ReferenceChange], None]
"""Receives each change of a selected object."""


class LabelledReferences:
    """All objects of one selection."""

    def __init__(
        self,
        client: Client,
        discovery: Discovery,
        namespaces: Sequence[str],
        selected: LabelSelection,
        on_change: OnSelectedChange,
        synced: Callable[[LabelledReferences], None],
    ) -> None:
        """`synced` is called when a namespace was listed for the first time."""
        self.selected = selected
        self._on_change = on_change
        self._states: dict[ObjectKey, ReferencedState] = {}
        scopes = [selected.namespace] if selected.namespace else namespaces
        selection = Selection(labels=selected.labels)
        of_scopes = watchers(client, discovery, selected.gvk, scopes, selection)
        self._watches = tuple(
            ObjectWatch(watcher, partial(self._held, number), partial(self._saw, number), partial(synced, self))
            for number, watcher in enumerate(of_scopes)
        )

    async def follow(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in self._watches:
                group.create_task(watch.follow())

    def is_seen(self, namespace: str) -> bool:
        """Return True if the objects for a namespace were ever listed."""
        return all(health.is_listed for health in self._for(namespace))

    def is_known(self, namespace: str) -> bool:
        """Return True if they were listed or the API server does not serve the kind."""
        absent = WatchState.WAITING_FOR_KIND
        return all(health.is_listed or health.state is absent for health in self._for(namespace))

    def trouble(self, namespace: str) -> str:
        """Return the error of the watch; empty if there is none."""
        errors = (health.last_error for health in self._for(namespace))
        return next(filter(None, errors), "")

    def states(self, namespace: str) -> Iterator[tuple[ObjectRef, ReferencedState]]:
        """Yield the selected objects for the objects of a namespace."""
        for key, seen in self._states.items():
            if self.concerns(key, namespace):
                yield ObjectRef(self.selected.gvk, key), seen

    def concerns(self, key: ObjectKey, namespace: str) -> bool:
        """Return True if a selected object is relevant for a namespace (empty: for cluster-scoped objects)."""
        return bool(self.selected.namespace) or key.namespace == namespace or not (key.namespace and namespace)

    def _for(self, namespace: str) -> list[WatchHealth]:
        """Return the watches that cover the objects of a namespace."""
        return covering([watch.health for watch in self._watches], "" if self.selected.namespace else namespace)

    def _held(self, number: int) -> list[ObjectKey]:
        scope = self._watches[number].health.namespace
        return [key for key in self._states if key.namespace == scope or not scope or not (key.namespace or number)]

    def _saw(self, number: int, key: ObjectKey, obj: Object | None) -> None:
        old = self._states.get(key)
        new = None
        if obj is None:
            self._states.pop(key, None)
        else:
            new = ReferencedState.of(obj, self.selected.gvk, whole=True, uses_generation=False).following(old)
            self._states[key] = new
        change = ReferenceChange.of(old, new)
        if change is not None and self._watches[number].is_synced:
            self._on_change(self.selected, ObjectRef(self.selected.gvk, key), change)
