"""Handler that adds the owner to objects that a run writes, and notifies the write observer.

Creates, updates and server-side applies get the owner by the rules of `owners`. Merge patches get it if they request
adoption, and lose it if they request release. The observer receives responses to writes, and to reads that can be the
first since a restart, before the client does.

If a run's object was deleted, its writes of objects that it would own are refused. If another object has its name, all
its writes are refused.

Promises: updates and patches of one object by runs take place one after the other. None removes an owner that another
one adds at the same time. A request that cannot be parsed (CBOR, too large) is forwarded unchanged, with one
warning if it should have got an owner. The observer is notified of a write even if its client has disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol
from weakref import WeakValueDictionary

from runner.base import log
from runner.core.kube.discovery import ApiResource, ServedResources
from runner.core.proxy import content
from runner.core.proxy.calls import Answer, Call, Proceed, refusal
from runner.core.proxy.handlers import owners
from runner.core.proxy.handlers.owners import OwnerMark, Ownership
from runner.core.proxy.identity import RunIdentity
from runner.core.proxy.request import parse_query
from runner.values.errors import PASSING, ApiError, ApiUnavailableError, NotFoundError
from runner.values.objects import Object, ObjectKey, Owner, OwnerState, key_of, uid_of
from runner.values.slots import Slot

_AFTERWARDS = 30.0
"""Seconds until a write is canceled after its client has disconnected."""
_GONE_STATUS = 410
_GONE = (
    "{owner} (UID {uid}) was deleted during this run. The garbage collector would delete an object that it owns, so "
    "the proxy rejects writes of such objects."
)
_REPLACED = (
    "{owner} was deleted and created again during this run, which is for the deleted object (UID {uid}). The proxy "
    "rejects all writes of this run; the new object has its own run."
)
_MERGES = frozenset({content.MERGE, content.STRATEGIC})
_log = log.get(__name__)


class WriteObserver(Protocol):
    """Observer of the objects that runs write and read, as returned by the API server. By default, of writes only."""

    def wants(self, owner: Owner, resource: ApiResource, namespace: str) -> bool:  # noqa: ARG002 - for observers
        """Return whether `read` must be called for objects of this kind in a namespace (empty: cluster-scoped)."""
        return False

    def read(self, owner: Owner, resource: ApiResource, obj: Object) -> None:  # noqa: ARG002 - as above
        """Handle an object that was read."""
        return

    def wrote(self, owner: Owner, resource: ApiResource, obj: Object) -> None:
        """Handle an object that was created, updated or patched, or whose subresource was."""
        ...

    def deleted(self, owner: Owner, resource: ApiResource, answer: Object) -> None:
        """Handle the deletion of an object; `answer` is the object, or a Status about it."""
        ...


class WriteHook(Protocol):
    """Record of what one run creates and deletes."""

    async def intends(self, resource: ApiResource, key: ObjectKey) -> None:
        """Note a creation before its request is sent. The name is empty if the API server chooses it."""
        ...

    def answered(self, resource: ApiResource, key: ObjectKey, obj: Object | None) -> None:
        """Note the created object, or with None that the API server refused to create it."""
        ...

    def deleted(self, resource: ApiResource, key: ObjectKey) -> None:
        """Note the request to delete an object."""
        ...


WRITE_HOOK: Slot[WriteHook | None] = Slot("record of writes", None)
"""Slot of a run: its record of what it creates and deletes; None: it has none. A trial needs none."""


class ObjectReader(Protocol):
    """Reader of objects with the operator's rights."""

    async def get(self, resource: ApiResource, key: ObjectKey) -> Object:
        """Read one object. Raises NotFoundError."""
        ...


class Writes:
    """Handler that adds owners."""

    def __init__(self, served: ServedResources, reader: ObjectReader, *observers: WriteObserver) -> None:
        self._served = served
        self._reader = reader
        self._observers = observers
        self._logged = log.Once()
        self._unattended: set[asyncio.Task[Answer]] = set()
        self._turns: WeakValueDictionary[tuple[str, str, ObjectKey], asyncio.Lock] = WeakValueDictionary()

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Answer a call."""
        run, info = call.run.run, call.info
        if not run.inject or not info.is_resource or call.head.upgrade:
            return await proceed(call)
        if info.verb == "get" and info.name and not info.subresource:
            return await self._get(call, proceed, run)
        if not _is_write(call):
            return await proceed(call)
        resource = await self._find(call)
        if resource is None:
            return await proceed(call)
        async with await self._turn(call):
            return await self._change(call, proceed, run, resource)

    async def _turn(self, call: Call) -> asyncio.Lock:
        """Return the lock of the object of an update or a patch. A slow client cannot hold it."""
        info = call.info
        if info.verb not in {"update", "patch"} or info.subresource or await call.data() is None:
            return asyncio.Lock()
        key = info.group, info.resource, info.key
        return self._turns.setdefault(key, asyncio.Lock())

    async def _change(self, call: Call, proceed: Proceed, run: RunIdentity, resource: ApiResource) -> Answer:
        info = call.info
        state = await run.owner_state()
        how, creates = OwnerMark.NONE, None
        if info.verb in {"create", "update", "patch"} and not info.subresource:
            how, creates = await self._own(call, run, resource)
        if state is OwnerState.REPLACED or (state is OwnerState.GONE and how is not OwnerMark.NONE):
            return _rejected(call, run, state)
        hook = None if info.is_dry_run or run.view is not None else run.more.get(WRITE_HOOK)
        if hook is not None and creates is not None:
            await hook.intends(resource, creates)
        detached = call.detached()
        writing = asyncio.create_task(self._write(detached, proceed, resource, creates, hook))
        try:
            return await asyncio.shield(writing)
        finally:
            if writing.done():
                call.ends.append(detached.end)
            else:
                self._let_end(detached, writing)

    async def _get(self, call: Call, proceed: Proceed, run: RunIdentity) -> Answer:
        resource = await self._find(call) if run.watch_dependents and run.view is None else None
        answer = await proceed(call)
        if resource is None or not answer.is_success:
            return answer
        space = _namespace(call, resource)
        wanting = [observer for observer in self._observers if observer.wants(run.owner, resource, space)]
        for obj in await answer.objects(resource.gvk.kind) if wanting else ():
            for observer in wanting:
                observer.read(run.owner, resource, obj)
        return answer

    async def _write(
        self,
        call: Call,
        proceed: Proceed,
        resource: ApiResource,
        creates: ObjectKey | None,
        hook: WriteHook | None,
    ) -> Answer:
        answer, run = await proceed(call), call.run.run
        is_dry_run = call.info.is_dry_run or run.view is not None
        is_observed = run.watch_dependents or (hook is not None and creates is not None)
        objects: list[Object] = []
        if is_observed and answer.is_success and not is_dry_run:
            objects = await self._written(call, resource, creates, answer)
        if hook is not None:
            _record(hook, resource, call, creates, answer, objects)
        if run.watch_dependents:
            deletes = call.info.verb.startswith("delete")
            for obj in objects:
                for observer in self._observers:
                    (observer.deleted if deletes else observer.wrote)(run.owner, resource, obj)
        return answer

    async def _written(
        self, call: Call, resource: ApiResource, creates: ObjectKey | None, answer: Answer
    ) -> list[Object]:
        """Return the objects of a successful write. If the answer does not contain them, read the object."""
        info = call.info
        objects = await answer.objects(resource.gvk.kind)
        name = info.name or (creates.name if creates is not None else "")
        if objects or not name or info.verb.startswith("delete"):
            return objects
        try:
            return [await self._reader.get(resource, ObjectKey(_namespace(call, resource), name))]
        except (ApiError, ApiUnavailableError) as error:
            self._warn(call, "Cannot read an object that a run wrote: its changes are not watched", error=str(error))
            return []

    def _let_end(self, call: Call, writing: asyncio.Task[Answer]) -> None:
        """Let a write end after its client has disconnected, to observe its result."""

        def ended(task: asyncio.Task[Answer]) -> None:
            self._unattended.discard(task)
            call.end()
            if not task.cancelled():
                task.exception()  # the client that would get it has disconnected

        self._unattended.add(writing)
        asyncio.get_running_loop().call_later(_AFTERWARDS, writing.cancel)
        writing.add_done_callback(ended)

    async def _find(self, call: Call) -> ApiResource | None:
        try:
            return await self._served.find(call.info.group, call.info.version, call.info.resource)
        except ApiError as error:
            if isinstance(error, PASSING):
                raise
            self._warn(call, "Cannot look up the resource: request forwarded without owner", error=str(error))
            return None

    async def _own(self, call: Call, run: RunIdentity, resource: ApiResource) -> tuple[OwnerMark, ObjectKey | None]:
        """Add the owner to the object in a request. Return how the object refers to it.

        If the request creates the object with the owner, return its key too, without a name if the API server chooses
        it.
        """
        media = call.media
        if call.info.verb == "patch" and media not in _MERGES and media != content.APPLY:
            return OwnerMark.NONE, None
        if not content.is_readable(media) or await call.data() is None:
            self._warn(
                call,
                "Cannot add the owner: the request is no JSON, YAML or protobuf of at most 4 MiB; set the owner in the "
                "role",
                media=media,
            )
            return OwnerMark.NONE, None
        parsed = call.parsed()
        if (obj := parsed.object) is None or not parsed.is_complete:
            self._warn(
                call, "Cannot add the owner: the object is too large, too deep or invalid; set the owner in the role"
            )
            return OwnerMark.NONE, None
        definition = obj if run.owner_annotations else self._without_annotations(call, obj)
        owned, creates = Ownership(definition, OwnerMark.NONE), None
        if media not in _MERGES or owners.is_about_owners(definition):
            owned, current = await self._decide(call, run, resource, definition, media)
            if owned.how is not OwnerMark.NONE and current is None and media not in _MERGES:
                creates = ObjectKey(_namespace(call, resource), call.info.name or key_of(definition).name)
        if owned.obj is not obj:
            call.replace_object(owned.obj)
        return owned.how, creates

    def _without_annotations(self, call: Call, obj: Object) -> Object:
        definition = owners.without_annotations(obj)
        if definition is not obj:
            self._warn(
                call,
                "Removed annotations about owners from an object of the role, because the watch sets ownerAnnotations: "
                "false",
            )
        return definition

    async def _decide(
        self, call: Call, run: RunIdentity, resource: ApiResource, obj: Object, media: str
    ) -> tuple[Ownership, Object | None]:
        """Return the definition, with its owner if that is known, and the existing object."""
        info = call.info
        unknown, current = Ownership(obj, OwnerMark.NONE), None
        if info.name:
            try:
                current = await self._current(run, resource, ObjectKey(_namespace(call, resource), info.name))
            except NotFoundError:
                current = None
            except ApiError as error:
                if isinstance(error, PASSING):
                    raise
                self._warn(call, "Cannot read the existing object: request forwarded without owner", error=str(error))
                return unknown, None
        if media in _MERGES:
            if current is None:
                return unknown, None
            if owners.wants_release(obj):
                return owners.give_up(obj, run.owner, current, strategic=media == content.STRATEGIC), current
            return owners.adopt(obj, run.owner, resource, info.namespace, current), current
        manager = next((value for name, value in parse_query(info.query) if name == "fieldManager"), "")
        is_apply = media == content.APPLY
        owned = owners.own(
            obj, run.owner, resource, info.namespace, current=current, manager=manager if is_apply else None
        )
        return owned, current

    async def _current(self, run: RunIdentity, resource: ApiResource, key: ObjectKey) -> Object | None:
        """Read an object with the operator's rights, or as a trial sees it. Raises NotFoundError."""
        if run.view is not None and run.view.replaces(resource, key):
            return run.view.object(resource, key)
        return await self._reader.get(resource, key)

    def _warn(self, call: Call, message: str, **fields: str) -> None:
        """Log a warning once per message, resource and namespace."""
        resource = call.info.qualified
        if self._logged.is_new((message, resource, call.info.namespace)):
            _log.warning(message, job=call.run.run.ident, resource=resource, **fields)


def _namespace(call: Call, resource: ApiResource) -> str:
    """Return the namespace of the object; empty for cluster-scoped kinds."""
    return call.info.namespace if resource.namespaced else ""


def _rejected(call: Call, run: RunIdentity, state: OwnerState) -> Answer:
    """Refuse a write of a run whose object was deleted."""
    message = _REPLACED if state is OwnerState.REPLACED else _GONE
    _log.info(
        "Rejected a write of a run whose object was deleted",
        job=run.ident,
        verb=call.info.verb,
        resource=call.info.qualified,
        state=state.value,
        uid=run.owner.ref.uid,
    )
    return refusal(_GONE_STATUS, message.format(owner=run.owner.ref, uid=run.owner.ref.uid))


def _is_write(call: Call) -> bool:
    info = call.info
    if info.subresource:
        # Other subresources are actions (binding, eviction, token); their responses are other objects.
        return info.verb in {"update", "patch"}
    return info.verb in {"create", "update", "patch", "delete", "deletecollection"}


def _record(
    hook: WriteHook,
    resource: ApiResource,
    call: Call,
    creates: ObjectKey | None,
    answer: Answer,
    objects: Sequence[Object],
) -> None:
    """Record the result of a write. An unknown result leaves the intent, which the end of the run resolves."""
    if creates is not None and answer.status == HTTPStatus.CREATED:
        for obj in objects:
            if uid_of(obj):
                hook.answered(resource, creates, obj)
    elif creates is not None and _is_final(answer.status):
        hook.answered(resource, creates, None)
    elif call.info.verb == "delete" and not call.info.subresource and answer.is_success:
        hook.deleted(resource, ObjectKey(_namespace(call, resource), call.info.name))


def _is_final(status: int) -> bool:
    """Return whether the API server has certainly not created an object."""
    return status < HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.REQUEST_TIMEOUT
