"""Watches of the objects that runs created, and triggers for their owners.

Flow: the proxy reports each write, deletion and read of a run. The first object of a kind starts its watch, one per
kind and scope, metadata only. A `Ledger` compares the events and notifies the owners. Notifications wait while their
owner runs, because an event may arrive before the response to the write that caused it. Content is read only if a
comparison needs it, one object at a time.

Guarantees: a failed watch is retried forever. An operator that is limited to namespaces watches nothing outside them,
except for cluster-scoped kinds if a watch enables them. The watched kinds survive a restart. Watches without owner
injection have no dependents. `ownership` decides which objects are dependents. Must not import: proxy, reconcile,
controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from runner.base import log
from runner.base.meters import Meters
from runner.base.monitoring.background import Background
from runner.core.dependents.kind import DependentKind, KindListener, Owned
from runner.core.dependents.ledger import Ledger
from runner.core.dependents.notification import DeferredNotifications, Notification, RunWrite, Trigger
from runner.core.dependents.ownership import MOST_MARKS, OwnerRules, WrittenObjects, owns
from runner.core.dependents.store import KindsByWatch, KindStore
from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import ApiResource, Discovery
from runner.core.kube.object_state import ObjectState
from runner.core.kube.watch import watchers
from runner.core.watches.watch import Watch
from runner.values.backoff import JitteredBackoff
from runner.values.digests import digest
from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError, KindNotFoundError, NotFoundError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, Owner, key_of, mapping, uid_of, version_of

_SAVING_AGAIN = (10.0, 600.0)
"""Shortest and longest seconds until the next attempt after the storage refused to save."""
_PATIENCE = 60.0
"""Seconds to wait until the dependents of an object are listed."""

_LOOK = 0.05
_log = log.get(__name__)


class DependentsListener(Protocol):
    """Follows all kinds of dependents."""

    def follow(self, kind: DependentKind) -> KindListener:
        """Return the listener of a kind that is watched from now on, in place of an earlier watch of it."""
        ...

    def unfollow(self, resource: ApiResource) -> None:
        """Handle the end of the watch of a kind."""
        ...

    def forget(self, owner: ObjectRef) -> None:
        """Handle the deletion of an owner."""
        ...


class Dependents:
    """Dependents of all watches."""

    def __init__(
        self,
        client: Client,
        discovery: Discovery,
        namespaces: Sequence[str],
        watches: Iterable[Watch],
        trigger: Trigger,
        store: KindStore,
        leads: Callable[[], bool],
    ) -> None:
        """`namespaces` are those of the operator, empty for all.

        `trigger` gets the notifications while this replica `leads`.
        """
        self._client = client
        self._discovery = discovery
        self._namespaces = tuple(namespaces)
        self._watches = {watch.gvk: watch for watch in watches if watch.watch_dependent_resources}
        self._trigger = trigger
        self._store = store
        self._leads = leads
        self._kinds: dict[tuple[str, str], DependentKind] = {}
        self._to_start: asyncio.Queue[DependentKind] = asyncio.Queue()
        self._known: dict[GVK, set[GVK]] = {}
        """Kinds that each watch's runs have created."""
        self._written = WrittenObjects(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        self._rules = OwnerRules(self._watches, self._namespaces, self._written)
        self._logged = log.Once()
        self._unsaved = asyncio.Event()
        self._outdated = False
        """True if the former leader may have stored records that are not loaded."""
        self._unserved: dict[GVK, dict[GVK, str]] = {}
        """Kinds that each watch's runs have created, and that were not served since the start, with the error."""
        self._loaded = asyncio.Event()
        self._resumed = asyncio.Event()
        self._vouched: set[tuple[GVK, GVK]] = set()
        """Pairs of watch and kind for which a run of this process wrote or read an object."""
        self._deferred = DeferredNotifications()
        self.listener: DependentsListener | None = None
        """Follows all kinds. To be set before any kind is watched."""
        self.followers: dict[GVK, Callable[[ObjectRef | None], None]] = {}
        """By watch that needs the statuses of dependents, whatever starts its runs. Each is called with the owner of a
        dependent that may have changed; None: any, after a list. To be added before any kind is watched."""

    def problems(self) -> list[str]:
        """Return a sentence for each kind of dependents that is not watched."""
        return [problem for kind in self._kinds.values() for problem in kind.problems()]

    def declare(self, meters: Meters) -> None:
        """Declare the meters of the watches."""
        text = "Whether the watch of a kind of dependents works (1) or fails (0)"
        meters.observable_gauge("ansible_operator_dependents_watched", text, ["GVK"], self.live)

    def live(self) -> dict[GVK, bool]:
        """Return for each kind of dependents whether it is watched."""
        return {kind.gvk: kind.is_live for kind in self._kinds.values()}

    def watched(self) -> frozenset[GVK]:
        """Return the kinds that are watched as dependents."""
        return frozenset(kind.gvk for kind in self._kinds.values())

    async def follow(self, background: Background) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            keep = background.keep
            group.create_task(keep("dependents/resume", self._resume))
            group.create_task(keep("dependents/save", self._save))
            await self._loaded.wait()
            while True:
                kind = await self._to_start.get()
                kind.task = group.create_task(keep(f"dependents/{kind.gvk.kind}", kind.follow))

    def leadership_changed(self) -> None:
        """Load the records of the former leader, if this replica leads now."""
        if self._leads():
            self._outdated = True
            self._unsaved.set()

    def observes(self, gvk: GVK) -> bool:
        """Return whether a watch watches the objects that its runs create."""
        return gvk in self._watches

    def began(self, owner: Owner) -> None:
        """Note the start of a run of `owner`."""
        if not owner.namespaced:
            self._rules.began(owner.ref)
        self._deferred.began(owner.ref)

    def ended(self, owner: Owner) -> bool:
        """Note the end of a run whose writes were all reported. Return True if no other client interfered."""
        left = self._deferred.ended(owner.ref)
        for notification in left:
            self._notify(notification)
        return not left

    async def owned(self, gvk: GVK, key: ObjectKey) -> str | None:
        """Digest the dependents of an object when all were listed and read; None if they are unknown."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._resumed.wait()
                while True:
                    owned, kinds = self._owned_now(ObjectRef(gvk, key)), self.kinds_of(gvk)
                    is_final = self._unserved.get(gvk) or any(kind.is_refused(key.namespace) for kind in kinds)
                    is_coming = any(kind.is_reading or kind.unknown(key.namespace) for kind in kinds)
                    if owned is not None or is_final or not is_coming:
                        return owned
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            return None

    def owned_now(self, owner: Owner) -> str:
        """Digest the dependents of an object as they are known now; empty if a part is unknown."""
        return self._owned_now(owner.ref) or ""

    def unknown(self, gvk: GVK, namespace: str) -> str:
        """Return why the dependents of a watch's objects in a namespace are not known; empty if they are."""
        reasons = (kind.unknown(namespace) for kind in self.kinds_of(gvk))
        return next(filter(None, [*self._unserved.get(gvk, {}).values(), *reasons]), "")

    def _owned_now(self, target: ObjectRef) -> str | None:
        states: list[list[object]] = []
        if self.unknown(target.gvk, target.key.namespace):
            return None
        for kind in self.kinds_of(target.gvk):
            for name, state in kind.ledger.owned_by(target):
                traits = kind.ledger.traits(state, target)
                if traits is None or kind.unknown(name.namespace):  # which can be another one than that of the owner
                    return None
                states.append([kind.gvk.group, kind.gvk.kind, *name, *traits])
        return digest(sorted(states, key=str))

    def owned_keys(self, owner: ObjectRef) -> set[tuple[tuple[str, str], ObjectKey]]:
        """Return the objects that are watched as dependents of an owner: group and plural, and key."""
        kinds = self.kinds_of(owner.gvk)
        return {
            ((kind.gvk.group, kind.resource.plural), key) for kind in kinds for key, _ in kind.ledger.owned_by(owner)
        }

    def owned_by(self, owner: ObjectRef) -> list[Owned]:
        """Return the dependents of an owner as they are known now."""
        return [owned for kind in self.kinds_of(owner.gvk) for owned in kind.owned_by(owner)]

    @property
    def is_resumed(self) -> bool:
        """True if the kinds that earlier runs have created are watched, as far as they are served."""
        return self._resumed.is_set()

    def kinds_of(self, gvk: GVK) -> list[DependentKind]:
        """Return the watched kinds that a watch's runs have created."""
        names = {(known.group, known.kind) for known in self._known.get(gvk, ())}
        return [kind for name, kind in self._kinds.items() if name in names]

    def unwatched(self, gvk: GVK) -> list[GVK]:
        """Return the kinds that earlier runs of a watch have created, and that are not watched since the start."""
        return [known for known in self._known.get(gvk, ()) if (known.group, known.kind) not in self._kinds]

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the state of a deleted owner."""
        if self.listener is not None:
            self.listener.forget(ObjectRef(gvk, key))

    def follows(self, owner: Owner, resource: ApiResource) -> bool:
        """Return True if objects of this kind that runs of this owner create are watched."""
        kind = (resource.gvk.group, resource.gvk.kind)
        watch = self._watches.get(owner.ref.gvk)
        if watch is None or not self._rules.may_watch(owner, resource):
            return False
        if any((listed.group, listed.kind) == kind for listed in watch.blacklist):
            return False
        return any((known.group, known.kind) == kind for known in self._known.get(owner.ref.gvk, ()))

    def wants(self, owner: Owner, resource: ApiResource, namespace: str) -> bool:
        """Return True if `read` needs objects of this kind; otherwise the response need not be parsed."""
        if not self._rules.may_watch(owner, resource):
            return False
        is_known = resource.gvk in self._known.get(owner.ref.gvk, ())
        return not is_known or (owner.namespaced and namespace != owner.ref.key.namespace)

    def read(self, owner: Owner, resource: ApiResource, obj: Object) -> None:
        """Process an object that a run read by name: if its owner is the run's, its kind is watched from now on."""
        target, key = owner.ref, key_of(obj)
        if not (
            self.wants(owner, resource, key.namespace) and self._rules.in_sight(resource, key) and owns(owner, obj)
        ):
            return
        if target not in self._rules.targets(resource, obj):
            if not self._written.is_older(target, obj):
                return
            self._record(target, obj)
        kind = self._vouch(target.gvk, resource)
        if owner.namespaced and key.namespace != target.key.namespace and not kind.ledger.concerns(key):
            # Its earlier events came when the annotation did not count.
            state = self._state(resource, obj, suspect=False)
            kind.ledger.wrote(kind.scope_of(key), key, RunWrite(target, uid_of(obj), version_of(obj), state))

    def wrote(self, owner: Owner, resource: ApiResource, obj: Object) -> None:
        """Process the response to a run's create, update or patch, also of a subresource."""
        target, key = owner.ref, key_of(obj)
        if not self._rules.may_watch(owner, resource) or not self._rules.in_sight(resource, key):
            return
        if owns(owner, obj) and target not in self._rules.targets(resource, obj):
            self._record(target, obj)
        kind = self._kinds.get((resource.gvk.group, resource.gvk.kind))
        state = self._state(resource, obj, suspect=kind is not None and kind.ledger.suspects(key))
        if state is not None and target in state.targets:
            kind = self._vouch(owner.ref.gvk, resource)
        if kind is None or not (kind.ledger.concerns(key) or (state is not None and state.targets)):
            return
        write = RunWrite(target, uid_of(obj), version_of(obj), state)
        for notification in kind.ledger.wrote(kind.scope_of(key), key, write):
            self._on_change(notification)
        self._deferred.wrote(ObjectRef(kind.gvk, key), write, trigger=self._rules.trigger_of(target))

    def deleted(self, owner: Owner, resource: ApiResource, answer: Object) -> None:
        """Process the response to a run's delete: the object as it was, or a `Status`."""
        kind = self._kinds.get((resource.gvk.group, resource.gvk.kind))
        if kind is None:
            return
        target = owner.ref
        uid = uid_of(answer) or str(mapping(answer.get("details")).get("uid", ""))
        self._written.discard(target, uid)
        if uid and not self._deferred.deleted(kind.gvk, target, uid):
            kind.ledger.deleted_by(target, uid)

    def _state(self, resource: ApiResource, obj: Object, *, suspect: bool) -> ObjectState | None:
        """Digest the response to a write; None for that of a subresource such as `scale`, which has only a version."""
        kind = GVK.of(obj).kind
        if kind not in {resource.gvk.kind, "PartialObjectMetadata"}:
            return None
        return ObjectState.of(
            obj,
            self._rules.targets(resource, obj),
            whole=kind == resource.gvk.kind,
            suspect=suspect,
            uses_generation=resource.uses_generation,
        )

    def _record(self, owner: ObjectRef, obj: Object) -> None:
        """Note that a run wrote an object whose owner an annotation names."""
        is_full = self._written.is_full(owner.gvk)
        if not self._written.add(owner, uid_of(obj)):
            return
        self._unsaved.set()
        if is_full and self._logged.is_new(owner.gvk):
            _log.warning(
                "Runs wrote too many objects in other namespaces; changes of the oldest ones are not detected until a "
                "run writes them again",
                most=MOST_MARKS,
                gvk=str(owner.gvk),
            )

    def _vouch(self, watch: GVK, resource: ApiResource) -> DependentKind:
        """Note that a run has written or read an object of this kind."""
        self._vouched.add((watch, resource.gvk))
        return self._ensure(watch, resource)

    def _ensure(self, watch: GVK, resource: ApiResource) -> DependentKind:
        """Return the kind's watch, starting it if needed; add the kind to the watch."""
        name = (resource.gvk.group, resource.gvk.kind)
        kind = self._kinds.get(name)
        if kind is not None and not kind.serves(resource):
            kind.stop()
            if self.listener is not None:
                self.listener.unfollow(kind.resource)
            kind = None
        if kind is None:
            kind = self._kinds[name] = self._make(resource)
            self._to_start.put_nowait(kind)
            _log.info("Watching dependents", gvk=str(resource.gvk), of=str(watch))
        known = self._known.setdefault(watch, set())
        if resource.gvk not in known:
            known.add(resource.gvk)
            self._unsaved.set()
        return kind

    def _make(self, resource: ApiResource) -> DependentKind:
        watched = watchers(
            self._client,
            self._discovery,
            resource.gvk,
            self._namespaces,
            Selection(metadata_only=True),
        )
        uses_generation = resource.uses_generation
        ledger = Ledger(
            resource.gvk, self._rules.trigger_of, self.followers.__contains__, uses_generation=uses_generation
        )
        owners = partial(self._rules.targets, resource)
        kind = DependentKind(self._client, resource, owners, watched, ledger, self._on_change, self._settled)
        kind.followed = self._followed
        if self.listener is not None:
            kind.listener = self.listener.follow(kind)
        return kind

    def _followed(self, owners: Iterable[ObjectRef] | None) -> None:
        if owners is None:
            for changed in self.followers.values():
                changed(None)
            return
        for owner in owners:
            if (follower := self.followers.get(owner.gvk)) is not None:
                follower(owner)

    def _on_change(self, notification: Notification) -> None:
        if notification.state is None:
            self._written.discard(notification.target, notification.source.uid)
        if not self._deferred.defer(notification):
            self._notify(notification)

    def _notify(self, notification: Notification) -> None:
        if not self._leads():
            return
        source = notification.source
        kind = self._kinds.get((source.gvk.group, source.gvk.kind))
        if kind is not None and notification.state is not None:
            kind.ledger.suspect(source.key)
        self._trigger(notification)

    def _settled(self, kind: DependentKind) -> None:
        """Drop a kind from the watches that own no object of it. It is watched until the process ends."""
        owners = kind.ledger.owners()
        for watch, known in self._known.items():
            if kind.gvk in known and watch not in owners and (watch, kind.gvk) not in self._vouched:
                known.remove(kind.gvk)
                self._unsaved.set()

    async def _resume(self) -> None:
        """Watch the kinds that earlier runs have created."""
        stored, records = await self._store.load()
        self._written.load(records)
        self._loaded.set()
        for gvk in self._watches:
            self._known.setdefault(gvk, set()).update(stored.get(gvk, ()))
        left = [(gvk, dependent) for gvk in self._watches for dependent in sorted(stored.get(gvk, ()))]
        backoff = JitteredBackoff(1.0, 30.0)
        while left:
            left = [pair for pair in left if not await self._resume_kind(*pair)]
            if sum(map(len, self._unserved.values())) == len(left):
                self._resumed.set()
            await asyncio.sleep(backoff.next() if left else 0)
        self._resumed.set()

    async def _resume_kind(self, gvk: GVK, dependent: GVK) -> bool:
        """Watch a kind, unless it is refused in each namespace; return False to try again."""
        unserved = self._unserved.setdefault(gvk, {})
        try:
            await self._resume_if_served(gvk, dependent)
        except (KindNotFoundError, NotFoundError) as error:
            # Its objects may exist, and are those of another version. A run that creates one starts the watch too.
            if (dependent.group, dependent.kind) not in self._kinds:
                unserved[dependent] = str(error)
                return False
        except ForbiddenError as error:
            # The permission was removed: the role may no longer create such objects.
            _log.info("Dependents of a kind are not watched until a run creates one", error=str(error))
        except (ApiError, ApiUnavailableError) as error:
            unserved.pop(dependent, None)
            if self._logged.is_new((dependent, type(error))):
                _log.warning("Cannot find a kind of dependents; retrying", gvk=str(dependent), error=str(error))
            return False
        unserved.pop(dependent, None)
        return True

    async def _resume_if_served(self, gvk: GVK, dependent: GVK) -> None:
        """Watch a kind. Raises ForbiddenError if each namespace is refused."""
        watched, resource = await self._discovery.find(gvk), await self._discovery.find(dependent)
        if not watched.namespaced:
            self._rules.cluster_scoped.add(gvk)
        if not self._rules.may_watch(Owner(ObjectRef(gvk, ObjectKey("", "")), watched.namespaced), resource):
            return
        refused: list[ForbiddenError] = []
        for namespace in self._namespaces or ("",):
            try:
                await self._client.list_page(resource, namespace, Selection(metadata_only=True), 1, "")
            except ForbiddenError as error:
                refused.append(error)
            else:
                self._ensure(gvk, resource)
                return
        raise refused[0]

    async def _save(self) -> None:
        """Save the kinds and the records when they have changed, after those of the former leader were loaded."""
        await self._loaded.wait()
        backoff = JitteredBackoff(*_SAVING_AGAIN)
        while True:
            await self._unsaved.wait()
            self._unsaved.clear()
            if self._outdated:
                self._outdated = False
                self._written.load((await self._store.load())[1])
            kinds: KindsByWatch = {gvk: frozenset(known) for gvk, known in self._known.items()}
            if await self._store.save(kinds, self._written.records(self._known)):
                backoff.reset()
            else:
                self._unsaved.set()
                await asyncio.sleep(backoff.next())
