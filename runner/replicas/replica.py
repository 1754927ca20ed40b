"""One of several replicas, which shares the work by Leases. `election` decides; this module acts.

Flow: read the Leases, call `election.plan`, carry out its steps. When a shard is acquired, the listeners start the work
on its objects, each under a guard. A shard that is being released gets no new guards, and is released when its last
guard ends. A shard that was not renewed in time is lost, together with its guards. It is not acquired again before they
have ended.

Guarantees: a guard is given only while the shard's Lease is held by the clock. Work under a guard is cancelled `renew`
seconds after the last renewal, and the kernel ends the process if that fails (`kernel_deadline`). So no work is in
progress when another replica can acquire the shard. Every step is logged.

Assumes: one event loop; `clock` runs while the process is stopped.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from runner import log
from runner.errors import ApiError, ApiUnavailableError, ConflictError, NotFoundError
from runner.objects import GVK, ObjectKey
from runner.replicas import election
from runner.replicas.election import (
    LeaseAction,
    LeaseLayout,
    LeaseRecord,
    LeaseStep,
    LeaseTimes,
    ObservedLease,
    ReplicaView,
)
from runner.replicas.lease_guard import LeaseGuard, ShardListener

_log = log.get(__name__)


class LeaseStore(Protocol):
    """Storage of the Leases."""

    async def read(self, names: Collection[str]) -> Mapping[str, tuple[LeaseRecord, str]]:
        """Return the existing Leases of these names."""
        ...

    async def write(self, name: str, record: LeaseRecord) -> tuple[LeaseRecord, str]:
        """Write a Lease if no other client wrote it since it was read."""
        ...


class ProcessDeadline(Protocol):
    """Ends this process at a deadline."""

    def arm(self, due: float | None) -> None:
        """Set the deadline; None removes it."""
        ...


@dataclass(slots=True)
class _Seat:
    """A held Lease, or a lost one that still has guards."""

    requested_at: float
    """Time at which the last renewal that was granted was sent."""
    is_lost: bool = False
    is_leaving: bool = False
    holds: set[LeaseGuard] = field(default_factory=set)


class Replica:
    """See the module."""

    def __init__(
        self,
        board: LeaseStore,
        layout: LeaseLayout,
        times: LeaseTimes,
        *,
        me: str,
        clock: Callable[[], float],
        deadline: ProcessDeadline,
    ) -> None:
        self._board = board
        self._layout = layout
        self._times = times
        self._me = me
        self._clock = clock
        self._deadline = deadline
        self._names = tuple(filter(None, (layout.shared, *layout.places, *layout.seats)))
        self._shards = {name: shard for shard, name in enumerate(layout.seats)}
        self._seen: dict[str, ObservedLease] = {}
        self._looked = float("-inf")
        self._seats: dict[str, _Seat] = {}
        self._listeners: list[ShardListener] = []
        self._is_draining = False
        self._changed = asyncio.Event()
        self._expiry: asyncio.TimerHandle | None = None
        self._trouble = ""
        self._rival = ""

    # Shards of this replica.

    def listen(self, listener: ShardListener) -> None:
        """See ShardOwnership."""
        self._listeners.append(listener)

    def shard_of(self, gvk: GVK, key: ObjectKey) -> int:
        """See ShardOwnership."""
        return self._layout.shard_of(gvk, key)

    def owns(self, gvk: GVK, key: ObjectKey) -> bool:
        """See ShardOwnership."""
        return self._begins(self._name_of(gvk, key))

    def has_any(self) -> bool:
        """See ShardOwnership."""
        return bool(self.held)

    def has_all(self) -> bool:
        """See ShardOwnership."""
        return len(self.held) == len(self._shards)

    @property
    def held(self) -> frozenset[int]:
        """Shards that this replica holds now."""
        return frozenset(shard for name, shard in self._shards.items() if self._begins(name))

    @contextmanager
    def hold(self, gvk: GVK, key: ObjectKey) -> Iterator[LeaseGuard | None]:
        """See ShardOwnership."""
        name = self._name_of(gvk, key)
        seat = self._seats.get(name)
        if seat is None or not self._begins(name):
            yield None
            return
        hold = LeaseGuard(lambda: self._is_valid(name, seat))
        seat.holds.add(hold)
        # From here on the kernel watches; what was true before that may have passed.
        self._arm()
        try:
            yield hold if self._begins(name) else None
        finally:
            seat.holds.discard(hold)
            self._arm()
            if not seat.holds and (seat.is_leaving or seat.is_lost):
                self._settle(name, seat)

    def _name_of(self, gvk: GVK, key: ObjectKey) -> str:
        return self._layout.seats[self._layout.shard_of(gvk, key)]

    def _begins(self, name: str) -> bool:
        seat = self._seats.get(name)
        return seat is not None and not seat.is_leaving and self._is_valid(name, seat)

    def _is_valid(self, name: str, seat: _Seat) -> bool:
        if seat.is_lost or self._seats.get(name) is not seat:
            return False
        return self._clock() < self._granted(seat) + self._times.renew

    def _granted(self, seat: _Seat) -> float:
        """Return the time of the last renewal that a seat depends on: its own, and that of the shared Lease."""
        shared = self._seats.get(self._layout.shared) if self._layout.shared else seat
        return (
            min(seat.requested_at, shared.requested_at) if shared is not None and not shared.is_lost else float("-inf")
        )

    # The loop.

    async def follow(self) -> None:
        """See ShardOwnership."""
        _log.info(
            "Joining the replicas that share the work" if self._layout.shards > 1 else "Waiting for the leader lease",
            lease=self._layout.name,
            shards=self._layout.shards,
            identity=self._me,
        )
        while not self._is_draining or not self._is_empty():
            await self._look()
            for step in election.plan(self._view()):
                if step.action is LeaseAction.LEAVE:
                    self._leave(step.name)
            due = [step for step in election.plan(self._view()) if step.action is not LeaseAction.LEAVE]
            await asyncio.gather(*(self._write(step) for step in due))
            if not self._is_draining or not self._is_empty():
                await self._pause(election.next_poll(self._view()))
        # The shared Lease stays: other replicas may hold it.
        self._seats.clear()
        self._schedule()

    def drain(self) -> None:
        """See ShardOwnership."""
        self._is_draining = True
        self._changed.set()

    def _is_empty(self) -> bool:
        """Return True if nothing is left to release. The other replicas keep the shared Lease."""
        return all(name == self._layout.shared and not seat.is_leaving for name, seat in self._seats.items())

    def _view(self) -> ReplicaView:
        kept = {name: seat for name, seat in self._seats.items() if not seat.is_lost}
        return ReplicaView(
            me=self._me,
            layout=self._layout,
            times=self._times,
            now=self._clock(),
            seen=self._seen,
            held={name: seat.requested_at for name, seat in kept.items()},
            leaving=frozenset(name for name, seat in kept.items() if seat.is_leaving),
            busy=frozenset(name for name, seat in self._seats.items() if seat.holds),
            is_draining=self._is_draining,
        )

    async def _pause(self, seconds: float) -> None:
        spread = random.uniform(0.8, 1.0)  # noqa: S311 - spreads load, guards nothing
        try:
            async with asyncio.timeout(seconds * spread):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def _look(self) -> None:
        requested_at = self._clock()
        try:
            async with asyncio.timeout(self._times.renew / 4):
                found = await self._board.read(self._names)
        except (ApiError, ApiUnavailableError, TimeoutError) as error:
            self._note_trouble("read", error)
            return
        self._trouble = ""
        before, self._seen = self._seen, election.observe(self._seen, found, self._clock())
        self._note_peers(before)
        self._looked = requested_at
        for name, seat in list(self._seats.items()):
            seen = self._seen.get(name)
            holder = seen.record.holder if seen else ""
            if seat.is_lost or holder == self._layout.holder(name, self._me):
                continue
            if seat.is_leaving and not seat.holds:
                # A release whose answer did not come.
                del self._seats[name]
            else:
                self._lose(name, seat, f"{f'its holder is {holder}' if holder else 'it has no holder'}")
        self._note_rival()

    def _note_peers(self, before: Mapping[str, ObservedLease]) -> None:
        """Count a renewal of the shared Lease by another replica: it took place after the previous read began."""
        name = self._layout.shared
        seat, old, new = self._seats.get(name), before.get(name), self._seen.get(name)
        if seat is None or seat.is_lost or old is None or new is None or new.record == old.record:
            return
        if new.record.holder == self._layout.shared_holder:
            self._renewed(seat, self._looked)

    async def _write(self, step: LeaseStep) -> None:
        """Carry out a step. If another replica was first, the next read shows the result."""
        name = step.name
        seen = self._seen.get(name)
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        if step.action is LeaseAction.RELEASE:
            record = (seen.record if seen else _NOTHING).released(now)
        elif seen is None:
            record = LeaseRecord(self._layout.holder(name, self._me), self._times.lease_seconds, now, now, 0)
        else:
            record = seen.record.taken(self._layout.holder(name, self._me), self._times, now)
        requested_at = self._clock()
        try:
            async with asyncio.timeout(self._times.renew / 2):
                written, version = await self._board.write(name, record)
        except (ConflictError, NotFoundError) as error:
            _log.debug("Another replica wrote the Lease first", lease=name, error=str(error))
            return
        except (ApiError, ApiUnavailableError, TimeoutError) as error:
            self._note_trouble(step.action.value, error)
            return
        self._seen[name] = ObservedLease(written, version, self._clock())
        self._written(step, requested_at)

    def _written(self, step: LeaseStep, requested_at: float) -> None:
        seat = self._seats.get(step.name)
        match step.action:
            case LeaseAction.RELEASE:
                if seat is not None and not seat.is_lost:
                    del self._seats[step.name]
                    _log.info("Lease released", lease=step.name)
            case LeaseAction.TAKE:
                self._seats[step.name] = _Seat(requested_at)
                self._schedule()
                self._taken(step.name)
            case _:
                if seat is not None:
                    self._renewed(seat, requested_at)

    def _renewed(self, seat: _Seat, requested_at: float) -> None:
        """Extend a seat, unless it expired before the response arrived.

        An expired seat is lost even if its timer is late, because requests that were refused meanwhile are not
        repeated.
        """
        self._expire()
        if not seat.is_lost:
            seat.requested_at = max(seat.requested_at, requested_at)
            self._schedule()

    # Taking, leaving, losing.

    def _taken(self, name: str) -> None:
        shard = self._shards.get(name)
        _log.info("Lease acquired", lease=name, identity=self._layout.holder(name, self._me))
        if shard is not None:
            for listener in self._listeners:
                listener.gained(shard)

    def _leave(self, name: str) -> None:
        seat = self._seats[name]
        seat.is_leaving = True
        if name in self._shards:
            _log.info(
                "Releasing the lease when its runs end" if seat.holds else "Releasing the lease",
                lease=name,
                running=len(seat.holds),
            )
            self._notify_lost(name)

    def _lose(self, name: str, seat: _Seat, why: str) -> None:
        """Cancel the work of a seat: another replica may acquire it soon."""
        seat.is_lost = True
        _log.error("Lease lost", lease=name, why=why, running=len(seat.holds))
        if name in self._shards and not seat.is_leaving:
            self._notify_lost(name)
        if name == self._layout.shared:
            for other in [other for other in self._shards if other in self._seats and not self._seats[other].is_lost]:
                self._lose(other, self._seats[other], f"{name} was lost")
        for hold in list(seat.holds):
            hold.lose()
        if not seat.holds:
            self._settle(name, seat)

    def _notify_lost(self, name: str) -> None:
        for listener in self._listeners:
            listener.lost(self._shards[name])

    def _settle(self, name: str, seat: _Seat) -> None:
        """Remove a lost seat whose last guard has ended."""
        if seat.is_lost and self._seats.get(name) is seat:
            del self._seats[name]
        self._changed.set()

    # Time.

    def _schedule(self) -> None:
        """Set the timer for the first seat that expires."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        kept = [seat.requested_at for seat in self._seats.values() if not seat.is_lost]
        if kept:
            delay = min(kept) + self._times.renew - self._clock()
            self._expiry = asyncio.get_running_loop().call_later(max(delay, 0.0), self._expire)
        self._arm()

    def _expire(self) -> None:
        """Lose the seats that were not renewed in time."""
        now = self._clock()
        for name, seat in list(self._seats.items()):
            if not seat.is_lost and now >= seat.requested_at + self._times.renew:
                self._lose(name, seat, f"it was not renewed for {self._times.renew:g} s")
        self._schedule()

    def _arm(self) -> None:
        """Set the kernel's deadline for the guards in use."""
        shared = self._seats.get(self._layout.shared)
        busy = [seat.requested_at for seat in self._seats.values() if seat.holds]
        if busy and shared is not None:
            busy.append(shared.requested_at)
        self._deadline.arm(min(busy) + self._times.hard if busy else None)

    # Logging.

    def _note_trouble(self, what: str, error: Exception) -> None:
        text = f"{what}: {error!r}"
        if text != self._trouble:
            self._trouble = text
            _log.warning("Cannot read or write a Lease; retrying", error=text)

    def _note_rival(self) -> None:
        """Log each new holder that prevents this replica from working."""
        name = self._layout.shared or self._layout.name
        seen = self._seen.get(name)
        is_other = seen is not None and name not in self._seats and not seen.is_free(self._clock())
        rival = seen.record.holder if seen is not None and is_other else ""
        if rival != self._rival:
            self._rival = rival
            if rival:
                _log.info("Another replica holds the leader lease", lease=name, holder=rival)


_NOTHING = LeaseRecord("", 1, "", "", 0)
