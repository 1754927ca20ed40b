"""Parts of the operator, and of one kind, from which the hooks of a kind are made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from runner.base.config import paths
from runner.base.config.settings import Settings
from runner.base.events.recorder import EventRecorder
from runner.base.monitoring.background import Background
from runner.core.content.digest import ContentDigest
from runner.core.dependents.notification import Trigger
from runner.core.dependents.watching import Dependents
from runner.core.kube.client import Client
from runner.core.kube.discovery import Discovery
from runner.core.kube.rights import RequiredRights
from runner.core.queue.queue import WorkQueue
from runner.core.queue.request import Cause
from runner.core.reconcile.attempt import Attempt, WatchScope
from runner.core.reconcile.feature import Part
from runner.core.reconcile.hooks import Hooks
from runner.core.reconcile.metrics import Metrics
from runner.core.reconcile.own_hooks import OwnerCheck, Refusals
from runner.core.reconcile.run_access import AccessObserver
from runner.core.reconcile.runs import Runs
from runner.core.status.writer import StatusWriter
from runner.core.watches.watch import Watch
from runner.values.lease_guard import Leadership
from runner.values.objects import ObjectKey, ObjectRef

P = TypeVar("P", bound=Part)


@dataclass(frozen=True, slots=True)
class Operator:
    """Parts that all kinds share."""

    settings: Settings
    metrics: Metrics
    environment: Mapping[str, str]
    """Added to the operator's own environment for runs."""
    search_path: paths.SearchPath
    client: Client
    discovery: Discovery
    leadership: Leadership
    background: Background
    dependents: Dependents
    events: EventRecorder
    watches: Sequence[Watch]
    wake: Callable[[ObjectRef, Cause], None]
    """Requests the run of an object."""
    trigger: Trigger
    """Requests the run of an object because of another one, now or later."""
    rights: Sequence[RequiredRights]
    """Rights that its parts require."""
    stack: AsyncExitStack
    """Closed when the operator ends."""
    parts: Sequence[Part]
    """Parts of features."""

    def part(self, kind: type[P]) -> P:
        """Return the part of a class. Raises LookupError if the operator has none."""
        for part in self.parts:
            if isinstance(part, kind):
                return part
        raise LookupError(kind.__name__)

    @property
    def observers(self) -> Sequence[AccessObserver]:
        """Observers of runs, and of the objects that they write and read."""
        return (self.dependents, *(observer for part in self.parts for observer in part.proxy.runs))

    @property
    def has_page(self) -> bool:
        """True if a part records the runs, to show them."""
        return any(part.recorders for part in self.parts)

    def executed(self, watch: Watch) -> ContentDigest:
        """Return the digest of what a watch executes."""
        environ = {**os.environ, **self.environment}
        return ContentDigest(watch, self.search_path, self.settings.ansible_args, environ, Path.cwd())


@dataclass(frozen=True, slots=True)
class Kind:
    """Parts of one kind, and its hooks in the order of their calls."""

    operator: Operator
    scope: WatchScope
    queue: WorkQueue
    status: StatusWriter
    refusals: Refusals
    owners: OwnerCheck
    runs: Runs
    executed: ContentDigest
    """Digest of what the runs execute, except those of the finalizer."""
    hooks: list[Hooks] = field(default_factory=list)

    def inputs(self, key: ObjectKey) -> str | None:
        """Identify the state of what else an object's run reads, across restarts; None: unknown; empty: nothing."""
        states = [hooks.inputs(key) for hooks in self.hooks]
        return None if None in states else "\n".join(filter(None, states))

    async def must_run(self, attempt: Attempt) -> bool:
        """Return whether an object needs its run although nothing has changed since the last one."""
        for hooks in self.hooks:
            if await hooks.must_run(attempt):
                return True
        return False
