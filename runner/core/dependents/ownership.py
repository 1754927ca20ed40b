"""Rules that decide which objects are dependents of which owners, and what their owners are notified of. Pure.

An annotation on an object outside the owner's namespace counts only if a run of the owner wrote the object.
A reference to a cluster-scoped owner counts only with the UID of that owner. Events of the API are not watched: they
expire, and each expiry would trigger its owner.

In other namespaces than the owner's, every user who may write an object could name any owner. The record of written
objects identifies them by UID, and survives restarts. An object that is older than the record has no entry. For this
object it is enough that a run of the owner reads it by name. The API server sets UIDs and creation times, so no user
can forge them.
"""

from __future__ import annotations

import base64
import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from runner.core.kube.discovery import ApiResource
from runner.core.watches.policy import StatusTrigger
from runner.core.watches.watch import Watch
from runner.values.objects import (
    GVK,
    Object,
    ObjectKey,
    ObjectRef,
    Owner,
    OwnerClaim,
    claims_of,
    key_of,
    metadata,
    uid_of,
)

MOST_MARKS = 4096
"""Objects that are recorded for each watch; the oldest entries are dropped."""
_MARK_SIZE = 9


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Record of one watch."""

    since: str
    """Time at which the record began, as in `creationTimestamp`."""
    marks: tuple[str, ...]
    """Digests of owner and UID, the oldest first."""


RecordsByWatch: TypeAlias = Mapping[GVK, WriteRecord]


class WrittenObjects:
    """Records of all watches."""

    def __init__(self, now: str) -> None:
        """`now` is the current time as in `creationTimestamp`."""
        self._now = now
        self._since: dict[GVK, str] = {}
        self._marks: dict[GVK, dict[str, None]] = {}

    def load(self, stored: RecordsByWatch) -> None:
        """Add stored records."""
        for gvk, record in stored.items():
            own = self._record(gvk)
            marks = dict.fromkeys((*record.marks, *own.marks))  # its own entries are newer
            self._since[gvk], self._marks[gvk] = min(own.since, record.since), dict.fromkeys([*marks][-MOST_MARKS:])

    def records(self, watches: Iterable[GVK]) -> RecordsByWatch:
        """Return the records of some watches; a watch without entries has a time too."""
        return {gvk: self._record(gvk) for gvk in watches}

    def add(self, owner: ObjectRef, uid: str) -> bool:
        """Note that a run of `owner` wrote an object; return True if this is new."""
        marks = self._marks.setdefault(owner.gvk, {})
        mark = _mark(owner, uid)
        if mark in marks:
            return False
        marks[mark] = None
        if len(marks) > MOST_MARKS:
            del marks[next(iter(marks))]
        return True

    def is_full(self, gvk: GVK) -> bool:
        """Return True if the next entry of this watch replaces the oldest one."""
        return len(self._marks.get(gvk, ())) >= MOST_MARKS

    def has(self, owner: ObjectRef, uid: str) -> bool:
        """Return True if a run of `owner` wrote the object."""
        return _mark(owner, uid) in self._marks.get(owner.gvk, {})

    def discard(self, owner: ObjectRef, uid: str) -> None:
        """Remove an object that was deleted."""
        self._marks.get(owner.gvk, {}).pop(_mark(owner, uid), None)

    def is_older(self, owner: ObjectRef, obj: Mapping[str, Any]) -> bool:
        """Return True if an object was created before the record of its owner's watch began."""
        created = metadata(obj).get("creationTimestamp")
        return isinstance(created, str) and "" < created < self._since.get(owner.gvk, self._now)

    def _record(self, gvk: GVK) -> WriteRecord:
        return WriteRecord(self._since.get(gvk, self._now), tuple(self._marks.get(gvk, ())))


def _mark(owner: ObjectRef, uid: str) -> str:
    text = f"{owner.gvk.group}/{owner.gvk.kind} {owner.key} {uid}"
    return base64.urlsafe_b64encode(hashlib.blake2b(text.encode(), digest_size=_MARK_SIZE).digest()).decode()


_MOST_UIDS = 2
_MOST_OWNERS = 4096
"""Cluster-scoped owners whose UIDs are kept. The references of further ones count with each UID."""


class OwnerRules:
    """Rules for the owners of an operator."""

    def __init__(self, watches: Mapping[GVK, Watch], namespaces: Sequence[str], written: WrittenObjects) -> None:
        """`namespaces` are those of the operator, empty for all."""
        self.cluster_scoped: set[GVK] = set()
        """Watched kinds that are cluster-scoped."""
        self._watches = watches
        self._namespaces = namespaces
        self._written = written
        self._uids: OrderedDict[ObjectRef, tuple[str, ...]] = OrderedDict()
        """Last UIDs of cluster-scoped owners. The garbage collector deletes dependents of an earlier one later."""

    def began(self, owner: ObjectRef) -> None:
        """Note the start of a run of a cluster-scoped owner."""
        self.cluster_scoped.add(owner.gvk)
        uids = self._uids.pop(owner, ())
        self._uids[owner] = (*(uid for uid in uids if uid != owner.uid), owner.uid)[-_MOST_UIDS:]
        if len(self._uids) > _MOST_OWNERS:
            self._uids.popitem(last=False)

    def may_watch(self, owner: Owner, resource: ApiResource) -> bool:
        """Return True if this owner's watch can have dependents of this kind."""
        watch = self._watches.get(owner.ref.gvk)
        if watch is None or resource.gvk in watch.blacklist or resource.gvk.kind == "Event":
            return False
        if not {"list", "watch"} <= resource.verbs:
            return False
        return resource.namespaced or not owner.namespaced or watch.watch_cluster_scoped_resources

    def in_sight(self, resource: ApiResource, key: ObjectKey) -> bool:
        """Return True if the operator's namespaces contain the object."""
        return not self._namespaces or not resource.namespaced or key.namespace in self._namespaces

    def targets(self, resource: ApiResource, obj: Object) -> tuple[ObjectRef, ...]:
        """Return the owners of an object that are notified of its changes."""
        claims = claims_of(obj)
        if not claims:
            return ()
        targets = (
            ObjectRef(gvk, ObjectKey("" if gvk in self.cluster_scoped else claim.namespace, claim.name))
            for claim in claims
            for gvk, watch in self._watches.items()
            if (gvk.group, gvk.kind) == (claim.group, claim.kind)
            and self._is_watched(watch, claim, resource)
            and self._is_credible(gvk, claim, obj)
        )
        return tuple(dict.fromkeys(targets))

    def trigger_of(self, target: ObjectRef) -> StatusTrigger:
        """Return the changes of status that an owner is notified of."""
        watch = self._watches.get(target.gvk)
        return watch.watch_dependent_status if watch is not None else "off"

    def _is_credible(self, gvk: GVK, claim: OwnerClaim, obj: Object) -> bool:
        """Return True unless a user of another namespace can have written this annotation or reference."""
        owner = ObjectRef(gvk, ObjectKey("" if gvk in self.cluster_scoped else claim.namespace, claim.name))
        namespace = key_of(obj).namespace
        if claim.by_annotation:
            return (bool(namespace) and namespace == owner.key.namespace) or self._written.has(owner, uid_of(obj))
        uids = self._uids.get(owner)
        return uids is None or claim.uid in uids or self._written.has(owner, uid_of(obj))

    def _is_watched(self, watch: Watch, claim: OwnerClaim, resource: ApiResource) -> bool:
        if resource.gvk in watch.blacklist:
            return False
        if watch.gvk in self.cluster_scoped:
            return True
        if self._namespaces and claim.namespace not in self._namespaces:
            return False
        return resource.namespaced or watch.watch_cluster_scoped_resources


def owns(owner: Owner, obj: Object) -> bool:
    """Return True if an object names an owner."""
    return any(
        (claim.group, claim.kind, claim.name) == (owner.ref.gvk.group, owner.ref.gvk.kind, owner.ref.key.name)
        and (not owner.namespaced or claim.namespace == owner.ref.key.namespace)
        for claim in claims_of(obj)
    )
