"""Records of created objects of one watch's resources, in memory and in the storage.

A failure of the storage stops no run: creations that cannot be recorded are counted, logged, and reported in the
condition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runner import log
from runner.controller.attempt import WatchScope
from runner.errors import ApiError, ApiUnavailableError, ConflictError, KindNotFoundError, NotFoundError
from runner.kube.client import Client
from runner.kube.discovery import Discovery
from runner.objects import ObjectKey, ObjectRef, uid_of
from runner.prune.record import MOST_OBJECTS, CreationRecord
from runner.prune.store import RecordStore, StoreError
from runner.replicas.lease_guard import LeaseGuard


@dataclass(slots=True)
class RecordState:
    """Record of one object, as it is in memory and in the storage."""

    uid: str
    record: CreationRecord
    stored: str | None
    unused: int = 0
    """Number of unused objects that the last run reported."""


class PruneRecords:
    """Loads, writes and removes the records of one watch."""

    def __init__(self, scope: WatchScope, client: Client, discovery: Discovery, store: RecordStore) -> None:
        self._scope = scope
        self._client = client
        self._discovery = discovery
        self._store = store
        self._states: dict[ObjectKey, RecordState] = {}
        self._former: dict[ObjectKey, str] = {}
        """UIDs of objects whose records were dropped from memory."""
        self._problems: dict[ObjectKey, str] = {}
        """Why creations of an object's runs are not recorded."""
        self._logged = log.Once()
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))
        scope.registry.subscribe(self._forget)

    def find(self, key: ObjectKey) -> RecordState | None:
        """Return the record of an object, if it is in memory."""
        return self._states.get(key)

    def problem(self, key: ObjectKey) -> str:
        """Return why not all creations of an object's runs are recorded; empty if they are."""
        return self._problems.get(key, "")

    def count_unused(self) -> int:
        """Count the unused objects that the last runs reported."""
        return sum(state.unused for state in self._states.values())

    async def load(self, key: ObjectKey, uid: str) -> RecordState | None:
        """Return the record of an object; None if the storage refuses. Raises ApiError and ApiUnavailableError."""
        state = self._states.get(key)
        if state is not None and state.uid == uid:
            return state
        if self._former.get(key, uid) != uid or state is not None:
            await self.gone(key)
        self._former.pop(key, None)
        try:
            text = await self._store.load(uid)
        except StoreError as error:
            self._note_problem(key, str(error))
            return None
        self._problems.pop(key, None)
        record = CreationRecord()
        if text:
            try:
                record = CreationRecord.parse(text)
            except ValueError as error:
                self._log.warning(
                    "The record of created objects is invalid: the objects in it are not pruned",
                    error=str(error),
                    **key._asdict(),
                )
        state = self._states[key] = RecordState(uid, record, text)
        return state

    async def store_intent(self, state: RecordState, owner: ObjectRef, guard: LeaseGuard) -> None:
        """Write a record with a further intent."""
        if guard.is_valid() and not await self.save(state, owner, guard):
            self._scope.metrics.unrecorded.labels(str(self._scope.watch.gvk), "storage").inc()

    async def save(self, state: RecordState, owner: ObjectRef, guard: LeaseGuard) -> bool:
        """Write the record if it has changed; return False, and log, if this is not possible."""
        text = state.record.spell()
        if text == state.stored or (state.stored is None and not state.record.objects):
            return True
        try:
            try:
                await self._store.save(owner, text)
            except ConflictError:
                guard.check()
                await self._store.load(owner.uid)
                await self._store.save(owner, text)
        except (StoreError, ApiError, ApiUnavailableError) as error:
            self._note_problem(owner.key, str(error))
            return False
        state.stored = text
        self._problems.pop(owner.key, None)
        return True

    def note_full(self, key: ObjectKey) -> None:
        """Count and log a creation that the record cannot hold."""
        self._scope.metrics.unrecorded.labels(str(self._scope.watch.gvk), "full").inc()
        self._note_problem(key, f"the record is full ({MOST_OBJECTS} objects)")

    async def gone(self, key: ObjectKey) -> None:
        """Remove the record of an object that no longer exists."""
        self._forget(key)
        uid = self._former.pop(key, "")
        if uid:
            await self._remove_if_gone(ObjectRef(self._scope.watch.gvk, key, uid))

    async def sweep(self) -> None:
        """Remove the records of objects that no longer exist. The informer is synced."""
        informer, gvk = self._scope.informer, self._scope.watch.gvk
        try:
            for owner in await self._store.owners():
                watched = not informer.namespaces or owner.key.namespace in {"", *informer.namespaces}
                cached = informer.get(owner.key)
                if (owner.gvk.group, owner.gvk.kind) != (gvk.group, gvk.kind) or not watched:
                    continue
                if cached is None or uid_of(cached) != owner.uid:
                    await self._remove_if_gone(replace(owner, gvk=gvk))
        except (StoreError, ApiError, ApiUnavailableError) as error:
            self._log.warning("Cannot remove the records of objects that no longer exist", error=str(error))

    async def _remove_if_gone(self, owner: ObjectRef) -> None:
        try:
            resource = await self._discovery.find(owner.gvk)
            if uid_of(await self._client.get(resource, owner.key)) == owner.uid:
                return
        except NotFoundError:
            pass
        except (ApiError, ApiUnavailableError, KindNotFoundError) as error:
            self._log.info("Cannot check whether a record is still needed", error=str(error), **owner.key._asdict())
            return
        try:
            await self._store.remove(owner.uid)
        except (StoreError, ApiError, ApiUnavailableError) as error:
            self._log.info("Cannot remove the record of a deleted object", error=str(error), **owner.key._asdict())

    def _note_problem(self, key: ObjectKey, problem: str) -> None:
        self._problems[key] = problem
        if self._logged.is_new((key, problem)):
            self._log.warning(
                "Cannot record the objects that runs create: unrecorded objects are not pruned",
                problem=problem,
                **key._asdict(),
            )

    def _forget(self, key: ObjectKey) -> None:
        state = self._states.pop(key, None)
        if state is not None:
            self._former[key] = state.uid
        self._problems.pop(key, None)
