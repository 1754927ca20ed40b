"""Our finalizer on an object: the patches that add and remove it, and its removal after the finalizer's run.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/
"""

from __future__ import annotations

import asyncio
import itertools

from runner import log
from runner.controller import decisions
from runner.controller.attempt import Attempt, WatchScope
from runner.controller.decisions import Done
from runner.controller.features import Addition, Feature, FinishedRun, Skip
from runner.errors import PASSING, ConflictError, InvalidError
from runner.kube.client import Client, PatchType
from runner.kube.discovery import ApiResource
from runner.objects import Object, ObjectKey, key_of, uid_of
from runner.replicas.lease_guard import LeaseGuard
from runner.watches.policy import Backoff

CONFLICT_BACKOFF = Backoff(0.005, cap=1.0)
"""Before the next attempt of a write that conflicted with another writer's."""

_log = log.get(__name__)


class FinalizerRemoval(Feature):
    """Removes the finalizer of one watch, and remembers from which objects: the cache may still show it there."""

    def __init__(self, scope: WatchScope, client: Client) -> None:
        self._scope = scope
        self._client = client
        self._name = scope.watch.finalizer.name if scope.watch.finalizer else ""
        self._removed: dict[ObjectKey, str] = {}
        """Uids."""
        scope.registry.subscribe(self._forget)

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Skip the run if the finalizer has run."""
        return Skip(Done(None)) if attempt.plan.finalizing and self._is_done(attempt.obj) else attempt

    async def after(self, attempt: Attempt, run: FinishedRun) -> Addition:
        """Remove the finalizer if the run succeeded, or reached its limit."""
        if run.decision.release:
            await self._remove(attempt.resource, self._scope.latest(attempt), attempt.guard)
        return Addition()

    def _is_done(self, obj: Object) -> bool:
        """Return whether this operator has removed the finalizer from this very object."""
        return self._removed.get(key_of(obj)) == uid_of(obj)

    def _forget(self, key: ObjectKey) -> None:
        """Drop the state of an object."""
        self._removed.pop(key, None)

    async def _remove(self, resource: ApiResource, obj: Object, guard: LeaseGuard) -> None:
        """Remove the finalizer. Retries conflicts and outages: a finalizer that has run is not run again."""
        key, uid = key_of(obj), uid_of(obj)
        current: Object | None = obj
        for attempts in itertools.count():
            guard.check()
            try:
                current = current or await self._client.get(resource, key)
                patch = decisions.finalizer_removed(self._name, current)
                if patch is not None and uid_of(current) == uid:
                    await self._client.patch(resource, key, patch, content_type=PatchType.JSON)
            except (ConflictError, InvalidError):
                current = None  # another writer changed the object first
            except PASSING as error:
                _log.warning(
                    "Cannot remove the finalizer; retrying",
                    error=str(error),
                    gvk=str(resource.gvk),
                    **key._asdict(),
                )
            else:
                self._removed[key] = uid
                return
            await asyncio.sleep(CONFLICT_BACKOFF.after(attempts))
