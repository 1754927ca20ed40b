"""One value of plain data for each feature: everything that the feature adds to the operator, and from what it does so.

`runner.app.features` has the list of features, and the order in which the hooks of a kind are called. The functions of
a feature import what they need when they are called, so that a feature without use costs no time.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from runner.core.kube.rights import NO_RIGHTS, RequiredRights
from runner.core.status.report import NOTHING_OWN, OwnStatus

if TYPE_CHECKING:
    import asyncio
    from contextlib import AsyncExitStack

    from runner.base.config.paths import SearchPath
    from runner.base.config.settings import Settings
    from runner.base.credentials.auth import Credentials
    from runner.base.events.recorder import EventRecorder
    from runner.base.meters import Meters
    from runner.base.monitoring.background import Background, Work
    from runner.base.page import PageSections
    from runner.core.content.files import ContentDigest
    from runner.core.dependents.notification import Trigger
    from runner.core.dependents.watching import Dependents
    from runner.core.kube.client import CallObserver, Client
    from runner.core.kube.discovery import Discovery, ServedResources
    from runner.core.proxy.calls import Handler, Observer, Proceed
    from runner.core.proxy.identity import ActiveRun
    from runner.core.queue.queue import WorkQueue
    from runner.core.queue.reasons import Cause, Mark, RunReason
    from runner.core.reconcile.attempt import Attempt, WatchScope
    from runner.core.reconcile.controller import Controller
    from runner.core.reconcile.hooks import Hooks
    from runner.core.reconcile.metrics import Metrics
    from runner.core.reconcile.own_hooks import OwnerCheck, Refusals
    from runner.core.reconcile.run_access import AccessObserver
    from runner.core.reconcile.run_log import RunObserver
    from runner.core.reconcile.runs import Runs
    from runner.core.status.writer import StatusWriter
    from runner.core.watches.field import FeatureFields
    from runner.core.watches.watch import Watch
    from runner.values.lease_guard import Leadership
    from runner.values.objects import ObjectKey, ObjectRef

P = TypeVar("P", bound="Part")


@dataclass(frozen=True, slots=True)
class ProxyBase:
    """Parts of the proxy, for the functions that make handlers."""

    watches: Sequence[Watch]
    """Empty in a preview."""
    served: ServedResources
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyParts:
    """Handlers by their places in the proxy, in the order of these places, and observers."""

    guards: Sequence[Handler] = ()
    """Refuse requests before any other handler."""
    documents: Sequence[Handler] = ()
    """Answer before the format is chosen, each document in the format of its request."""
    reads: Sequence[Handler] = ()
    """Answer reads from memory, before the handlers that send requests for a run."""
    trials: Sequence[Handler] = ()
    """Answer the requests of trials. They are the last, so that all others treat a trial like a real run."""
    observers: Sequence[Observer] = ()
    """Receive the calls of runs."""
    runs: Sequence[AccessObserver] = ()
    """Observe runs, and the objects that they write and read."""
    own_paths: Mapping[str, Proceed] = field(default_factory=dict)
    """Functions that answer requests for paths of the proxy itself."""
    prepare: Sequence[Callable[[ActiveRun, Proceed], Coroutine[Any, Any, None]]] = ()
    """Make requests ahead of those of a new run. The end of the run cancels them."""


@dataclass(frozen=True, slots=True)
class PartBase:
    """Inputs of the functions that make parts."""

    settings: Settings
    watches: Sequence[Watch]


class Part:
    """State of a feature for all kinds of an operator. It does nothing unless it overrides a field or a method."""

    recorders: Sequence[RunObserver] = ()
    """Record the runs."""
    noted: CallObserver | None = None
    """Receives the calls of the operator itself."""
    connections: Mapping[str, Callable[[], asyncio.Protocol]] = {}
    """By the variable with the address of a server for runs: makes the protocol of a further connection to it."""
    proxy: ProxyParts = ProxyParts()

    def trigger(self, wake: Callable[[ObjectRef, Cause], None]) -> Trigger | None:  # noqa: ARG002 - for parts
        """Return what decides when changes of other objects `wake` an object; None: at once."""
        return None

    def sections(self) -> PageSections | None:
        """Return sections of a page about the operator."""
        return None

    async def open(self, operator: Operator) -> Mapping[str, str]:  # noqa: ARG002 - for parts
        """Start what runs need, until `operator.stack` is closed. Return variables for the environment of runs."""
        return {}

    async def start(self, operator: Operator, kinds: Sequence[Controller]) -> Mapping[str, Work]:  # noqa: ARG002 - for parts
        """Start what needs the kinds. Return work to keep in the background, by its name."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """An option of the operator. Functions beside it make its hooks: their order is that of all features."""

    fields: Sequence[FeatureFields] = ()
    """Fields of watches.yaml."""
    status: OwnStatus = NOTHING_OWN
    """Parts of the status of objects that only the feature writes."""
    rights: RequiredRights = NO_RIGHTS
    reasons: Sequence[RunReason] = ()
    """Reasons of runs."""
    marks: Sequence[Mark] = ()
    """Annotations whose new value starts a run."""
    callbacks: Sequence[Path] = ()
    """Folders of callbacks of Ansible, for each run."""
    masks: bool = False
    """True if it masks secret values of runs. The operator does not start without such a feature."""
    proxy: Callable[[ProxyBase], ProxyParts] = lambda _: ProxyParts()
    """Returns handlers of the proxy, of an operator or of a preview. An operator also has those of `Part`."""
    part: Callable[[PartBase], Part | None] = lambda _: None
    """Returns the part of an operator; None: no watch and no flag uses it. Raises ConfigError for invalid settings."""
    environments: Callable[[Watch, Mapping[str, str]], Sequence[Mapping[str, str]]] | None = None
    """Returns what overrides the operator's environment in runs of a watch. Most runs have the first."""
    leadership: Callable[[Settings, Credentials, Meters, AsyncExitStack], Awaitable[Leadership]] | None = None
    """Makes this process one of several replicas. Raises ConfigError if a setting is missing."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Parts that all kinds share."""

    settings: Settings
    metrics: Metrics
    environment: Mapping[str, str]
    """Added to the operator's own environment for runs."""
    search_path: SearchPath
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
        from runner.core.content.files import ContentDigest  # noqa: PLC0415 - see the module

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
