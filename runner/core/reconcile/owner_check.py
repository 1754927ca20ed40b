"""Checks if the API server still has an object under the UID that the cache shows.

The cache can lag: an object may have been deleted, and created again under its name. A run for the old UID creates
objects that the garbage collector deletes, and each deletion triggers the next run. One read ends this. It does not use
the API server's cache.
"""

from __future__ import annotations

from runner.base import log
from runner.core.kube.discovery import ApiResource
from runner.core.kube.meaning import Follow, Request, follow
from runner.core.proxy.handlers.writes import ObjectReader
from runner.core.reconcile.attempt import Attempt, WatchScope
from runner.core.reconcile.decisions import Done, Retry
from runner.core.reconcile.hooks import REQUEST_BACKOFF, Hooks, Skip
from runner.values.errors import ApiError, ApiUnavailableError, NotFoundError
from runner.values.objects import ObjectKey, ObjectRef, uid_of
from runner.values.ownership import OwnerState


class OwnerCheck(Hooks):
    """States of the objects of one watch."""

    def __init__(self, scope: WatchScope, reader: ObjectReader) -> None:
        self._reader = reader
        self._cached = scope.informer
        self._period = scope.bounds.period
        self._missing: dict[ObjectKey, tuple[str, OwnerState]] = {}
        """UIDs that a read did not find, and what it found."""
        self._found: dict[ObjectKey, tuple[str, int]] = {}
        """UIDs that a read found, although the cache did not have them, with the cache's revision."""
        self._logged = log.Once()
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))
        scope.registry.subscribe(self._forget)

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Skip the run of an object that was deleted. The event that the watch delivers later starts what follows.

        If a read did not find the object, it is read again until this event: the object may exist nevertheless.
        """
        state = OwnerState.EXISTS if attempt.resumed is not None else await self.before_run(attempt)
        if state is OwnerState.EXISTS:
            return attempt
        self._log.info(
            "Run skipped: the object was deleted, and the watch has not delivered the event yet",
            reason=attempt.request.reason.value,
            uid=uid_of(attempt.obj),
            state=state.value,
            **attempt.key._asdict(),
        )
        if state is OwnerState.GONE:
            return Skip(Retry(REQUEST_BACKOFF, ran=False))
        return Skip(Done(self._period or None))

    async def before_run(self, attempt: Attempt) -> OwnerState:
        """Return the state of the attempt's object. Read it if no event shows that it exists, or if a finalizer runs.

        A missing UID is read each time: an API server may fail to find an object for a moment.
        """
        key, uid = attempt.key, uid_of(attempt.obj)
        was_missing = key in self._missing and self._missing[key][0] == uid
        if was_missing or attempt.executes.finalizing or not attempt.request.reason.shows_object:
            return await self._read(attempt.resource, key, uid)
        return OwnerState.EXISTS

    async def during_run(self, resource: ApiResource, owner: ObjectRef) -> OwnerState:
        """Return the state of a run's object. Read it only if the cache does not have it under this UID."""
        key, uid = owner.key, owner.uid
        cached = self._cached_uid(key)
        if cached == uid or self._found.get(key) == (uid, self._cached.revision):
            return OwnerState.EXISTS
        if self._missing.get(key) == (uid, OwnerState.REPLACED):
            return OwnerState.REPLACED
        try:
            return await self._read(resource, key, uid)
        except (ApiError, ApiUnavailableError) as error:
            self._log.info("Cannot check whether the object of a run still exists", error=str(error), **key._asdict())
            return OwnerState.EXISTS

    async def _read(self, resource: ApiResource, key: ObjectKey, uid: str) -> OwnerState:
        revision = self._cached.revision
        try:
            state = OwnerState.EXISTS if uid_of(await self._reader.get(resource, key)) == uid else OwnerState.REPLACED
        except NotFoundError:
            state = OwnerState.GONE
        except ApiError as error:
            if follow(Request.OWNER, error) is not Follow.PROCEED:
                raise
            if self._logged.is_new(key.namespace):
                self._log.warning(
                    "Cannot check whether objects still exist: runs for deleted ones are not prevented",
                    error=str(error),
                    needs=f"verb get on {resource.qualified}",
                )
            return OwnerState.EXISTS
        if state is OwnerState.EXISTS:
            self._missing.pop(key, None)
            self._found[key] = uid, revision
        else:
            self._found.pop(key, None)
            self._missing[key] = uid, state
        return state

    def _cached_uid(self, key: ObjectKey) -> str:
        summary = self._cached.summary(key)
        if summary is not None:
            return summary.uid
        deselected = self._cached.get(key)
        return uid_of(deselected) if deselected is not None else ""

    def _forget(self, key: ObjectKey) -> None:
        self._missing.pop(key, None)
        self._found.pop(key, None)
