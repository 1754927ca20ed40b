"""Guards of the work on single objects: a replica works on objects only while it leads.

A controller gets a `LeaseGuard` before it works on an object and keeps it until the work has ended. The Lease is
released when no guard is in use. If the Lease is lost, the guards cancel the work. With leader election, the
`Leadership` is a `replica.Replica`.

Must not import: anything that does I/O.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from runner.values.errors import LeaseLostError


class LeaseGuard:
    """Permission to work on one object."""

    def __init__(self, is_valid: Callable[[], bool]) -> None:
        self._is_valid = is_valid
        self._is_lost = False
        self._callbacks: list[Callable[[], None]] = []

    def is_valid(self) -> bool:
        """Return True if the Lease is held now. Check it immediately before a write is sent."""
        return not self._is_lost and self._is_valid()

    def check(self) -> None:
        """Raise LeaseLostError if another replica may lead."""
        if not self.is_valid():
            raise LeaseLostError("the leader lease could not be renewed in time")

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
            raise LeaseLostError("the leader lease was lost") from error


class Leadership:
    """Leadership of this process, which works on objects while it leads. Without other replicas it always does."""

    def __init__(self) -> None:
        self._drained = asyncio.Event()

    def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed` each time that this replica begins to lead, or loses the Lease."""

    def leads(self) -> bool:
        """Return True if work on objects may begin."""
        return True

    @contextmanager
    def hold(self, *, ends: bool = False) -> Iterator[LeaseGuard | None]:  # noqa: ARG002 - for replicas
        """Guard the work of the block; None if this replica does not lead. `ends`: the work may begin after `drain`."""
        yield LeaseGuard(lambda: True)

    async def follow(self) -> None:
        """Acquire and renew the Lease; return after `drain`, when it is released."""
        await self._drained.wait()

    def drain(self) -> None:
        """Begin no more work, and release the Lease when the work in progress has ended."""
        self._drained.set()
