"""Who of several replicas works on what, decided over Lease values and a clock. Pure.

Glossary: a *seat* is a Lease that somebody has to hold to do something. Leader election has one; with N shards there
are N, one for each, and beside them the *layout*, which all replicas of the same N hold together, so that replicas that
count shards differently (or do not shard) never work at the same time; and N *places*, by which a replica shows that
it is there and wants its share.

Guarantees, given that `now` never goes back and runs as fast as others' clocks do:

- A Lease is taken from somebody only when it was released, or was seen unchanged for as long as its holder asked for.
  Nobody's timestamps are believed (as in client-go's `leaderelection`).
- What we hold ends, for us, `renew` seconds after the last renewal that was granted had been *sent*, and no sign of
  life of ours is later than `hard`; both lie before the time at which anyone else may take it.
- A replica gives up a shard only for one that has less than its share, so that shares level out and then stay.

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
    """How long what lasts, in seconds. `lease` is longer than `renew`."""

    lease: float
    """Others wait for this long before they take what we hold and no longer renew."""
    renew: float
    """What we hold and could not renew for this long, we give up."""

    @property
    def retry(self) -> float:
        """Between two renewals."""
        return min(_LONGEST_RETRY, self.renew / _RETRIES)

    @property
    def look(self) -> float:
        """Between two looks for what is free."""
        return min(_LONGEST_LOOK, self.retry)

    @property
    def hard(self) -> float:
        """After this long without a renewal nothing of ours may be left, which the kernel sees to."""
        return (self.lease + self.renew) / 2

    @property
    def lease_seconds(self) -> int:
        """`leaseDurationSeconds`."""
        return math.ceil(self.lease)


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What a Lease says. Times are text: they are for people."""

    holder: str
    """Empty: released."""
    seconds: int
    acquired: str
    renewed: str
    transitions: int

    def taken(self, holder: str, times: LeaseTimes, now: str) -> LeaseRecord:
        """The record of somebody who takes it, or renews what is theirs."""
        if holder == self.holder:
            return LeaseRecord(holder, times.lease_seconds, self.acquired, now, self.transitions)
        return LeaseRecord(holder, times.lease_seconds, now, now, self.transitions + 1)

    def released(self, now: str) -> LeaseRecord:
        """The record of one who gives it up, so that others need not wait."""
        return LeaseRecord("", 1, now, now, self.transitions)


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A Lease as it was read."""

    record: LeaseRecord
    version: str
    """Its resourceVersion: a write that names it takes place only if nobody wrote meanwhile."""
    since: float
    """When the record was first seen so, by our own clock."""

    def is_free(self, now: float) -> bool:
        """Whether anyone may take it."""
        return not self.record.holder or now >= self.since + self.record.seconds


def observe(
    before: Mapping[str, ObservedLease], found: Mapping[str, tuple[LeaseRecord, str]], now: float
) -> dict[str, ObservedLease]:
    """Fold what was read at `now` into what was seen before: a record that stays the same gets older."""
    seen: dict[str, ObservedLease] = {}
    for name, (record, version) in found.items():
        old = before.get(name)
        since = old.since if old is not None and old.record == record else now
        seen[name] = ObservedLease(record, version, since)
    return seen


@dataclass(frozen=True, slots=True)
class LeaseLayout:
    """The Leases of all replicas. One shard is leader election: one Lease, named as other operators name theirs."""

    name: str
    shards: int

    @property
    def seats(self) -> tuple[str, ...]:
        """The Leases that stand for work; a shard's number is its place here."""
        return (self.name,) if self.shards == 1 else tuple(f"{self.name}-shard-{i}" for i in range(self.shards))

    @property
    def places(self) -> tuple[str, ...]:
        """The Leases by which replicas that share show that they are there."""
        return () if self.shards == 1 else tuple(f"{self.name}-replica-{i}" for i in range(self.shards))

    @property
    def shared(self) -> str:
        """The Lease that all replicas of this layout hold together; empty where one leads."""
        return "" if self.shards == 1 else self.name

    @property
    def shared_holder(self) -> str:
        """Who holds it."""
        return f"{self.shards}-shards"

    def holder(self, name: str, me: str) -> str:
        """As whom a replica holds a Lease."""
        return self.shared_holder if name == self.shared else me

    def shard_of(self, gvk: GVK, key: ObjectKey) -> int:
        """The shard of an object: the same in every replica, whatever the version it is watched in."""
        if self.shards == 1:
            return 0
        text = "\0".join((gvk.group, gvk.kind, *key)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") % self.shards


class LeaseAction(Enum):
    """What is to be done about a Lease."""

    TAKE = "take"
    RENEW = "renew"
    LEAVE = "leave"
    """Start nothing new for it; release it once nothing goes on."""
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class LeaseStep:
    """One of them."""

    deed: LeaseAction
    name: str


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """What one replica knows."""

    me: str
    layout: LeaseLayout
    times: LeaseTimes
    now: float
    seen: Mapping[str, ObservedLease]
    held: Mapping[str, float]
    """What is ours, and when the last renewal that was granted had been sent."""
    leaving: frozenset[str] = frozenset()
    """What of it is to be released."""
    busy: frozenset[str] = frozenset()
    """Seats for which something goes on, ours or ours until just now."""
    is_draining: bool = False
    """Whether the process is about to end."""
    _members: frozenset[str] = field(init=False)
    _counts: Counter[str] = field(init=False)

    def __post_init__(self) -> None:
        """Count who is there, and who holds how much."""
        places = (self.seen[name] for name in self.layout.places if name in self.seen)
        members = frozenset(each.record.holder for each in places if not each.is_free(self.now))
        object.__setattr__(self, "_members", members | {self.me})
        seats = (self.seen[name] for name in self.layout.seats if name in self.seen)
        live = Counter(each.record.holder for each in seats if not each.is_free(self.now))
        object.__setattr__(self, "_counts", Counter({member: live[member] for member in self._members}))

    def is_free(self, name: str) -> bool:
        """Whether a Lease can be taken: released, expired, or not there yet; or left over from ourselves."""
        seen = self.seen.get(name)
        return seen is None or seen.is_free(self.now) or seen.record.holder == self.layout.holder(name, self.me)

    @property
    def free_seats(self) -> list[str]:
        """Seats that can be taken now."""
        return [name for name in self.layout.seats if name not in self.held and self.is_free(name)]

    @property
    def floor(self) -> int:
        """The seats that each replica should have at least."""
        return self.layout.shards // len(self._members)

    @property
    def ceiling(self) -> int:
        """The seats that each replica may have at most."""
        return -(-self.layout.shards // len(self._members))

    def wanting(self) -> int:
        """How many seats other replicas lack."""
        return sum(max(0, self.floor - self._counts[each]) for each in self._members if each != self.me)

    @property
    def appetite(self) -> int:
        """How many free seats we should take."""
        have = sum(name in self.held for name in self.layout.seats)
        if have < self.floor:
            return self.floor - have
        return int(have < self.ceiling and not self.wanting())

    @property
    def is_alone(self) -> bool:
        """Whether no other replica is there."""
        return self._members == {self.me}

    def to_give(self) -> int:
        """How many of our seats are more than our share, so that others need them. Those that are being left count."""
        counts = Counter(self._counts)
        surplus = max(0, counts[self.me] - self.ceiling)
        for _ in range(self.wanting() - len(self.free_seats)):
            richest = max(self._members, key=lambda each: (counts[each], each))
            if counts[richest] <= self.floor:
                break
            counts[richest] -= 1
        return max(surplus, self._counts[self.me] - counts[self.me])


def plan(view: ReplicaView) -> list[LeaseStep]:
    """Say what one replica does now about each Lease."""
    return [*_keep(view), *(_leave_all(view) if view.is_draining else (*_take(view), *_give(view)))]


def next_poll(view: ReplicaView) -> float:
    """In how many seconds to look again."""
    leads = view.layout.shards == 1 and view.layout.name in view.held and not view.leaving
    return view.times.retry if leads else view.times.look


def _keep(view: ReplicaView) -> Iterator[LeaseStep]:
    for name, asked in view.held.items():
        if name in view.leaving and name not in view.busy:
            yield LeaseStep(LeaseAction.RELEASE, name)
        elif view.now >= asked + view.times.retry:
            yield LeaseStep(LeaseAction.RENEW, name)


def _leave_all(view: ReplicaView) -> Iterator[LeaseStep]:
    """Leave every seat; when all are released, the place, and the layout if nobody else is there."""
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
    # What still goes on for a seat that we have lost must have ended before we can have it again.
    free = [name for name in view.free_seats if name not in view.busy]
    for name in _turned(free, layout, view.held)[: view.appetite]:
        yield LeaseStep(LeaseAction.TAKE, name)


def _turned(free: list[str], layout: LeaseLayout, held: Iterable[str]) -> list[str]:
    """Begin elsewhere than others do, so that not all reach for the same."""
    place = next((i for i, name in enumerate(layout.places) if name in held), 0)
    start = place * len(free) // layout.shards
    return free[start:] + free[:start]


def _give(view: ReplicaView) -> Iterator[LeaseStep]:
    left = sum(name in view.leaving for name in view.layout.seats)
    seats = [name for name in view.layout.seats if name in view.held and name not in view.leaving]
    seats.sort(key=lambda name: name in view.busy)
    for name in seats[: max(0, view.to_give() - left)]:
        yield LeaseStep(LeaseAction.LEAVE, name)
