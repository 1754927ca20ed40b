"""Records of created objects of one watch's resources, and the deletion of unused ones.

A failure of the storage stops no run: creations that cannot be recorded are counted, logged, and reported in the
condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from runner.base import log
from runner.core.kube import rights, service_accounts
from runner.core.kube.client import Client
from runner.core.kube.discovery import Discovery
from runner.core.kube.state import ClusterState, FileState, StateError, StateStore, Stored, until_available
from runner.core.kube.watch_health import ABSENT
from runner.core.reconcile.attempt import WatchScope
from runner.core.reconcile.run_access import AccessObserver
from runner.features.prune import record as records
from runner.features.prune.fields import PRUNE_POLICY
from runner.features.prune.record import MOST_OBJECTS, Basis, CreatedObject, CreationRecord
from runner.features.prune.sharing import IsUsed, OperatorUses, OtherUsers
from runner.features.prune.status import PruneReport
from runner.values.errors import (
    ApiError,
    ApiUnavailableError,
    ConflictError,
    ForbiddenError,
    KindNotFoundError,
    NotFoundError,
)
from runner.values.lease_guard import LeaseGuard
from runner.values.objects import (
    GVK,
    Object,
    ObjectKey,
    ObjectRef,
    Owner,
    is_deleting,
    key_of,
    uid_of,
    version_of,
)

_PREFIX = "ansible-operator-created-"
_FOLDER = "created-objects"
_LABELS = {"app.kubernetes.io/managed-by": "ansible-operator", "app.kubernetes.io/component": "created-objects"}
_VERBS = ("create", "get", "list", "update", "delete")


def storage(client: Client, namespace: str | None, folder: Path) -> StateStore:
    """Return the storage of an operator. `namespace` is that of its pod, None outside a cluster."""
    if not namespace:
        return FileState(folder / _FOLDER)
    return ClusterState(client, namespace, "which objects the runs create", _VERBS, _PREFIX, _LABELS)


class RecordStore:
    """Storage of records by the UID of their resource. Tenants cannot write it.

    Each resource has an entry of its own, so that a write is small. A replica that lost its Lease cannot overwrite the
    record of the next one.

    Raises:
        StateError: the storage refuses.
        ConflictError: another process has written the record; `load` it first, then.
        ApiError, ApiUnavailableError: temporary errors of the API server.
    """

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._known: dict[str, Stored | None] = {}
        """Each record as this process has read or written it last, without its data."""

    async def load(self, uid: str) -> str | None:
        """Return a record; None if there is none."""
        stored = await self._state.read(uid)
        self._known[uid] = stored and replace(stored, data={})
        return stored.data.get("record", "") if stored is not None else None

    async def save(self, owner: ObjectRef, text: str) -> None:
        """Write a record."""
        gvk = owner.gvk
        data = {"owner": f"{gvk.kind}.{gvk.version}.{gvk.group} {owner.key}", "record": text}
        written = await self._state.write(owner.uid, data, self._known.get(owner.uid))
        self._known[owner.uid] = replace(written, data={})

    async def remove(self, uid: str) -> None:
        """Delete a record."""
        self._known.pop(uid, None)
        await self._state.delete(uid)

    async def owners(self) -> Iterable[ObjectRef]:
        """Return the resources of all records."""
        owners = [_owner(stored.data.get("owner", ""), stored.name) for stored in await self._state.all()]
        return [owner for owner in owners if owner is not None]


def _owner(text: str, uid: str) -> ObjectRef | None:
    """Return the resource of a record; None if the text is invalid."""
    kind, _, key = text.partition(" ")
    gvk, (namespace, _, name) = GVK.named(kind), key.rpartition("/")
    return ObjectRef(gvk, ObjectKey(namespace, name), uid) if name and gvk.version else None


@dataclass(slots=True)
class RecordState:
    """Record of one object, as it is in memory and in the storage."""

    uid: str
    record: CreationRecord
    stored: str | None
    unused: int = 0
    """Number of unused objects that the last run reported."""
    has_run: bool = False
    """Whether a run was complete since the start."""
    is_valid: bool = True
    """Whether the stored record could be read."""


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
        self._unrecorded = scope.metrics.counter(
            "ansible_operator_unrecorded_creations",
            "Created objects that prune does not know, because the record is full or cannot be stored",
            ["GVK", "reason"],
        )
        if scope.watch.more.get(PRUNE_POLICY).then != "off":
            for reason in ("full", "storage"):
                self._unrecorded.labels(str(scope.watch.gvk), reason)
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
        except StateError as error:
            self._note_problem(key, str(error))
            return None
        self._problems.pop(key, None)
        record, is_valid = CreationRecord(), True
        if text:
            try:
                record = CreationRecord.parse(text)
            except ValueError as error:
                is_valid = False
                self._log.warning(
                    "The record of created objects is invalid: the objects in it are not pruned",
                    error=str(error),
                    **key._asdict(),
                )
        state = self._states[key] = RecordState(uid, record, text, is_valid=is_valid)
        return state

    async def store_intent(self, state: RecordState, owner: ObjectRef, guard: LeaseGuard) -> None:
        """Write a record with a further intent."""
        if guard.is_valid() and not await self.save(state, owner, guard):
            self._unrecorded.labels(str(self._scope.watch.gvk), "storage").inc()

    async def save(self, state: RecordState, owner: ObjectRef, guard: LeaseGuard) -> bool:
        """Write the record if it has changed; return False, and log, if this is not possible."""
        text = state.record.spell()
        if text == state.stored or (state.stored is None and not state.record.objects and not state.record.uses):
            return True
        try:
            try:
                await self._store.save(owner, text)
            except ConflictError:
                guard.check()
                await self._store.load(owner.uid)
                await self._store.save(owner, text)
        except (ApiError, ApiUnavailableError) as error:
            self._note_problem(owner.key, str(error))
            return False
        state.stored = text
        self._problems.pop(owner.key, None)
        return True

    def note_full(self, key: ObjectKey) -> None:
        """Count and log a creation that the record cannot hold."""
        self._unrecorded.labels(str(self._scope.watch.gvk), "full").inc()
        self._note_problem(key, f"the record is full ({MOST_OBJECTS} objects)")

    async def gone(self, key: ObjectKey) -> None:
        """Remove the record of an object that no longer exists."""
        self._forget(key)
        uid = self._former.pop(key, "")
        if uid:
            await self._remove_if_gone(ObjectRef(self._scope.watch.gvk, key, uid))

    async def sweep(self) -> None:
        """Remove the records of objects that no longer exist, as soon as the objects of a namespace are known."""
        informer, gvk = self._scope.informer, self._scope.watch.gvk
        try:
            async for _ in informer.known_namespaces():
                for owner in await until_available(self._store.owners):
                    is_ours = (owner.gvk.group, owner.gvk.kind) == (gvk.group, gvk.kind)
                    if is_ours and informer.presence(owner.key, owner.uid) is ABSENT:
                        await self._remove_if_gone(replace(owner, gvk=gvk))
        except ApiError as error:
            self._log.warning("Cannot remove the records of objects that no longer exist", error=str(error))

    async def _remove_if_gone(self, owner: ObjectRef) -> None:
        try:
            resource = await self._discovery.find(owner.gvk)
            if uid_of(await self._client.get(resource, owner.key)) == owner.uid:
                return
        except NotFoundError:
            pass
        except (ApiError, ApiUnavailableError) as error:
            self._log.info("Cannot check whether a record is still needed", error=str(error), **owner.key._asdict())
            return
        try:
            await self._store.remove(owner.uid)
        except (ApiError, ApiUnavailableError) as error:
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


@dataclass(frozen=True, slots=True)
class Examined:
    """A record whose unused objects are examined."""

    record: CreationRecord
    owner: Owner
    basis: Basis
    """Inputs of the run that has ended."""
    guard: LeaseGuard
    deletes: bool
    """False if unused objects are only reported."""
    report: PruneReport
    shared: list[tuple[IsUsed, OtherUsers]] = field(default_factory=list)
    """Objects that stay because of other resources, filled by the examination."""


class PruneDeletion:
    """Examines and deletes objects of one watch's resources.

    Each request has the rights of the watch's runs. An object is deleted with preconditions on UID and
    `resourceVersion`. From the check of other uses to the response, the requests of runs for the object wait.
    """

    def __init__(
        self,
        scope: WatchScope,
        client: Client,
        discovery: Discovery,
        observers: Sequence[AccessObserver],
        uses: OperatorUses,
        account: str,
    ) -> None:
        """`account`: service account of the watch's runs, `namespace/name`; empty: the operator's own."""
        self._scope = scope
        self._client = client
        self._discovery = discovery
        self._observers = observers
        self._uses = uses
        text = "Objects that were deleted because runs no longer use them"
        self._pruned = scope.metrics.counter("ansible_operator_pruned_objects", text, ["GVK"])
        if scope.watch.more.get(PRUNE_POLICY).then != "off":
            self._pruned.labels(str(scope.watch.gvk))
        self._user = service_accounts.user(account) if account else ""
        self._logged = log.Once()
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))

    async def examine(self, examined: Examined) -> None:
        """Examine and report the unused objects of a record. Delete them if `deletes` is set. Raises LeaseLostError."""
        if not examined.record.unused():
            return
        for observer in self._observers:
            observer.began(examined.owner)
        try:
            await self._examine(examined)
        finally:
            for observer in self._observers:
                observer.ended(examined.owner)

    async def read(self, entry: CreatedObject) -> Object | None:
        """Read an object with the rights of the watch's runs; None if it does not exist."""
        resource = await self._discovery.find(entry.gvk)
        try:
            return await self._client.request("GET", resource.path(*entry.key), user=self._user)
        except NotFoundError:
            return None

    async def _examine(self, examined: Examined) -> None:
        problems = examined.report.problems
        for entry in examined.record.unused():
            examined.guard.check()
            try:
                await self._prune(entry, examined)
            except ForbiddenError as error:
                right = rights.read(error.said)
                why = rights.sentences([right])[0] if right else str(error)
                problems.append(f"{entry}: {why}")
            except NotFoundError:
                examined.record.drop(entry)
            except KindNotFoundError as error:
                if self._logged.is_new(entry.gvk):
                    self._log.info("Cannot examine unused objects of a kind", error=str(error))
            except ApiError as error:
                problems.append(f"{entry}: {error}")
            except ApiUnavailableError as error:
                self._log.info("Cannot examine unused objects; retrying after the next run", error=str(error))
                break

    async def _prune(self, entry: CreatedObject, examined: Examined) -> None:
        record, owner, report = examined.record, examined.owner, examined.report
        obj = await self.read(entry)
        if obj is None or uid_of(obj) != entry.uid or is_deleting(obj):
            record.drop(entry)
            return
        if records.reason_to_keep(obj, owner):
            entry.basis, entry.unused = examined.basis, 0  # examined again after the next change
            return
        is_used = partial(record.is_used, entry)
        with self._uses.gate.deleting(entry.plural, entry.key):
            if others := self._uses.others(owner.ref, is_used):
                report.shared.append((str(entry), others))
                examined.shared.append((is_used, others))
                return
            if examined.deletes:
                examined.guard.check()
                await self._delete(entry, obj, owner)
                record.drop(entry)
        (report.deleted if examined.deletes else report.unused).append(str(entry))

    async def _delete(self, entry: CreatedObject, obj: Object, owner: Owner) -> None:
        resource = await self._discovery.find(entry.gvk)
        version = version_of(obj)
        await self._client.delete(resource, key_of(obj), uid=entry.uid, version=version, user=self._user)
        for observer in self._observers:
            observer.deleted(owner, resource, obj)
        self._pruned.labels(str(self._scope.watch.gvk)).inc()
        self._log.info("Deleted an unused object", object=str(entry), uid=entry.uid, **owner.ref.key._asdict())
