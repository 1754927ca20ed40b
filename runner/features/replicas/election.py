"""Leader election over one Lease, decided from its value and a clock. Pure.

Guarantees, if `now` never decreases and runs as fast as the clocks of the other replicas:

- A replica takes the Lease only if the holder released it, or if it was unchanged for the duration that its holder set.
  Timestamps in the Lease are not used (as in client-go's `leaderelection`).
- A replica loses the Lease `renew` seconds after it *sent* the last renewal that was granted. The kernel ends the
  process at `hard`. Both come before another replica may take the Lease.

Source of the fields: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

_LONGEST_RETRY = 2.0
_LONGEST_LOOK = 0.5
_RETRIES = 5


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations in seconds. `lease` is longer than `renew`."""

    lease: float
    """Other replicas wait for this long before they take a Lease that is not renewed."""
    renew: float
    """A leader gives up a Lease that it could not renew for this long."""

    @property
    def retry(self) -> float:
        """Interval between two renewals."""
        return min(_LONGEST_RETRY, self.renew / _RETRIES)

    @property
    def look(self) -> float:
        """Interval between two reads of the Lease by a replica that waits for it."""
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
        """Return True if any replica may take the Lease: it was released, or has expired."""
        return not self.record.holder or now >= self.since + self.record.seconds


def observe(before: ObservedLease | None, stored: tuple[LeaseRecord, str] | None, now: float) -> ObservedLease | None:
    """Return the Lease as read at `now`; an unchanged record keeps its `since`."""
    if stored is None:
        return None
    record, version = stored
    is_same = before is not None and before.record == record
    return ObservedLease(record, version, before.since if before is not None and is_same else now)


class LeaseAction(Enum):
    """An action on the Lease."""

    TAKE = "take"
    RENEW = "renew"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """Input of the decisions of one replica."""

    me: str
    times: LeaseTimes
    now: float
    seen: ObservedLease | None
    """None if the Lease does not exist."""
    granted_at: float | None
    """Time at which the replica sent the last renewal that was granted; None if it does not hold the Lease."""
    is_busy: bool = False
    """True while work is in progress under a Lease that is held or was just lost."""
    is_draining: bool = False
    """True if the process is about to end."""


def plan(view: ReplicaView) -> LeaseAction | None:
    """Return the action of one replica on the Lease; None if it waits."""
    if view.granted_at is not None:
        if view.is_draining and not view.is_busy:
            return LeaseAction.RELEASE
        return LeaseAction.RENEW if view.now >= view.granted_at + view.times.retry else None
    # A replica takes a lost Lease again only after its work has ended.
    if view.is_draining or view.is_busy:
        return None
    is_free = view.seen is None or view.seen.is_free(view.now) or view.seen.record.holder == view.me
    return LeaseAction.TAKE if is_free else None


def record_after(action: LeaseAction, seen: ObservedLease | None, me: str, times: LeaseTimes, now: str) -> LeaseRecord:
    """Return the record that an action writes at the time `now`."""
    if seen is None:
        return LeaseRecord(me, times.lease_seconds, now, now, 0)
    return seen.record.released(now) if action is LeaseAction.RELEASE else seen.record.taken(me, times, now)


def next_poll(view: ReplicaView) -> float:
    """Return the seconds until the next read of the Lease."""
    return view.times.look if view.granted_at is None or view.is_draining else view.times.retry
