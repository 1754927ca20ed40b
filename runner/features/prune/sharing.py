"""Uses of objects by all resources of the operator, and the decision whether another resource uses an object.

The last complete run of a resource counts, all runs since then, and the run in progress. A run that did not reach some
tasks replaces only the uses of the tasks that it reached. The records contain the uses, so that a restart changes
nothing. After a start they are unknown until each resource has completed a run. While they are unknown, the object
stays. No I/O; one event loop. Decision 32 has the reasons.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from runner.core.kube.informer import Informer
from runner.features.prune.coverage import Coverage
from runner.features.prune.record import CreationRecord
from runner.features.prune.uses import MOST_ROWS, UseDigests, UsedObjects, Uses
from runner.values.objects import GVK, ObjectKey, ObjectRef, first_names

IsUsed: TypeAlias = Callable[[Uses], bool]
"""Returns whether runs use a certain object."""
_FREE = "no other resource uses an object any more"
"""Detail of the run that examines an object again."""
_UNKNOWN_USES = "the objects that the resource uses are unknown"
"""Detail of the run after which they are known."""
_MOST_NAMED = 5


@dataclass(slots=True)
class ResourceUses:
    """Objects that one resource uses."""

    uid: str
    last: UseDigests | None = None
    """Uses of the last complete run; None if there was none."""
    omitted: tuple[str, ...] = ()
    """Digests of the tasks because of which a run hid no use; see `Basis`."""
    is_known: bool = False
    """Whether a run was complete since the start."""
    since: UseDigests | None = None
    """Uses of incomplete runs since then."""
    running: UsedObjects | None = None
    """Uses of the run in progress."""
    why: str = ""
    """Why the last run was incomplete."""
    is_read: bool = True
    """False if the uses before the start are unknown, because the record could not be read."""

    def is_used(self, is_used: IsUsed) -> bool:
        """Return whether the resource uses an object, as far as known."""
        return any(is_used(uses) for uses in (self.last, self.since, self.running) if uses is not None)

    def ended(self, why: str, coverage: Coverage) -> None:
        """Note the end of the run in progress. `why`: why it was incomplete; empty for a complete one."""
        if self.running is None:
            return
        if not why and coverage.omissions and self.last is None and not self.is_read:
            why = f"its record cannot be read, and in its last run, {coverage.omissions[0].what}"
        uses, self.running, self.why = UseDigests.of(self.running, coverage.tasks_at), None, why
        if why:
            since = uses if self.since is None else self.since.union(uses)
            if len(since.digests) <= MOST_ROWS:
                self.since = since
            else:
                self.is_known, self.why = False, f"{why}, and its runs used too many objects"
            return
        hidden = Counter(coverage.omitting) - Counter(self.omitted)
        before = self.kept
        unreached = before.without(coverage.reached(hidden)) if hidden and before is not None else None
        if not unreached:  # whatever the run did not reach used nothing
            self.omitted = coverage.omitting
        self.last = uses.union(unreached) if unreached else uses
        self.since, self.is_known = None, True

    @property
    def kept(self) -> UseDigests | None:
        """Uses of all runs that have ended; None if there was none."""
        return (
            self.last.union(self.since) if self.last is not None and self.since is not None else self.last or self.since
        )


@dataclass(frozen=True, slots=True)
class OtherUsers:
    """Resources because of which an object stays."""

    users: tuple[ObjectRef, ...] = ()
    """Resources that use it."""
    unknown: tuple[tuple[ObjectRef, str], ...] = ()
    """Resources without a complete run, with the reason why their last run was incomplete."""
    unlisted: str = ""
    """Why it is unknown which resources exist."""

    def __bool__(self) -> bool:
        """Return True if the object stays."""
        return bool(self.users or self.unknown or self.unlisted)

    @property
    def is_unknown(self) -> bool:
        """True if no resource uses the object as far as known."""
        return not self.users

    def __str__(self) -> str:
        """Return why the object stays, as the end of a sentence about it."""
        if self.users:
            return f"in use by {first_names([*map(str, self.users)], _MOST_NAMED)}"
        if self.unlisted:
            return f"kept, because {self.unlisted}"
        unknown = [f"{ref} ({why})" if why else str(ref) for ref, why in self.unknown]
        return f"kept until these resources complete a run: {first_names(unknown, _MOST_NAMED)}"


def other_users(
    owner: ObjectRef, is_used: IsUsed, resources: Iterable[tuple[ObjectRef, ResourceUses | None]]
) -> OtherUsers:
    """Return the resources that use an object of `owner`, and those of which this is unknown."""
    users, unknown = [], []
    for ref, uses in resources:
        if ref == owner:
            continue
        if uses is not None and uses.is_used(is_used):
            users.append(ref)
        elif uses is None or not uses.is_known:
            unknown.append((ref, uses.why if uses is not None else ""))
    return OtherUsers(tuple(users), tuple(unknown))


class DeletionGate:
    """Delays the requests of runs for an object that the operator deletes, so that no run finds it just before."""

    def __init__(self) -> None:
        self._deleting: dict[asyncio.Event, tuple[str, ObjectKey]] = {}

    @contextmanager
    def deleting(self, plural: str, key: ObjectKey) -> Iterator[None]:
        """Delay requests for an object until the block is left."""
        ended = asyncio.Event()
        self._deleting[ended] = (plural, key)
        try:
            yield
        finally:
            del self._deleting[ended]
            ended.set()

    async def wait(self, plural: str, key: ObjectKey) -> None:
        """Wait until no object that a request names is being deleted. Without a name: no object of the kind."""
        while ended := next((event for event in self._of(plural, key)), None):
            await ended.wait()

    def _of(self, plural: str, key: ObjectKey) -> Iterator[asyncio.Event]:
        for ended, (kind, deleted) in self._deleting.items():
            is_in = key.namespace in {"", deleted.namespace} and key.name in {"", deleted.name}
            if kind == plural and is_in:
                yield ended


@dataclass(slots=True)
class _Watched:
    """Resources of one watch, and their uses."""

    existing: Informer
    uses: dict[ObjectKey, ResourceUses] = field(default_factory=dict)


@dataclass(slots=True)
class _Wait:
    """Object that stays because of another resource."""

    is_used: IsUsed
    user: ObjectRef | None
    """One of its users; None: its users are unknown."""


class OperatorUses:
    """Uses of all resources."""

    def __init__(self, run: Callable[[ObjectRef, str], None]) -> None:
        """`run` requests a run of a resource."""
        self.gate = DeletionGate()
        self._run = run
        self._watched: dict[GVK, _Watched] = {}
        self._waiting: dict[ObjectRef, list[_Wait]] = {}
        """Resources with objects that stay because of another resource."""
        self._requested: set[ObjectRef] = set()
        """Resources of which a run was requested, because their uses are unknown."""

    def watch(self, gvk: GVK, existing: Informer) -> None:
        """Count the resources of a watch."""
        self._watched[gvk] = _Watched(existing)

    def began(
        self, ref: ObjectRef, used: UsedObjects, record: CreationRecord | None = None, *, is_read: bool = True
    ) -> None:
        """Note the begin of a run, which reports its uses to `used`. `record` has those before the start.

        `is_read` is False if there may be another record, which cannot be read.
        """
        uses = self._watched[ref.gvk].uses
        if ref.key in uses and uses[ref.key].uid != ref.uid:
            self.forget(ref.gvk, ref.key)
        resource_uses = uses.setdefault(ref.key, ResourceUses(ref.uid))
        resource_uses.ended("its last run was interrupted", Coverage())  # an attempt that was left by an error
        if record is not None and is_read and resource_uses.last is None:
            resource_uses.last, resource_uses.omitted = record.uses, record.omitted
        resource_uses.running, resource_uses.is_read = used, is_read

    def ended(
        self,
        ref: ObjectRef,
        used: UsedObjects,
        *,
        why: str,
        coverage: Coverage,
        record: CreationRecord | None = None,
    ) -> None:
        """Note the end of a run, also in the record. `why`: why it was incomplete; empty for a complete one."""
        resource_uses = self._watched[ref.gvk].uses.get(ref.key)
        if resource_uses is None or resource_uses.running is not used:
            return  # the resource does not exist any more
        resource_uses.ended(why, coverage)
        if record is not None:
            record.uses, record.omitted = resource_uses.kept, resource_uses.omitted
        if resource_uses.is_known:
            self._requested.discard(ref)
        if not why:
            self._waiting.pop(ref, None)  # its unused objects are examined now
        self.reconsider()

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the uses of a resource that does not exist any more, or that another replica runs."""
        ref = ObjectRef(gvk, key)
        self._watched[gvk].uses.pop(key, None)
        self._waiting.pop(ref, None)
        self._requested.discard(ref)
        self.reconsider()

    def others(self, owner: ObjectRef, is_used: IsUsed) -> OtherUsers:
        """Return the other resources because of which an object of `owner` stays."""
        unlisted = self._why_unlisted()
        return OtherUsers(unlisted=unlisted) if unlisted else other_users(owner, is_used, self._resources())

    def wait(self, owner: ObjectRef, objects: Iterable[tuple[IsUsed, OtherUsers]]) -> None:
        """Request a run of `owner` when one of these objects, which stay now, may be pruned. Replaces earlier ones."""
        self._waiting.pop(owner, None)
        waits: list[_Wait] = []
        unknown: set[ObjectRef] = set()
        for is_used, others in objects:
            waits.append(_Wait(is_used, others.users[0] if others.users else None))
            unknown.update(ref for ref, _ in others.unknown)
        if waits:
            self._waiting[owner] = waits
        for ref in unknown:
            self.request_run(ref)
        self.reconsider()  # a user can have ended its run since its uses were read

    def is_awaited(self, ref: ObjectRef) -> bool:
        """Return whether an object stays until this resource has completed a run."""
        uses = self._watched[ref.gvk].uses.get(ref.key)
        return bool(self._waiting) and (uses is None or not uses.is_known)

    def request_run(self, ref: ObjectRef) -> None:
        """Request one run of a resource whose uses are unknown, if an object stays because of this."""
        uses = self._watched[ref.gvk].uses.get(ref.key)
        is_idle = uses is None or (uses.running is None and not uses.is_known)
        if is_idle and self._waiting and ref not in self._requested:
            self._requested.add(ref)
            self._run(ref, _UNKNOWN_USES)

    def reconsider(self) -> None:
        """Request runs of the resources with an object that no other resource uses any more."""
        if not self._waiting or self._why_unlisted():
            return
        if any(uses is None or not uses.is_known for _, uses in self._resources()):
            return
        for owner, waits in list(self._waiting.items()):
            if any(self._is_free(owner, wait) for wait in waits):
                del self._waiting[owner]
                self._run(owner, _FREE)

    def _is_free(self, owner: ObjectRef, wait: _Wait) -> bool:
        if wait.user is None:
            return True
        uses = self._watched[wait.user.gvk].uses.get(wait.user.key)
        if uses is not None and uses.is_used(wait.is_used):
            return False
        users = other_users(owner, wait.is_used, self._resources()).users
        wait.user = users[0] if users else None
        return not users

    def _why_unlisted(self) -> str:
        reasons = (watched.existing.unknown() for watched in self._watched.values())
        return "; ".join(str(unknown) for unknown in reasons if unknown is not None)

    def _resources(self) -> Iterator[tuple[ObjectRef, ResourceUses | None]]:
        for gvk, watched in self._watched.items():
            for key in watched.existing.all_keys():
                uses, seen = watched.uses.get(key), watched.existing.summary(key)
                # One that only waits for its finalizer has no summary.
                is_same = uses is None or seen is None or uses.uid == seen.uid
                yield ObjectRef(gvk, key), uses if is_same else None
