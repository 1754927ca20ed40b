"""One of several replicas, of which one leads by a Lease. `election` decides; this module acts.

Flow: read the Lease, call `election.plan`, carry out its action. When the Lease is acquired, the listeners start the
work on all objects, each under a guard. A replica that is about to end gives no new guards, and releases the Lease when
its last guard ends. A Lease that was not renewed in time is lost, together with its guards. It is not acquired again
before they have ended.

Guarantees: a guard is given only while the Lease is held by the clock. Work under a guard is cancelled `renew` seconds
after the last renewal, and the kernel ends the process if that fails (`kernel_deadline`). So no work is in progress
when another replica can acquire the Lease. Every step is logged.

Assumes: one event loop; `clock` runs while the process is stopped.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from typing import Protocol

from runner.base import log
from runner.base.config.settings import Settings
from runner.base.credentials.auth import Credentials, OwnNamespaces
from runner.base.meters import Meters
from runner.core.kube.client import Client, ClientLimits
from runner.features.replicas import election, kernel_deadline
from runner.features.replicas.election import LeaseAction, LeaseRecord, LeaseTimes, ObservedLease, ReplicaView
from runner.features.replicas.leases import LeaseClient
from runner.values.errors import ApiError, ApiUnavailableError, ConfigError, ConflictError, NotFoundError
from runner.values.lease_guard import Leadership, LeaseGuard


class LeaseStore(Protocol):
    """Storage of the Lease."""

    async def read(self) -> tuple[LeaseRecord, str] | None:
        """Return the Lease with its version; None if it does not exist."""
        ...

    async def write(self, record: LeaseRecord) -> tuple[LeaseRecord, str]:
        """Write the Lease if no other client wrote it since it was read."""
        ...


class ProcessDeadline(Protocol):
    """Ends this process at a deadline."""

    def arm(self, due: float | None) -> None:
        """Set the deadline; None removes it."""
        ...


class Replica(Leadership):
    """See the module."""

    def __init__(
        self,
        store: LeaseStore,
        name: str,
        times: LeaseTimes,
        *,
        me: str,
        clock: Callable[[], float],
        deadline: ProcessDeadline,
    ) -> None:
        """`name` is the Lease's, `me` the identity with which this replica holds it."""
        super().__init__()
        self._store = store
        self._times = times
        self._me = me
        self._clock = clock
        self._deadline = deadline
        self._log = log.get(__name__, lease=name)
        self._seen: ObservedLease | None = None
        self._is_held = False
        self._granted_at = float("-inf")
        """Time at which the last renewal that was granted was sent."""
        self._guards: set[LeaseGuard] = set()
        """Guards in use, also of a Lease that was lost."""
        self._listeners: list[Callable[[], None]] = []
        self._is_draining = False
        self._changed = asyncio.Event()
        self._expiry: asyncio.TimerHandle | None = None
        self._trouble = ""
        self._rival = ""

    def listen(self, changed: Callable[[], None]) -> None:
        """See Leadership."""
        self._listeners.append(changed)

    def leads(self) -> bool:
        """See Leadership."""
        return not self._is_draining and self._is_valid()

    @contextmanager
    def hold(self, *, ends: bool = False) -> Iterator[LeaseGuard | None]:
        """See Leadership."""
        may_begin = self._is_valid if ends else self.leads
        if not may_begin():
            yield None
            return
        guard = LeaseGuard(self._is_valid)
        self._guards.add(guard)
        # From here on the kernel watches; what was true before that may have passed.
        self._arm()
        try:
            yield guard if may_begin() else None
        finally:
            self._guards.discard(guard)
            self._arm()
            if not self._guards and (self._is_draining or not self._is_held):
                self._changed.set()

    def _is_valid(self) -> bool:
        return self._is_held and self._clock() < self._granted_at + self._times.renew

    # The loop.

    async def follow(self) -> None:
        """See Leadership."""
        self._log.info("Waiting for the leader lease", identity=self._me)
        while not self._is_over():
            await self._look()
            action = election.plan(self._view())
            if action is not None:
                await self._write(action)
            if not self._is_over():
                await self._pause(election.next_poll(self._view()))
        self._schedule()

    def drain(self) -> None:
        """See Leadership."""
        self._is_draining = True
        if self._is_held:
            self._log.info(
                "Releasing the lease when its runs end" if self._guards else "Releasing the lease",
                running=len(self._guards),
            )
        self._changed.set()

    def _is_over(self) -> bool:
        return self._is_draining and not self._is_held and not self._guards

    def _view(self) -> ReplicaView:
        return ReplicaView(
            me=self._me,
            times=self._times,
            now=self._clock(),
            seen=self._seen,
            granted_at=self._granted_at if self._is_held else None,
            is_busy=bool(self._guards),
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
        try:
            async with asyncio.timeout(self._times.renew / 4):
                stored = await self._store.read()
        except (ApiError, ApiUnavailableError, TimeoutError) as error:
            self._note_trouble("read", error)
            return
        self._trouble = ""
        self._seen = election.observe(self._seen, stored, self._clock())
        holder = self._seen.record.holder if self._seen is not None else ""
        if self._is_held and holder != self._me:
            if self._is_draining and not self._guards:
                # A release whose answer did not come.
                self._is_held = False
            else:
                self._lose(f"its holder is {holder}" if holder else "it has no holder")
        self._note_rival()

    async def _write(self, action: LeaseAction) -> None:
        """Carry out an action. If another replica was first, the next read shows the result."""
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        record = election.record_after(action, self._seen, self._me, self._times, now)
        requested_at = self._clock()
        try:
            async with asyncio.timeout(self._times.renew / 2):
                written, version = await self._store.write(record)
        except (ConflictError, NotFoundError) as error:
            self._log.debug("Another replica wrote the Lease first", error=str(error))
            return
        except (ApiError, ApiUnavailableError, TimeoutError) as error:
            self._note_trouble(action.value, error)
            return
        self._seen = ObservedLease(written, version, self._clock())
        match action:
            case LeaseAction.TAKE:
                self._acquired(requested_at)
            case LeaseAction.RENEW:
                self._renewed(requested_at)
            case LeaseAction.RELEASE if self._is_held:
                self._is_held = False
                self._log.info("Lease released")

    # Acquiring, renewing, losing.

    def _acquired(self, requested_at: float) -> None:
        self._is_held, self._granted_at = True, requested_at
        self._schedule()
        self._log.info("Lease acquired", identity=self._me)
        self._notify()

    def _renewed(self, requested_at: float) -> None:
        """Extend the Lease, unless it expired before the response arrived.

        An expired Lease is lost even if its timer is late, because requests that were refused meanwhile are not
        repeated.
        """
        self._expire()
        if self._is_held:
            self._granted_at = max(self._granted_at, requested_at)
            self._schedule()

    def _lose(self, why: str) -> None:
        """Cancel the work: another replica may lead soon."""
        self._is_held = False
        self._log.error("Lease lost", why=why, running=len(self._guards))
        self._notify()
        for guard in list(self._guards):
            guard.lose()
        if not self._guards:
            self._changed.set()

    def _notify(self) -> None:
        for changed in self._listeners:
            changed()

    # Time.

    def _schedule(self) -> None:
        """Set the timer for the expiry of the Lease."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._is_held:
            delay = self._granted_at + self._times.renew - self._clock()
            self._expiry = asyncio.get_running_loop().call_later(max(delay, 0.0), self._expire)
        self._arm()

    def _expire(self) -> None:
        """Lose the Lease if it was not renewed in time."""
        if self._is_held and not self._is_valid():
            self._lose(f"it was not renewed for {self._times.renew:g} s")
        self._schedule()

    def _arm(self) -> None:
        """Set the kernel's deadline for the guards in use."""
        self._deadline.arm(self._granted_at + self._times.hard if self._guards else None)

    # Logging.

    def _note_trouble(self, what: str, error: Exception) -> None:
        text = f"{what}: {error!r}"
        if text != self._trouble:
            self._trouble = text
            self._log.warning("Cannot read or write the Lease; retrying", error=text)

    def _note_rival(self) -> None:
        """Log each new holder that prevents this replica from working."""
        seen = self._seen
        is_other = seen is not None and not self._is_held and not seen.is_free(self._clock())
        rival = seen.record.holder if seen is not None and is_other else ""
        if rival != self._rival:
            self._rival = rival
            if rival:
                self._log.info("Another replica holds the leader lease", holder=rival)


_CONNECTIONS = 2


async def make(settings: Settings, credentials: Credentials, meters: Meters, stack: AsyncExitStack) -> Replica:
    """Create the replica of this process. Raises ConfigError if a setting is missing.

    It has connections of its own, so that no other request delays a renewal.
    """
    namespace = OwnNamespaces.of_process(settings.leader_election_namespace).leases
    if not namespace:
        raise ConfigError("--leader-election-namespace is required outside a cluster: set the namespace of the Lease")
    times = LeaseTimes(settings.leader_elect_lease_duration, settings.leader_elect_renew_deadline)
    limits = ClientLimits(total=times.renew / 2, attempts=1, connections=_CONNECTIONS)
    client = await stack.enter_async_context(Client(credentials, limits))
    # Another name for each process: one that has ended may have left runs, which its successor must not overtake.
    me = f"{settings.pod_name or socket.gethostname()}_{secrets.token_hex(8)}"
    name = settings.leader_election_id
    replica = Replica(
        LeaseClient(client, namespace, name),
        name,
        times,
        me=me,
        clock=kernel_deadline.clock,
        deadline=kernel_deadline.make(),
    )
    text = "Whether this replica holds the Lease (1) or not (0)"
    meters.observable_gauge("leader_election_master_status", text, ["name"], lambda: {name: replica.leads()})
    return replica
