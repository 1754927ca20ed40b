"""Examines the unused objects in a record, and deletes them if no other resource uses them.

Each request has the rights of the watch's runs. An object is deleted with preconditions on UID and `resourceVersion`.
From the check of other uses to the response, the requests of runs for the object wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from runner import log
from runner.controller.attempt import WatchScope
from runner.errors import ApiError, ApiUnavailableError, ForbiddenError, KindNotFoundError, NotFoundError
from runner.kube import forbidden
from runner.kube.client import Client
from runner.kube.discovery import ApiResource, Discovery
from runner.objects import Object, is_deleting, key_of, metadata, uid_of
from runner.ownership import Owner
from runner.prune import record as records
from runner.prune.record import Basis, CreatedObject, CreationRecord
from runner.prune.sharing import IsUsed, OperatorUses, OtherUsers
from runner.replicas.lease_guard import LeaseGuard


class DeletionObserver(Protocol):
    """Observer of deletions, which must not start a run of the owner. See `AccessObserver`."""

    def began(self, owner: Owner) -> None:
        """Handle the begin of deletions for `owner`."""
        ...

    def ended(self, owner: Owner) -> bool:
        """Handle the end of the deletions."""
        ...

    def deleted(self, owner: Owner, resource: ApiResource, answer: Object) -> None:
        """Handle the deletion of an object; `answer` is the object, or a Status about it."""
        ...


@dataclass(slots=True)
class Findings:
    """Result of the examination of unused objects."""

    unused: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    shared: list[tuple[CreatedObject, IsUsed, OtherUsers]] = field(default_factory=list)
    """Objects that stay because of other resources."""


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


class PruneDeletion:
    """Examines and deletes objects of one watch's resources."""

    def __init__(
        self,
        scope: WatchScope,
        client: Client,
        discovery: Discovery,
        observer: DeletionObserver,
        uses: OperatorUses,
        account: str,
    ) -> None:
        """`account`: service account of the watch's runs, `namespace/name`; empty: the operator's own."""
        self._scope = scope
        self._client = client
        self._discovery = discovery
        self._observer = observer
        self._uses = uses
        self._user = f"system:serviceaccount:{account.replace('/', ':')}" if account else ""
        self._logged = log.Once()
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))

    async def examine(self, examined: Examined) -> Findings:
        """Examine the unused objects of a record, and delete them if `deletes` is set. Raises LeaseLostError."""
        findings = Findings()
        if not examined.record.unused():
            return findings
        self._observer.began(examined.owner)
        try:
            await self._examine(examined, findings)
        finally:
            self._observer.ended(examined.owner)
        return findings

    async def read(self, entry: CreatedObject) -> Object | None:
        """Read an object with the rights of the watch's runs; None if it does not exist."""
        resource = await self._discovery.find(entry.gvk)
        try:
            return await self._client.request("GET", resource.path(*entry.key), user=self._user)
        except NotFoundError:
            return None

    async def _examine(self, examined: Examined, findings: Findings) -> None:
        for entry in examined.record.unused():
            examined.guard.check()
            try:
                await self._prune(entry, examined, findings)
            except ForbiddenError as error:
                right = forbidden.read(str(error))
                why = forbidden.sentences([right])[0] if right else str(error)
                findings.problems.append(f"{entry}: {why}")
            except NotFoundError:
                examined.record.drop(entry)
            except KindNotFoundError as error:
                if self._logged.is_new(entry.gvk):
                    self._log.info("Cannot examine unused objects of a kind", error=str(error))
            except ApiError as error:
                findings.problems.append(f"{entry}: {error}")
            except ApiUnavailableError as error:
                self._log.info("Cannot examine unused objects; retrying after the next run", error=str(error))
                break

    async def _prune(self, entry: CreatedObject, examined: Examined, findings: Findings) -> None:
        record, owner = examined.record, examined.owner
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
                findings.shared.append((entry, is_used, others))
                return
            if examined.deletes:
                examined.guard.check()
                await self._delete(entry, obj, owner)
                record.drop(entry)
        (findings.deleted if examined.deletes else findings.unused).append(str(entry))

    async def _delete(self, entry: CreatedObject, obj: Object, owner: Owner) -> None:
        resource = await self._discovery.find(entry.gvk)
        version = str(metadata(obj).get("resourceVersion") or "")
        await self._client.delete(resource, key_of(obj), uid=entry.uid, version=version, user=self._user)
        self._observer.deleted(owner, resource, obj)
        self._scope.metrics.pruned.labels(str(self._scope.watch.gvk)).inc()
        self._log.info("Deleted an unused object", object=str(entry), uid=entry.uid, **owner.ref.key._asdict())
