"""Watch of one kind of dependents. It passes events to the ledger and reads the objects that the ledger requests.

Guarantees: one read of an object for any number of events, one object at a time, retried until it succeeds. A status is
read at most once in `STATUS_PERIOD`, after all other reads, and after each event that can have changed it. Objects
without a watched owner cost only the parsing of their metadata.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from runner.base import log
from runner.core.dependents.ledger import Ledger, LedgerResult
from runner.core.dependents.notification import Notification
from runner.core.kube import health
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource
from runner.core.kube.health import Health, HealthState
from runner.core.kube.object_state import ObjectState
from runner.core.kube.watch import Watcher
from runner.core.kube.watch_events import Applied, Deleted, Requested, Restarted, Synced, WatchEvent
from runner.core.kube.watch_health import WatchState, covering, problem_of
from runner.values.backoff import JitteredBackoff
from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError, NotFoundError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, key_of

STATUS_PERIOD = 0.5
"""Seconds between two reads of the status of one object."""
_REFUSED = 60.0
"""Seconds until a status is read again that the API server refused to show."""

_DELETED = Health(HealthState.IN_PROGRESS, "it is being deleted")
_NOT_READABLE = Health(HealthState.UNKNOWN, "the operator may not read its status")

_log = log.get(__name__)


class Owned(NamedTuple):
    """A dependent of one owner, with its health by the watch and the last read of its status."""

    gvk: GVK
    key: ObjectKey
    uid: str
    health: Health


class KindListener(Protocol):
    """Reads the ledger of a kind of dependents after each event, before owners are notified."""

    def changed(self, key: ObjectKey) -> None:
        """Handle an event of an object."""

    def listed(self) -> None:
        """Handle the end of a list: absent objects are gone."""


class DependentKind:
    """The watch of one kind of dependents."""

    def __init__(
        self,
        client: Client,
        resource: ApiResource,
        owners: Callable[[Object], tuple[ObjectRef, ...]],
        watched: tuple[Watcher, ...],
        ledger: Ledger,
        on_change: Callable[[Notification], None],
        settled: Callable[[DependentKind], None],
    ) -> None:
        """`on_change` receives notifications; `settled` is called when all scopes were listed."""
        self.owners = owners
        """Returns the watched owners of an object."""
        self.resource = resource
        self.gvk = resource.gvk
        self.ledger = ledger
        self.task: asyncio.Task[None] | None = None
        self.followed: Callable[[tuple[ObjectRef, ...] | None], None] = lambda _: None
        """Receives the owners of each object that may have changed; None: of any, after a list."""
        self.listener: KindListener | None = None
        self._client = client
        self._watchers = watched
        self._healths = [watcher.health for watcher in watched]
        self._on_change = on_change
        self._settled = settled
        self._logged = log.Once()
        self._to_read: dict[ObjectKey, None] = {}
        """Keys of the objects to read, in order."""
        self._statuses: dict[ObjectKey, None] = {}
        """Keys of the objects whose status is to be read in the next round."""
        self._round: dict[ObjectKey, None] = {}
        """The same for the current round."""
        self._next_round = 0.0
        """Earliest time of the next round."""
        self._refused: dict[str, dict[ObjectKey, None]] = {}
        """The same for namespaces in which the API server refused a read."""
        self._missing: set[ObjectKey] = set()
        """Keys of the objects that the last read did not find."""
        self._reading = asyncio.Event()
        self._is_listed = False
        self._is_comparing = False
        self._stopped = False

    def version(self, key: ObjectKey) -> tuple[str, str] | None:
        """Return UID and resourceVersion of an object as last seen; None if it was not, or has no watched owner."""
        return self.ledger.version(key)

    def unbroken_period(self, namespace: str) -> int | None:
        """Return the number of the current period without a gap of a namespace's watch; None if there is none."""
        return watcher_of(self._watchers, namespace).health.unbroken_period

    def serves(self, resource: ApiResource) -> bool:
        """Return True if this watch covers a resource of the same kind: the same version, or this one still works."""
        if resource.gvk == self.gvk:
            return True
        return any(watched.state is not WatchState.WAITING_FOR_KIND for watched in self._healths)

    def problems(self) -> list[str]:
        """Return the problems of the watches. A kind that the API server does not serve has none."""
        return [f"{self.gvk}: {watched.problem}" for watched in self._healths if watched.problem]

    @property
    def is_live(self) -> bool:
        """True unless no namespace is watched."""
        return problem_of(self._healths) is None

    def unknown(self, namespace: str) -> str:
        """Return why the objects in a namespace (empty: in any) are not known; empty if they are.

        If the kind is not served, they are known as they were last, and a list shows what has changed.
        """
        for watched in covering(self._healths, namespace):
            problem, scope = watched.problem, watched.namespace
            if problem or not watched.is_listed:
                where = f" in the namespace {scope}" if scope else ""
                return f"{self.gvk.kind}{where}: {problem or 'not listed yet'}"
        return ""

    def is_listed(self, namespace: str) -> bool:
        """Return True if the objects in a namespace (empty: in each) were ever listed completely."""
        return all(watched.is_listed for watched in covering(self._healths, namespace))

    def is_refused(self, namespace: str) -> bool:
        """Return True if the API server refuses to list the objects in a namespace (empty: in one of them)."""
        return any(watched.is_refused for watched in covering(self._healths, namespace))

    def owned_by(self, owner: ObjectRef) -> list[Owned]:
        """Return the dependents of an owner."""
        return [
            Owned(self.gvk, key, state.uid, health_of(state, may_read=key.namespace not in self._refused))
            for key, state in self.ledger.owned_by(owner)
        ]

    def scope_of(self, key: ObjectKey) -> str:
        """Return the scope of the watcher that covers the object."""
        return watcher_of(self._watchers, key.namespace).namespace

    @property
    def is_reading(self) -> bool:
        """True while the operator must read objects."""
        return bool(self._to_read or self._statuses or self._round) or self._is_comparing

    async def follow(self) -> None:
        """Watch until stopped."""
        if self._stopped:
            return
        async with asyncio.TaskGroup() as group:
            for watcher in self._watchers:
                group.create_task(watcher.follow(partial(self._received, watcher.namespace)))
            group.create_task(self._read())

    def stop(self) -> None:
        """Stop the watch."""
        self._stopped = True
        if self.task is not None:
            self.task.cancel()

    def _received(self, scope: str, event: WatchEvent) -> None:
        notifications = self._take(scope, event)
        if self.listener is not None:
            match event:
                case Applied(obj) | Deleted(obj):
                    self.listener.changed(key_of(obj))
                case Synced():
                    self.listener.listed()
        for notification in notifications:
            self._on_change(notification)
        if isinstance(event, Synced) and not self._is_listed:
            self._is_listed = all(watched.is_listed for watched in self._healths)
            if self._is_listed:
                self._settled(self)

    def _take(self, scope: str, event: WatchEvent) -> tuple[Notification, ...]:
        match event:
            case Requested():
                self.ledger.requested(scope)
                return ()
            case Restarted():
                self.ledger.restarted(scope)
                return ()
            case Synced():
                self.followed(None)
                return self._found(self.ledger.synced(scope))
            case Deleted(obj):
                self.followed(targets := self.owners(obj))
                return self.ledger.deleted(key_of(obj), ObjectState.of(obj, targets, whole=False))
            case Applied(obj):
                key, targets = key_of(obj), self.owners(obj)
                if not targets and not self.ledger.concerns(key):
                    return ()
                self.followed(targets)
                return self._found(self.ledger.applied(scope, key, ObjectState.of(obj, targets, whole=False)))

    def _found(self, finding: LedgerResult) -> tuple[Notification, ...]:
        self._to_read.update(dict.fromkeys(finding.read))
        for key in finding.read_status:
            self._refused.get(key.namespace, self._statuses)[key] = None
        if self.is_reading:
            self._reading.set()
        return finding.notifications

    async def _read(self) -> None:
        """Read the objects to compare, one by one."""
        backoff = JitteredBackoff(0.2, 30.0)
        while True:
            key, is_status = self._next()
            if key is None:
                await self._due()
                continue
            self._is_comparing = True
            try:
                notifications = await self._compare(key, is_status=is_status)
            except (ApiError, ApiUnavailableError) as error:
                if self._logged.is_new(type(error).__name__):
                    _log.warning("Cannot read a dependent; retrying", gvk=str(self.gvk), error=str(error))
                await asyncio.sleep(backoff.next())
                continue
            self._is_comparing = False
            backoff.reset()
            for notification in notifications:
                self._on_change(notification)

    def _next(self) -> tuple[ObjectKey | None, bool]:
        """Take the next object to read, and whether only its status is needed; None if no read is due.

        Statuses are read in rounds. One that is requested during a round is read in the next one.
        """
        # Removed first: an event during the request adds the key again.
        # The oldest first: one that cannot be read is added again, and must not keep the others waiting.
        if self._to_read:
            key = next(iter(self._to_read))
            del self._to_read[key]
            return key, False
        now = asyncio.get_running_loop().time()
        if not self._round and now >= self._next_round:
            self._round, self._statuses, self._next_round = self._statuses, self._round, now + STATUS_PERIOD
        if not self._round:
            return None, False
        key = next(iter(self._round))
        del self._round[key]
        return key, True

    async def _due(self) -> None:
        """Wait until a read may be due."""
        self._reading.clear()
        wait = self._next_round - asyncio.get_running_loop().time() if self._statuses else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._reading.wait()

    async def _compare(self, key: ObjectKey, *, is_status: bool) -> tuple[Notification, ...]:
        """Read an object and compare it with the ledger's state."""
        self.ledger.reads(key)
        try:
            obj = await self._client.get(self.resource, key)
        except NotFoundError:
            # One answer can be wrong, for example that of an API server behind a load balancer that has just started.
            if key in self._missing:
                self._missing.remove(key)
                return self.ledger.absent(key)
            self._missing.add(key)
            (self._round if is_status else self._to_read)[key] = None
            return ()
        except ForbiddenError as error:
            self._refuse(key.namespace, error)
            if is_status:
                self._read_later(key)
            return self.ledger.unreadable(key)
        except (ApiError, ApiUnavailableError):
            (self._round if is_status else self._to_read)[key] = None
            raise
        self._missing.discard(key)
        state = ObjectState.of(
            obj,
            self.owners(obj),
            whole=True,
            suspect=self.ledger.suspects(key),
            uses_generation=self.resource.uses_generation,
        )
        notifications = self.ledger.read(key, state)
        self.followed(state.targets)
        return notifications

    def _refuse(self, namespace: str, error: ForbiddenError) -> None:
        if self._logged.is_new(namespace):
            _log.warning(
                "Cannot read dependents: changes of their content and status are not detected",
                gvk=str(self.gvk),
                error=str(error),
                needs=f"verb get on {self.resource.qualified}",
            )

    def _read_later(self, key: ObjectKey) -> None:
        """Retry the reads of statuses in the object's namespace after a while, because the permission may come."""
        if key.namespace not in self._refused:
            asyncio.get_running_loop().call_later(_REFUSED, self._retry, key.namespace)
            self.followed(None)
        self._refused.setdefault(key.namespace, {})[key] = None

    def _retry(self, namespace: str) -> None:
        self._statuses.update(self._refused.pop(namespace))
        self._reading.set()


def watcher_of(watched: Sequence[Watcher], namespace: str) -> Watcher:
    """Return the watcher of a namespace; by default that of all namespaces or of cluster-scoped objects."""
    return next((watcher for watcher in watched if watcher.namespace == namespace), watched[0])


def health_of(state: ObjectState, *, may_read: bool) -> Health:
    """Return the health of a dependent by its last known state. `may_read`: the operator may read its status."""
    status = state.status
    if state.deleting:
        return _DELETED
    if not may_read:
        return _NOT_READABLE
    if status is None or status.health == health.UNREAD:
        return health.UNREAD
    is_behind = state.generation is not None and status.generation != state.generation
    return health.NOT_OBSERVED if is_behind else status.health
