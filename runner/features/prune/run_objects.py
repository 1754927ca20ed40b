"""Objects that one run creates and uses, as the proxy reports them.

Each request with the name of an object uses it, whatever its response is. A list uses the objects in its response, and
a creation the object that exists already. Until their response is there, they use all objects of the kind, as do
watches, deletions of collections and unknown requests.

Promises: an intent is stored before `intends` returns, unless the storage fails. Then the creation is not delayed: it
is recorded in memory only, and the failure is counted and logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from runner.core.kube.discovery import ApiResource
from runner.core.proxy.calls import Answer, Call, Observer
from runner.features.prune.coverage import CoverageRecorder
from runner.features.prune.record import Basis, CreationRecord, ObjectId
from runner.features.prune.sharing import DeletionGate
from runner.features.prune.uses import UsedObjects
from runner.values.objects import Object, ObjectKey, key_of
from runner.values.slots import Slot


@dataclass(slots=True, kw_only=True)
class RunUses:
    """Objects that one run uses."""

    used: UsedObjects = field(default_factory=UsedObjects)
    coverage: CoverageRecorder = field(default_factory=CoverageRecorder)
    gate: DeletionGate = field(default_factory=DeletionGate)
    """Delays requests for objects that the operator deletes."""


USES: Slot[RunUses | None] = Slot("objects that a run uses", None)
"""None if they are not recorded."""


@dataclass(slots=True)
class RunObjects(RunUses):
    """Objects that one run creates and uses."""

    record: CreationRecord
    basis: Basis
    """Inputs of the run; without the tasks that it leaves out, which are known at its end."""
    store: Callable[[], Awaitable[None]]
    """Writes the record. Does not raise errors of the storage."""
    full: Callable[[], None]
    """Called for each creation that the record cannot hold."""
    clock: Callable[[], float]
    """Returns the seconds since the epoch."""
    created: dict[ObjectId, float] = field(default_factory=dict)
    """Times of the creations of this run, in seconds since the epoch."""
    possibly_deleted: set[ObjectId] = field(default_factory=set)
    """Objects that may have been deleted."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _intended: int = 0
    _stored: int = 0

    async def intends(self, resource: ApiResource, key: ObjectKey) -> None:
        """Record that the run is about to create an object, and store this."""
        self.used.name(resource.plural, key)
        now = self.clock()
        if not self.record.intend(resource.gvk, resource.plural, key, self.basis, now):
            self.full()
            return
        self.created[_id(resource, key)] = now
        self._intended += 1
        own_number = self._intended
        async with self._turn:
            if self._stored < own_number:  # otherwise a write for a later intent contains this one
                latest = self._intended
                await self.store()
                self._stored = latest

    def answered(self, resource: ApiResource, key: ObjectKey, obj: Object | None) -> None:
        """Record the created object, or with None that the API server refused to create it."""
        ident = _id(resource, key)
        if obj is None:
            self.created.pop(ident, None)
            self.record.withdraw(ident)
            return
        actual_key = key_of(obj)
        self.used.name(resource.plural, actual_key)
        if ident not in self.record.objects:  # the API server chose its name
            if not self.record.intend(resource.gvk, resource.plural, actual_key, self.basis, self.clock()):
                self.full()
                return
            ident = _id(resource, actual_key)
        self.created.setdefault(ident, self.clock())
        entry = self.record.objects[ident]
        entry.found(obj)
        entry.unused = 0

    def deleted(self, resource: ApiResource, key: ObjectKey) -> None:
        """Record that the run requested the deletion of an object, which can have been a dry run."""
        self.possibly_deleted.add(_id(resource, key))


def _id(resource: ApiResource, key: ObjectKey) -> ObjectId:
    return ObjectId(resource.gvk.group, resource.plural, key)


_BY_RESPONSE = frozenset({"list", "create"})
"""Verbs of requests of which the response names the objects."""


async def requested(call: Call) -> None:
    """Record what a request uses. Wait while the operator deletes such an object."""
    uses, info = call.run.run.more.get(USES), call.info
    if uses is None or not info.is_resource:
        return
    key = info.key
    if info.name:
        uses.used.name(info.resource, key)
    elif info.verb in _BY_RESPONSE:
        uses.used.requested(info.resource, key.namespace)
    else:
        uses.used.all_of(info.resource, key.namespace)
    await uses.gate.wait(info.resource, key)


async def answered(call: Call, answer: Answer) -> None:
    """Record the objects in the response to a list, or the object because of which a creation was refused."""
    uses, info = call.run.run.more.get(USES), call.info
    if uses is None or not info.is_resource or info.name or info.verb not in _BY_RESPONSE:
        return
    namespace = info.key.namespace
    if info.verb == "list":
        objects = await answer.object() if answer.is_success else None
        uses.used.listed(info.resource, namespace, objects)
    elif answer.status == HTTPStatus.CONFLICT:
        name = ((await answer.object() or {}).get("details") or {}).get("name")
        objects = {"items": [{"metadata": {"namespace": namespace, "name": name}}]} if name else None
        uses.used.listed(info.resource, namespace, objects)
    uses.used.answered(info.resource, namespace)


OBSERVER = Observer(requested, answered)
