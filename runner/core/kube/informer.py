"""Informer of one kind: keeps the selected objects current and reports changes.

Owns: the kind's watchers, their cache, and the objects that left the selection with the operator's finalizer
(`deselected`).

Guarantees: `changed` is called for every change in order; for deselected objects only while they are being deleted. The
caller owns the result of `get`. Only the watch, or a complete list, removes an object. If it is missing, ask `presence`
(`watch_health`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial

from runner.core.kube.cache import Cache, Change, Summary
from runner.core.kube.client import Client, Selection
from runner.core.kube.deselected import DeselectedObjects
from runner.core.kube.discovery import Discovery
from runner.core.kube.watch import watchers
from runner.core.kube.watch_events import WatchEvent
from runner.core.kube.watch_health import ABSENT, PRESENT, Presence, Unknown, WatchState, covering, problem_of
from runner.core.watches import selectors
from runner.values.objects import GVK, Object, ObjectKey, uid_of

_SILENCE = 900.0
"""Seconds. A watch ends and is opened again after half of it at the latest, even if the network fails silently."""


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
        kept: Callable[[Object], Object] = lambda obj: obj,
    ) -> None:
        """`finalizer` is the name of the watch's finalizer; empty if it has none. `kept` returns what is cached."""
        self._watchers = watchers(client, discovery, gvk, namespaces, selection)
        self.namespaces = tuple(namespaces)
        """Watched namespaces; empty for all."""
        self._cache = Cache(kept)
        self._left = Cache()
        """Deselected objects that are being deleted."""
        self._deselected: DeselectedObjects | None = None
        self.revision = 0
        """Number of changes so far."""
        self._moved = asyncio.Event()
        """Set, and cleared at once, when objects become known."""
        self._healths = tuple(watcher.health for watcher in self._watchers)
        for health in self._healths:
            health.known_again = self._known_again
        if finalizer and (selection.labels or selectors.can_be_left(selection.fields)):
            within = selectors.lasting(selection.fields)
            self._deselected = DeselectedObjects(client, discovery, gvk, namespaces, finalizer, within, self._cache)
            self._left = self._deselected.objects

    def __len__(self) -> int:
        """Count the selected objects."""
        return len(self._cache)

    def created(self) -> list[tuple[ObjectKey, float]]:
        """Return the selected objects with their creation times, in seconds since the epoch."""
        return self._cache.created()

    def all_keys(self) -> list[ObjectKey]:
        """Return the keys of the selected objects and of the deselected ones that are being deleted."""
        return [*self._cache.keys(), *self._left.keys()]

    def __contains__(self, key: ObjectKey) -> bool:
        """Return True if the object exists and is selected."""
        return key in self._cache

    def get(self, key: ObjectKey) -> Object | None:
        """Return an object as last seen; None if it does not exist."""
        return self._cache.get(key) or self._left.get(key)

    def summary(self, key: ObjectKey) -> Summary | None:
        """Return the summary of a selected object without parsing it."""
        return self._cache.summary(key)

    def excess(self, key: ObjectKey) -> str:
        """Return why a run cannot receive an object; empty if it can."""
        summary = self._cache.summary(key) or self._left.summary(key)
        return summary.excess if summary is not None else ""

    def problem(self) -> str | None:
        """Return the reason why the kind is not watched; None if it is watched or not served yet."""
        return problem_of(self._healths)

    def waits(self) -> bool:
        """Return True while the API server does not serve the kind."""
        return any(health.state is WatchState.WAITING_FOR_KIND for health in self._healths)

    def refusals(self) -> dict[str, str]:
        """Return the errors of the namespaces that the API server refuses."""
        return {health.namespace: health.last_error or "" for health in self._healths if health.is_refused}

    def age(self) -> float | None:
        """Return the seconds since the least recent contact of a watch; None before the first contact."""
        now = asyncio.get_running_loop().time()
        contacts = [health.last_contact for health in self._healths]
        return max(now - at for at in contacts if at is not None) if None not in contacts else None

    def unknown(self, namespace: str = "") -> Unknown | None:
        """Return why it is unknown which objects exist in a namespace (empty: in any); None if it is known."""
        of_namespace = covering(self._healths, namespace)
        if not of_namespace:
            return Unknown(self._watchers[0].gvk, namespace, "the operator does not watch it", 0.0)
        return next((health.unknown for health in of_namespace if health.unknown is not None), None)

    def presence(self, key: ObjectKey, uid: str = "") -> Presence:
        """Return whether a watched object exists. With `uid`: whether it has this UID."""
        obj = self.get(key)
        if obj is not None and uid in {"", uid_of(obj)}:
            return PRESENT
        return self.unknown(key.namespace) or ABSENT

    async def known_namespaces(self) -> AsyncGenerator[str]:
        """Yield each watched namespace (`""`: all) once, as soon as it is known which objects exist in it."""
        left = list(self.namespaces or ("",))
        while left:
            known = [namespace for namespace in left if self.unknown(namespace) is None]
            for namespace in known:
                left.remove(namespace)
                yield namespace
            if not known:
                await self._moved.wait()

    async def renewals(self) -> AsyncGenerator[None]:
        """Yield each time that it becomes known which objects exist in all namespaces."""
        while True:
            if self.unknown() is None:
                yield
            await self._moved.wait()

    def _known_again(self) -> None:
        self._moved.set()
        self._moved.clear()

    def silence(self) -> str | None:
        """Report a live watch without contact for longer than any watch may last."""
        now = asyncio.get_running_loop().time()
        for health in self._healths:
            if health.state is WatchState.LIVE and health.last_contact is not None:
                silent = now - health.last_contact
                if silent > _SILENCE:
                    return f"no data from the API server for {silent:.0f} s"
        return None

    async def follow(self, changed: Callable[[Change], None]) -> None:
        """Watch until cancelled; call `changed` for each change."""

        def counted(change: Change) -> None:
            self.revision += 1
            changed(change)

        try:
            async with asyncio.TaskGroup() as group:
                for watcher in self._watchers:
                    group.create_task(watcher.follow(partial(self._apply, watcher.namespace, counted)))
                if self._deselected is not None:
                    group.create_task(self._deselected.follow(counted))
        except Exception as error:  # a defect, after which the caller begins again
            for health in self._healths:
                health.interrupted(error)
            raise

    def _apply(self, scope: str, changed: Callable[[Change], None], event: WatchEvent) -> None:
        for change in self._cache.apply(scope, event):
            changed(change)
            if self._deselected is not None:
                (self._deselected.look if change.new is None else self._deselected.forget)(change.key)
