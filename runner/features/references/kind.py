"""Referenced objects of one kind: a watch per name for a few names, or one metadata watch for many.

Up to `FEW` names of a scope (a namespace, or all) have a watch each, which the API server filters by name. More share a
watch of the scope for metadata only. If the metadata does not show whether the content changed, the object is read, one
at a time.

Guarantees: a requested object becomes known, as a state or as absent, unless `trouble` gives the reason. Each later
change is reported once. Objects that are not requested have no state. A kind that the API server does not serve has no
objects. Must not import: proxy, reconcile, controller.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from runner.base import log
from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import ApiResource, Discovery
from runner.core.kube.watch import ObjectWatch, Watcher
from runner.features.references.state import ReferenceChange, ReferencedState, has_to_be_read
from runner.values.backoff import Backoff, JitteredBackoff
from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError, KindNotFoundError, NotFoundError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef

FEW = 8
"""Maximum number of names of a scope with a watch each."""
_GATHER = 0.02
"""Seconds to collect names before watches are opened, because most arrive together."""
_RETRY = Backoff(0.2, cap=30.0)
_REFUSED_FOR = 300.0
"""Seconds until objects of a namespace are read again after a refusal, because an administrator can allow it."""

_UNKNOWN = object()

OnChange = Callable[[ObjectRef, ReferenceChange], None]
"""Receives the change of an object."""
OnKnown = Callable[[ObjectRef, ReferencedState | None], None]
"""Receives the first state of an object; None if it does not exist."""


@dataclass(slots=True)
class _Open:
    watch: ObjectWatch
    task: asyncio.Task[None]


class ReferenceKind:
    """Requested objects of one kind."""

    def __init__(
        self,
        client: Client,
        discovery: Discovery,
        gvk: GVK,
        namespaces: Sequence[str],
        on_change: OnChange,
        sighted: OnKnown,
        *,
        reads_status: bool,
    ) -> None:
        """`namespaces` are those of the operator; empty for all. `reads_status`: changes of the status count."""
        self._client = client
        self._discovery = discovery
        self._gvk = gvk
        self._in_all = not namespaces
        self._on_change = on_change
        self._sighted = sighted
        self._reads_status = reads_status
        self._referenced: dict[ObjectKey, None] = {}
        self._by_name: dict[str, set[ObjectKey]] = {}
        self._states: dict[ObjectKey, ReferencedState | None] = {}
        self._resource: ApiResource | None = None
        self._is_absent = False
        """True if the API server does not serve the kind."""
        self._trouble = ""
        self._changed = asyncio.Event()
        self._narrow: dict[ObjectKey, _Open] = {}
        self._wide: dict[str, _Open] = {}
        self._unread: OrderedDict[ObjectKey, ReferencedState | None] = OrderedDict()
        """Objects to read, each with its metadata. Those without metadata come first."""
        self._reading = asyncio.Event()
        self._unreadable: dict[str, float] = {}
        """Namespaces in which the API server refuses reads, each with the time of the next one."""
        self._refusals = log.Once()
        self._log = log.get(__name__, gvk=str(gvk))

    def add(self, key: ObjectKey) -> None:
        """Watch an object from now on."""
        self._referenced[key] = None
        self._by_name.setdefault(key.name, set()).add(key)
        if self._is_absent:
            self._states[key] = None
        self._changed.set()

    def drop(self, key: ObjectKey) -> None:
        """Stop watching an object."""
        self._referenced.pop(key, None)
        self._states.pop(key, None)
        self._unread.pop(key, None)
        of_name = self._by_name.get(key.name, set())
        of_name.discard(key)
        if not of_name:
            self._by_name.pop(key.name, None)
        narrow = self._narrow.pop(key, None)
        if narrow is not None:
            narrow.task.cancel()
        self._changed.set()

    def is_known(self, key: ObjectKey) -> bool:
        """Return True if the state of an object, or its absence, is known."""
        return key in self._states

    def state(self, key: ObjectKey) -> ReferencedState | None:
        """Return the state of a known object; None if it does not exist."""
        return self._states[key]

    def trouble(self, key: ObjectKey) -> str:
        """Return the reason why an object is not known; empty if there is none."""
        if self._lacks_namespace(key):
            return f"{self._gvk.kind} {key.name} has no namespace; set {{name, namespace}} in the spec"
        opened = self._narrow.get(key) or self._wide.get(self._scope(key))
        return (opened.watch.health.last_error or "") if opened is not None else self._trouble

    def shown(self, key: ObjectKey) -> ObjectKey:
        """Return the object's own key: without a namespace if the kind is cluster-scoped."""
        return key if self._is_namespaced() else ObjectKey("", key.name)

    async def follow(self) -> None:
        """Watch until cancelled."""
        self._resource = await self._find()
        self._trouble, self._is_absent = "", False
        self._narrow, self._wide = {}, {}  # the watches end with this function
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read())
            while True:
                self._arrange(group)
                await self._changed.wait()
                await asyncio.sleep(_GATHER)
                self._changed.clear()

    async def _find(self) -> ApiResource:
        """Wait until the kind is served."""
        backoff, logged = JitteredBackoff(0.5, 5.0), ""
        while True:
            try:
                return await self._discovery.find(self._gvk)
            except (ApiError, ApiUnavailableError) as error:
                self._trouble, self._is_absent = str(error), isinstance(error, KindNotFoundError)
            if self._is_absent:
                for key in self._referenced:
                    self._states.setdefault(key, None)
            if self._trouble != logged:
                logged = self._trouble
                self._log.warning("Cannot find the kind of a reference; retrying", error=logged)
            await asyncio.sleep(backoff.next())

    def _arrange(self, group: asyncio.TaskGroup) -> None:
        """Open the watches that are needed, and close all further ones."""
        scopes: dict[str, list[ObjectKey]] = {}
        for key in self._referenced:
            if not self._lacks_namespace(key):
                scopes.setdefault(self._scope(key), []).append(key)
        for scope, keys in scopes.items():
            if scope in self._wide:
                self._extend(group, scope, keys)
            elif len(keys) > FEW:
                self._wide[scope] = self._open_wide(group, scope)
            else:
                for key in keys:
                    if key not in self._narrow:
                        self._narrow[key] = self._open_narrow(group, key)
        for key in [key for key in self._narrow if self._scope(key) in self._wide]:
            self._narrow.pop(key).task.cancel()
        for scope in [scope for scope in self._wide if scope not in scopes]:
            self._wide.pop(scope).task.cancel()

    def _extend(self, group: asyncio.TaskGroup, scope: str, keys: Iterable[ObjectKey]) -> None:
        """Read the objects that were requested after a scope's list had begun."""
        unknown = [key for key in keys if key not in self._states]
        if not unknown or not self._wide[scope].watch.health.is_listed:
            return
        if not all(self._is_readable(key.namespace) for key in unknown):
            self._wide.pop(scope).task.cancel()
            self._wide[scope] = self._open_wide(group, scope)
        for key in unknown:
            self._request_read(key, None)

    def _open_narrow(self, group: asyncio.TaskGroup, key: ObjectKey) -> _Open:
        selection = Selection(fields=f"metadata.name={key.name}")
        watcher = Watcher(self._client, self._discovery, self._gvk, key.namespace, selection)
        watch = ObjectWatch(
            watcher, lambda: (self.shown(key),), lambda _, obj: self._saw(key, obj, whole=True), self._changed.set
        )
        return _Open(watch, group.create_task(watch.follow()))

    def _open_wide(self, group: asyncio.TaskGroup, scope: str) -> _Open:
        selection = Selection(metadata_only=True)
        watcher = Watcher(self._client, self._discovery, self._gvk, scope, selection)
        watch = ObjectWatch(watcher, partial(self._expected, scope), self._saw_metadata, self._changed.set)
        return _Open(watch, group.create_task(watch.follow()))

    def _expected(self, scope: str) -> Iterable[ObjectKey]:
        return [self.shown(key) for key in self._referenced if self._scope(key) == scope]

    def _saw_metadata(self, shown: ObjectKey, obj: Object | None) -> None:
        referenced = (shown,) if self._is_namespaced() else tuple(self._by_name.get(shown.name, ()))
        for key in referenced:
            self._saw(key, obj, whole=False)

    def _saw(self, key: ObjectKey, obj: Object | None, *, whole: bool) -> None:
        """Process the state of an object; None if it does not exist."""
        if key not in self._referenced:
            return
        is_first, old = key not in self._states, self._states.get(key)
        new = None
        if obj is not None:
            new = ReferencedState.of(obj, self._gvk, whole=whole, uses_generation=self._uses_generation())
        if new is not None and has_to_be_read(old, new) and self._is_readable(key.namespace):
            self._request_read(key, new)
            return
        change = ReferenceChange.of(old, new)
        self._states[key] = new = new.following(old) if new is not None else None
        if new is not None and not whole and (self._reads_status or (new.content is None and new.generation is None)):
            self._request_read(key, new)
        if is_first:
            self._sighted(ObjectRef(self._gvk, key), new)
        elif change is not None:
            self._on_change(ObjectRef(self._gvk, key), change)

    def _request_read(self, key: ObjectKey, known: ReferencedState | None) -> None:
        if self._is_readable(key.namespace):
            self._unread[key] = known
            self._unread.move_to_end(key, last=known is not None)
            self._reading.set()

    async def _read(self) -> None:
        """Read the objects whose metadata is not sufficient. One that cannot be read delays no other one."""
        time, outage, logged = asyncio.get_running_loop().time, JitteredBackoff(0.2, 30.0), log.Once()
        retries: dict[ObjectKey, tuple[int, float]] = {}
        """Number of failed reads of an object, and the time of the next one."""
        while True:
            self._reading.clear()
            retries = {key: retry for key, retry in retries.items() if key in self._unread}
            key = next((key for key in self._unread if key not in retries or retries[key][1] <= time()), None)
            if key is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(min((at for _, at in retries.values()), default=None)):
                        await self._reading.wait()
                continue
            try:
                await self._read_one(key)
            except (ApiError, ApiUnavailableError) as error:
                if logged.is_new((key, str(error))):
                    self._log.warning("Cannot read a referenced object; retrying", error=str(error), **key._asdict())
                failures = retries[key][0] if key in retries else 0
                retries[key] = failures + 1, time() + _RETRY.after(failures)
                await asyncio.sleep(outage.next() if isinstance(error, ApiUnavailableError) else 0)
            else:
                outage.reset()

    async def _read_one(self, key: ObjectKey) -> None:
        resource = self._resource
        if resource is None:
            raise RuntimeError("objects are read once their kind is found")
        before, known = self._states.get(key, _UNKNOWN), self._unread.get(key)
        obj: Object | None = None
        try:
            obj = await self._client.get(resource, key)
        except NotFoundError:
            pass  # that is the answer
        except ForbiddenError as error:
            self._refuse(key.namespace, error)
            return
        if self._states.get(key, _UNKNOWN) is before and self._unread.get(key) is known:
            # Else something came meanwhile that may be newer than the answer: it is read once more.
            self._unread.pop(key, None)
            self._saw(key, obj, whole=True)

    def _is_readable(self, namespace: str) -> bool:
        return self._unreadable.get(namespace, 0.0) <= asyncio.get_running_loop().time()

    def _refuse(self, namespace: str, error: ForbiddenError) -> None:
        """Compare versions instead of content in a namespace for some time."""
        self._unreadable[namespace] = asyncio.get_running_loop().time() + _REFUSED_FOR
        effect = "changes of their status are not detected"
        if not self._uses_generation():
            effect = "changes of metadata also trigger runs"
        if self._refusals.is_new((namespace, str(error))):
            self._log.warning(f"Cannot read referenced objects: {effect}", error=str(error))
        for key in [key for key in self._unread if key.namespace == namespace]:
            known, old = self._unread.pop(key), self._states.get(key)
            if known is None:
                continue
            self._states[key] = known.following(old)
            change = ReferenceChange.of(old, known)
            if change is not None:
                self._on_change(ObjectRef(self._gvk, key), change)
        self._changed.set()

    def _uses_generation(self) -> bool:
        return self._resource is not None and self._resource.uses_generation

    def _lacks_namespace(self, key: ObjectKey) -> bool:
        return not key.namespace and self._resource is not None and self._resource.namespaced

    def _is_namespaced(self) -> bool:
        return self._resource is None or self._resource.namespaced

    def _scope(self, key: ObjectKey) -> str:
        return "" if self._in_all or not self._is_namespaced() else key.namespace
