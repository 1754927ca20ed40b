"""Parts of the operator, and of one kind, from which the hooks of a kind are made."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.base.config import paths
from runner.base.config.settings import Settings
from runner.base.events.recorder import EventRecorder
from runner.base.monitoring.background import Background
from runner.core.content.digest import ContentDigest
from runner.core.dependents.watching import Dependents
from runner.core.kube.client import Client
from runner.core.kube.discovery import Discovery
from runner.core.queue.queue import Dispatcher, WorkQueue
from runner.core.reconcile.attempt import Attempt, WatchScope
from runner.core.reconcile.hooks import Hooks
from runner.core.reconcile.metrics import Metrics
from runner.core.reconcile.own_hooks import Refusals
from runner.core.reconcile.owner_check import OwnerCheck
from runner.core.reconcile.run_access import AccessObserver, RunAccess
from runner.core.reconcile.run_log import RunObserver
from runner.core.reconcile.runs import Runs
from runner.core.status.writer import StatusWriter
from runner.core.watches.watch import Watch
from runner.values.lease_guard import Leadership
from runner.values.objects import ObjectKey


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
    access: RunAccess
    observers: Sequence[AccessObserver]
    leadership: Leadership
    recorders: Sequence[RunObserver]
    background: Background
    dependents: Dependents
    dispatcher: Dispatcher
    events: EventRecorder

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
