"""The operator with one of its promises broken on purpose: what the fault suite must notice. Only tests start it.

`python tests/faults/broken.py PROMISE run FLAGS...`; the promises are `retry`, `reaping` and `relisting`, for replicas
`fencing`, and for stale views `owners`.
"""

# ruff: noqa: B010 - what is replaced here is a promise, not an attribute of ours

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from runner.cli.main import main
from runner.core.engine import processes
from runner.core.engine.run_root import RunRoot
from runner.core.kube.cache import Cache
from runner.core.kube.watch_events import Synced, WatchEvent
from runner.core.queue.queue import WorkQueue
from runner.core.reconcile.own_hooks import OwnerCheck
from runner.features.replicas import kernel_deadline
from runner.values.lease_guard import LeaseGuard
from runner.values.objects import OwnerState


def _break_retry() -> None:
    """What failed is not tried again."""

    def retry(_: WorkQueue, __: Any, ___: Any, *, ran: bool) -> float:
        return float(ran)

    setattr(WorkQueue, "retry", retry)


def _break_reaping() -> None:
    """What runs leave is neither ended nor waited for."""

    async def nothing_left(_: RunRoot) -> int:
        return 0

    def nothing(*_: Any) -> bool:
        return True

    setattr(RunRoot, "reap_leftovers", nothing_left)
    setattr(processes, "kill", nothing)
    setattr(processes, "reap_orphans", nothing)


def _break_relisting() -> None:
    """After a gap a new list is taken for granted: what changed meanwhile is not found."""
    apply = Cache.apply

    def deaf(self: Cache, scope: str, event: WatchEvent) -> Any:
        changes = apply(self, scope, event)
        lists = self._relist
        is_listing = lists._missing.get(scope) is not None or isinstance(event, Synced)
        return [] if is_listing and scope in lists._synced else changes

    setattr(Cache, "apply", deaf)


def _break_fencing() -> None:
    """What is done for an object goes on when its Lease is lost, and a process that is paused is not ended."""

    def always(_: LeaseGuard) -> bool:
        return True

    def nothing(_: LeaseGuard) -> None:
        return

    setattr(LeaseGuard, "is_valid", always)
    setattr(LeaseGuard, "lose", nothing)
    setattr(kernel_deadline, "make", kernel_deadline.NoKernelDeadline)


def _break_owners() -> None:
    """An object that the cache has is taken to exist: runs for a UID that is gone begin, and write."""

    async def exists(*_: Any) -> OwnerState:
        return OwnerState.EXISTS

    setattr(OwnerCheck, "before_run", exists)
    setattr(OwnerCheck, "during_run", exists)


PROMISES: dict[str, Callable[[], None]] = {
    "retry": _break_retry,
    "reaping": _break_reaping,
    "relisting": _break_relisting,
    "fencing": _break_fencing,
    "owners": _break_owners,
}

if __name__ == "__main__":
    PROMISES[sys.argv.pop(1)]()
    sys.exit(main())
