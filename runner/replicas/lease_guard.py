"""Guards of the work on single objects: a replica works on an object only while it holds the Lease of its shard.

A controller gets a `LeaseGuard` before it works on an object and keeps it until the work has ended. A shard is released
when no guard of it is in use. If the Lease is lost, the guard cancels the work. `ShardOwnership` decides which objects
belong to this replica: `SoleReplica` without leader election and shards, `replica.Replica` with them.

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
    """The right to work on one object."""

    def __init__(self, is_valid: Callable[[], bool]) -> None:
        self._is_valid = is_valid
        self._is_lost = False
        self._callbacks: list[Callable[[], None]] = []

    def is_valid(self) -> bool:
        """Whether the object is ours now, by the clock. Ask immediately before a write leaves."""
        return not self._is_lost and self._is_valid()

    def check(self) -> None:
        """Raise LeaseLostError when the object may be somebody else's."""
        if not self.is_valid():
            raise LeaseLostError("the Lease of this object's shard could not be renewed in time")

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Have something called at the moment at which the hold is lost; at once if it is."""
        if self._is_lost:
            callback()
        else:
            self._callbacks.append(callback)

    def lose(self) -> None:
        """It is lost, for good."""
        self._is_lost = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    @asynccontextmanager
    async def guard(self) -> AsyncIterator[None]:
        """Cancel what goes on within when the hold is lost, and raise LeaseLostError once that has ended."""
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
    """Who works on objects."""

    def gained(self, shard: int) -> None:
        """A shard's objects are ours from now on."""
        ...

    def lost(self, shard: int) -> None:
        """They are no longer; what goes on may end, unless its hold is lost too."""
        ...


class ShardOwnership(Protocol):
    """Says which objects are ours."""

    def listen(self, listener: ShardListener) -> None:
        """Tell `listener` what changes from now on."""
        ...

    def shard_of(self, gvk: GVK, key: ObjectKey) -> int:
        """The shard of an object, whoever has it."""
        ...

    def owns(self, gvk: GVK, key: ObjectKey) -> bool:
        """Whether work on an object may begin."""
        ...

    def hold(self, gvk: GVK, key: ObjectKey) -> AbstractContextManager[LeaseGuard | None]:
        """Keep an object while the block lasts; None when it is not ours."""
        ...

    async def follow(self) -> None:
        """Keep what is ours, and take what should be; returns after `drain`, when all is given back."""
        ...

    def drain(self) -> None:
        """Take nothing more, and give everything back as soon as nothing of it goes on."""
        ...


class SoleReplica:
    """Everything is ours, always."""

    def __init__(self) -> None:
        self._drained = asyncio.Event()

    def listen(self, listener: ShardListener) -> None:
        """Nothing will change."""

    def shard_of(self, gvk: GVK, key: ObjectKey) -> int:  # noqa: ARG002 - there is but one
        """See ShardOwnership."""
        return 0

    def owns(self, gvk: GVK, key: ObjectKey) -> bool:  # noqa: ARG002 - all are
        """See ShardOwnership."""
        return True

    @contextmanager
    def hold(self, gvk: GVK, key: ObjectKey) -> Iterator[LeaseGuard]:  # noqa: ARG002 - all are ours
        """See ShardOwnership."""
        yield LeaseGuard(lambda: True)

    async def follow(self) -> None:
        """Nothing has to be kept, nor given back."""
        await self._drained.wait()

    def drain(self) -> None:
        """See ShardOwnership."""
        self._drained.set()
