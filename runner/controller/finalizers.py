"""Removal of our finalizer after the finalizer's run. `decisions` builds the patches.

A finalizer that has run is not run again: if the removal fails, only the removal is repeated. After a restart, a
refused removal is known from the condition `RequestRefused`, unless the watch has `manageStatus: false`.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/
"""

from __future__ import annotations

from runner.controller import decisions
from runner.controller.attempt import Attempt, WatchScope
from runner.controller.decisions import Done, Result
from runner.controller.features import Addition, Feature, FinishedRun, Skip
from runner.controller.refusals import Refusals
from runner.errors import ApiError, ApiUnavailableError, ConflictError, NotFoundError
from runner.kube.client import Client, PatchType
from runner.kube.meaning import Request
from runner.objects import ObjectKey, uid_of
from runner.status import report

_MOST_CONFLICTS = 5
"""Conflicts in a row until the removal is retried with backoff."""


class FinalizerRemoval(Feature):
    """Removes the finalizer of one watch, and remembers from which objects: the cache may still show it there."""

    def __init__(self, scope: WatchScope, client: Client, refusals: Refusals) -> None:
        self._scope = scope
        self._client = client
        self._refusals = refusals
        self._name = scope.watch.finalizer.name if scope.watch.finalizer else ""
        self._released: dict[ObjectKey, str] = {}
        """Uids of objects whose finalizer has run."""
        self._removed: dict[ObjectKey, str] = {}
        """Uids of objects from which the finalizer was removed."""
        scope.registry.subscribe(self._forget)

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Skip the run if the finalizer has run, and remove it if that failed before."""
        key, uid = attempt.key, uid_of(attempt.obj)
        has_run = self._released.get(key) == uid or report.finalizer_has_run(attempt.obj)
        if not attempt.plan.finalizing or not has_run:
            return attempt
        return Skip(Done(None) if self._removed.get(key) == uid else await self._release(attempt))

    async def after(self, attempt: Attempt, run: FinishedRun) -> Addition:
        """Remove the finalizer if the run succeeded, or reached its limit."""
        if not run.decision.release:
            return Addition()
        self._released[attempt.key] = uid_of(attempt.obj)
        return Addition(result=await self._release(attempt))

    def _forget(self, key: ObjectKey) -> None:
        self._released.pop(key, None)
        self._removed.pop(key, None)

    async def _release(self, attempt: Attempt) -> Result:
        try:
            await self._remove(attempt)
        except (ApiError, ApiUnavailableError) as error:
            return await self._refusals.failed(attempt, Request.FINALIZER_REMOVED, error)
        self._removed[attempt.key] = uid_of(attempt.obj)
        return Done(None)

    async def _remove(self, attempt: Attempt) -> None:
        """Remove the finalizer from the object as it is: other controllers write finalizers too."""
        obj, failure = self._scope.latest(attempt), None
        for _ in range(_MOST_CONFLICTS):
            attempt.guard.check()
            patch = decisions.finalizer_removed(self._name, obj)
            if patch is None or uid_of(obj) != uid_of(attempt.obj):
                return
            try:
                await self._client.patch(attempt.resource, attempt.key, patch, content_type=PatchType.JSON)
            except (ConflictError, NotFoundError) as error:
                failure = error
            else:
                return
            try:
                obj = await self._client.get(attempt.resource, attempt.key)
            except NotFoundError:
                return
        if failure is not None:
            raise failure
