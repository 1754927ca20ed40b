"""Guards of the work on single objects: a replica works on an object only while it holds the Lease of its shard.

A controller gets a `LeaseGuard` before it works on an object and keeps it until the work has ended. A shard is released
when no guard of it is in use. If the Lease is lost, the guard cancels the work. `ShardOwnership` selects the
objects of this replica: `SoleReplica` without leader election and shards, `replica.Replica` with them.

Must not import: anything that does I/O.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Protocol

from runner.errors import LeaseLostError
from runner.objects import GVK, ObjectKey


class LeaseGuard:
    """Permission to work on one object."""

    def __init__(self, is_valid: Callable[[], bool]) -> None:
        self._is_valid = is_valid
        self._is_lost = False
        self._callbacks: list[Callable[[], None]] = []

    def is_valid(self) -> bool:
        """Return True if the shard's Lease is held now. Check it immediately before a write is sent."""
        return not self._is_lost and self._is_valid()

    def check(self) -> None:
        """Raise LeaseLostError if another replica may have the object."""
        if not self.is_valid():
            raise LeaseLostError("the Lease of this object's shard could not be renewed in time")

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Register a callback for the loss of the Lease; call it at once if the Lease is lost."""
        if self._is_lost:
            callback()
        else:
            self._callbacks.append(callback)

    def lose(self) -> None:
        """Mark the guard as lost permanently."""
        self._is_lost = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    @asynccontextmanager
    async def guard(self) -> AsyncIterator[None]:
        """Cancel the block if the Lease is lost, and raise LeaseLostError when the block has ended."""
        self.check()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as bound:
                self.when_lost(lambda: bound.reschedule(loop.time()))
                try:
                    yield
                finally:
                    self._callbacks.clear()
        except TimeoutError as error:
            if not self._is_lost:
                raise
            raise LeaseLostError("the Lease of this object's shard was lost") from error


class ShardListener(Protocol):
    """Receiver of changes of this replica's shards."""

    def gained(self, shard: int) -> None:
        """The replica acquired a shard."""
        ...

    def lost(self, shard: int) -> None:
        """The replica gave up a shard. Runs in progress may end, unless their guards are lost too."""
        ...


class ShardOwnership(Protocol):
    """Assignment of objects to this replica."""

    def listen(self, listener: ShardListener) -> None:
        """Notify `listener` of changes from now on."""
        ...

    def shard_of(self, gvk: GVK, key: ObjectKey) -> int:
        """Return the shard of an object, also if another replica has it."""
        ...

    def owns(self, gvk: GVK, key: ObjectKey) -> bool:
        """Return True if work on an object may begin."""
        ...

    def has_any(self) -> bool:
        """Return True if this replica has a shard."""
        ...

    def has_all(self) -> bool:
        """Return True if no other replica works on any object."""
        ...

    def hold(self, gvk: GVK, key: ObjectKey) -> AbstractContextManager[LeaseGuard | None]:
        """Guard an object for the duration of the block; None if another replica has it."""
        ...

    async def follow(self) -> None:
        """Acquire and renew shards; return after `drain`, when all are released."""
        ...

    def drain(self) -> None:
        """Acquire no more shards, and release each one when its work has ended."""
        ...


class SoleReplica:
    """Ownership without other replicas: this one has every object."""

    def __init__(self) -> None:
        self._drained = asyncio.Event()

    def listen(self, listener: ShardListener) -> None:
        """Do nothing: the assignment never changes."""

    def shard_of(self, gvk: GVK, key: ObjectKey) -> int:  # noqa: ARG002 - there is but one
        """See ShardOwnership."""
        return 0

    def owns(self, gvk: GVK, key: ObjectKey) -> bool:  # noqa: ARG002 - all are
        """See ShardOwnership."""
        return True

    def has_any(self) -> bool:
        """See ShardOwnership."""
        return True

    def has_all(self) -> bool:
        """See ShardOwnership."""
        return True

    @contextmanager
    def hold(self, gvk: GVK, key: ObjectKey) -> Iterator[LeaseGuard]:  # noqa: ARG002 - all are ours
        """See ShardOwnership."""
        yield LeaseGuard(lambda: True)

    async def follow(self) -> None:
        """Wait for `drain`."""
        await self._drained.wait()

    def drain(self) -> None:
        """See ShardOwnership."""
        self._drained.set()
