"""Leader election and sharding, decided from Lease values and a clock. Pure.

Glossary: a *seat* is a Lease that a replica must hold to work. Leader election has one seat; N shards have N. With
shards there are two other kinds of Lease. All replicas with the same N hold the *shared* Lease together, so that
replicas with different numbers of shards never work at the same time. A *place* shows that a replica is running and
takes a share of the seats.

Guarantees, if `now` never decreases and runs as fast as the clocks of the other replicas:

- A replica takes a Lease only if the holder released it, or if it was unchanged for the duration that its holder set.
  Timestamps in the Lease are not used (as in client-go's `leaderelection`).
- A replica loses a seat `renew` seconds after it *sent* the last renewal that was granted. The kernel ends the process
  at `hard`. Both come before another replica may take the seat.
- A replica releases a shard only for a replica that has less than its share, so the distribution converges.

Source of the fields: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from runner.objects import GVK, ObjectKey

_LONGEST_RETRY = 2.0
_LONGEST_LOOK = 0.5
_RETRIES = 5


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations in seconds. `lease` is longer than `renew`."""

    lease: float
    """Other replicas wait for this long before they take a Lease that is not renewed."""
    renew: float
    """A replica gives up a Lease that it could not renew for this long."""

    @property
    def retry(self) -> float:
        """Interval between two renewals."""
        return min(_LONGEST_RETRY, self.renew / _RETRIES)

    @property
    def look(self) -> float:
        """Interval between two reads of the Leases."""
        return min(_LONGEST_LOOK, self.retry)

    @property
    def hard(self) -> float:
        """Time after the last renewal at which the kernel ends the process if guards are still in use."""
        return (self.lease + self.renew) / 2

    @property
    def lease_seconds(self) -> int:
        """Value of `leaseDurationSeconds`."""
        return math.ceil(self.lease)


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Spec of a Lease. Times are text, because only users read them."""

    holder: str
    """Holder identity; empty if the Lease was released."""
    seconds: int
    acquired: str
    renewed: str
    transitions: int

    def taken(self, holder: str, times: LeaseTimes, now: str) -> LeaseRecord:
        """Return the record after `holder` took or renewed the Lease."""
        if holder == self.holder:
            return LeaseRecord(holder, times.lease_seconds, self.acquired, now, self.transitions)
        return LeaseRecord(holder, times.lease_seconds, now, now, self.transitions + 1)

    def released(self, now: str) -> LeaseRecord:
        """Return the record after its holder released the Lease, so that other replicas need not wait."""
        return LeaseRecord("", 1, now, now, self.transitions)


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A Lease as it was read."""

    record: LeaseRecord
    version: str
    """Its resourceVersion. A write with it fails if another client wrote meanwhile."""
    since: float
    """Time of the first read of this record, by the local clock."""

    def is_free(self, now: float) -> bool:
        """Return True if any replica may take the Lease."""
        return not self.record.holder or now >= self.since + self.record.seconds


def observe(
    before: Mapping[str, ObservedLease], found: Mapping[str, tuple[LeaseRecord, str]], now: float
) -> dict[str, ObservedLease]:
    """Merge the Leases read at `now` into the earlier ones; an unchanged record keeps its `since`."""
    seen: dict[str, ObservedLease] = {}
    for name, (record, version) in found.items():
        old = before.get(name)
        since = old.since if old is not None and old.record == record else now
        seen[name] = ObservedLease(record, version, since)
    return seen


@dataclass(frozen=True, slots=True)
class LeaseLayout:
    """Names of the Leases of all replicas. One shard is leader election: one Lease with the usual name."""

    name: str
    shards: int

    @property
    def seats(self) -> tuple[str, ...]:
        """Leases that a replica must hold to work; the index is the shard's number."""
        return (self.name,) if self.shards == 1 else tuple(f"{self.name}-shard-{i}" for i in range(self.shards))

    @property
    def places(self) -> tuple[str, ...]:
        """Leases that show which sharding replicas are running."""
        return () if self.shards == 1 else tuple(f"{self.name}-replica-{i}" for i in range(self.shards))

    @property
    def shared(self) -> str:
        """The Lease that all replicas of this layout hold together; empty for leader election."""
        return "" if self.shards == 1 else self.name

    @property
    def shared_holder(self) -> str:
        """Holder identity of the shared Lease."""
        return f"{self.shards}-shards"

    def holder(self, name: str, me: str) -> str:
        """Return the identity with which a replica holds a Lease."""
        return self.shared_holder if name == self.shared else me

    def shard_of(self, gvk: GVK, key: ObjectKey) -> int:
        """Return the shard of an object: the same in every replica, for every version of its kind."""
        if self.shards == 1:
            return 0
        text = "\0".join((gvk.group, gvk.kind, *key)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") % self.shards


class LeaseAction(Enum):
    """An action on a Lease."""

    TAKE = "take"
    RENEW = "renew"
    LEAVE = "leave"
    """Start no work for the seat; release it when its work has ended."""
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class LeaseStep:
    """An action on one Lease."""

    action: LeaseAction
    name: str


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """Input of the decisions of one replica."""

    me: str
    layout: LeaseLayout
    times: LeaseTimes
    now: float
    seen: Mapping[str, ObservedLease]
    held: Mapping[str, float]
    """Leases of this replica, each with the time at which it sent the last renewal that was granted."""
    leaving: frozenset[str] = frozenset()
    """Held Leases that are being released."""
    busy: frozenset[str] = frozenset()
    """Seats with work in progress, held or just lost."""
    is_draining: bool = False
    """True if the process is about to end."""
    _members: frozenset[str] = field(init=False)
    _counts: Counter[str] = field(init=False)

    def __post_init__(self) -> None:
        """Count the running replicas and the seats that each holds."""
        places = (self.seen[name] for name in self.layout.places if name in self.seen)
        members = frozenset(each.record.holder for each in places if not each.is_free(self.now))
        object.__setattr__(self, "_members", members | {self.me})
        seats = (self.seen[name] for name in self.layout.seats if name in self.seen)
        live = Counter(each.record.holder for each in seats if not each.is_free(self.now))
        object.__setattr__(self, "_counts", Counter({member: live[member] for member in self._members}))

    def is_free(self, name: str) -> bool:
        """Return True if a Lease can be taken: released, expired, missing, or held under this identity."""
        seen = self.seen.get(name)
        return seen is None or seen.is_free(self.now) or seen.record.holder == self.layout.holder(name, self.me)

    @property
    def free_seats(self) -> list[str]:
        """Seats that can be taken now."""
        return [name for name in self.layout.seats if name not in self.held and self.is_free(name)]

    @property
    def floor(self) -> int:
        """Minimum of seats per replica."""
        return self.layout.shards // len(self._members)

    @property
    def ceiling(self) -> int:
        """Maximum of seats per replica."""
        return -(-self.layout.shards // len(self._members))

    def missing_seats(self) -> int:
        """Return how many seats the other replicas lack."""
        return sum(max(0, self.floor - self._counts[each]) for each in self._members if each != self.me)

    @property
    def seats_to_take(self) -> int:
        """Number of free seats that this replica should take."""
        have = sum(name in self.held for name in self.layout.seats)
        if have < self.floor:
            return self.floor - have
        return int(have < self.ceiling and not self.missing_seats())

    @property
    def is_alone(self) -> bool:
        """True if no other replica is running."""
        return self._members == {self.me}

    def seats_to_release(self) -> int:
        """Return how many seats this replica must release for other replicas, including those in release."""
        counts = Counter(self._counts)
        surplus = max(0, counts[self.me] - self.ceiling)
        for _ in range(self.missing_seats() - len(self.free_seats)):
            largest_holder = max(self._members, key=lambda each: (counts[each], each))
            if counts[largest_holder] <= self.floor:
                break
            counts[largest_holder] -= 1
        return max(surplus, self._counts[self.me] - counts[self.me])


def plan(view: ReplicaView) -> list[LeaseStep]:
    """Return the actions of one replica on its Leases."""
    return [*_keep(view), *(_leave_all(view) if view.is_draining else (*_take(view), *_release_surplus(view)))]


def next_poll(view: ReplicaView) -> float:
    """Return the seconds until the next read of the Leases."""
    leads = view.layout.shards == 1 and view.layout.name in view.held and not view.leaving
    return view.times.retry if leads else view.times.look


def _keep(view: ReplicaView) -> Iterator[LeaseStep]:
    for name, requested_at in view.held.items():
        if name in view.leaving and name not in view.busy:
            yield LeaseStep(LeaseAction.RELEASE, name)
        elif view.now >= requested_at + view.times.retry:
            yield LeaseStep(LeaseAction.RENEW, name)


def _leave_all(view: ReplicaView) -> Iterator[LeaseStep]:
    """Leave every seat. After the last, leave the place, and the shared Lease if no other replica is running."""
    layout = view.layout
    seats = [name for name in layout.seats if name in view.held]
    rest = [name for name in layout.places if name in view.held]
    if layout.shared in view.held and view.is_alone:
        rest.append(layout.shared)
    for name in seats or rest:
        if name not in view.leaving:
            yield LeaseStep(LeaseAction.LEAVE, name)


def _take(view: ReplicaView) -> Iterator[LeaseStep]:
    layout = view.layout
    if layout.shared:
        if layout.shared not in view.held:
            if view.is_free(layout.shared):
                yield LeaseStep(LeaseAction.TAKE, layout.shared)
            return
        if not any(name in view.held for name in layout.places):
            free = [name for name in layout.places if view.is_free(name)]
            yield from (LeaseStep(LeaseAction.TAKE, name) for name in free[:1])
            return
    # This replica takes a lost seat again only after the work of that seat has ended.
    free = [name for name in view.free_seats if name not in view.busy]
    for name in _turned(free, layout, view.held)[: view.seats_to_take]:
        yield LeaseStep(LeaseAction.TAKE, name)


def _turned(free: list[str], layout: LeaseLayout, held: Iterable[str]) -> list[str]:
    """Rotate the free seats by the replica's place, so that replicas do not compete for the same one."""
    place = next((i for i, name in enumerate(layout.places) if name in held), 0)
    start = place * len(free) // layout.shards
    return free[start:] + free[:start]


def _release_surplus(view: ReplicaView) -> Iterator[LeaseStep]:
    left = sum(name in view.leaving for name in view.layout.seats)
    seats = [name for name in view.layout.seats if name in view.held and name not in view.leaving]
    seats.sort(key=lambda name: name in view.busy)
    for name in seats[: max(0, view.seats_to_release() - left)]:
        yield LeaseStep(LeaseAction.LEAVE, name)
