"""A controller with its reconciler and real features. Simulated are the API server, the engine and the proxy."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from runner.core.engine.job import Job, Outcome, RunResult, TaskFailure
from runner.core.engine.run_secrets import RunSecrets
from runner.core.kube.cache import Cache, Change, Summary
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource
from runner.core.kube.watch_events import Applied, Deleted
from runner.core.kube.watch_health import Unknown
from runner.core.proxy.identity import RunStats
from runner.core.queue.line import ConcurrencyLimit
from runner.core.queue.queue import Dispatcher, WorkQueue
from runner.core.reconcile.attempt import WatchScope
from runner.core.reconcile.controller import Controller
from runner.core.reconcile.hooks import Hooks
from runner.core.reconcile.own_hooks import Annotations, FinalizerRemoval, OwnerCheck, Pause, Refusals, RunReports
from runner.core.reconcile.reconcile import Reconciler
from runner.core.reconcile.run_access import Grant, RunAccess
from runner.core.reconcile.runs import JobFactory, Runs
from runner.core.status.conditions import find
from runner.core.status.writer import StatusWriter
from runner.core.watches.watch import Watch
from runner.values.errors import NotFoundError, PatchTestError
from runner.values.lease_guard import Leadership
from runner.values.objects import GVK, Object, ObjectKey, conditions_of
from tests.kit.watch_values import RecordedEvents, kind_value, scope_value
from tests.unit.controller.test_runs import SETTINGS

KEY = ObjectKey("ns", "one")
TEST_FAILED = "the server rejected our request due to an error in our request: testing value failed"

Refusal = Callable[[str, str, ObjectKey], Exception | None]
"""Receives the method, the subresource and the key of a request; returns the error that answers it."""


class Server:
    """API server with the objects of one kind, its client, discovery and informer. The watch never lags."""

    def __init__(self, gvk: GVK) -> None:
        self.gvk = gvk
        self.resource = ApiResource(
            gvk, "things", namespaced=True, verbs=frozenset(), subresources=frozenset({"status"})
        )
        self.stored: dict[ObjectKey, Object] = {}
        self.calls: list[str] = []
        self.refuse: Refusal = lambda *_: None
        self.lose: Refusal = lambda *_: None
        """As `refuse`, but the request takes effect."""
        self.unknown: Unknown | None = None
        """Why the informer does not know which objects exist."""
        self.cache = Cache()
        self.changed: Callable[[Change], None] = lambda _: None
        self._version = 0

    # Informer.

    @property
    def revision(self) -> int:
        return self._version

    def get_cached(self, key: ObjectKey) -> Object | None:
        return self.cache.get(key)

    # Discovery.

    async def find(self, _gvk: GVK) -> ApiResource:
        self._answer("FIND", "", KEY)
        return self.resource

    # Client.

    async def get(self, _resource: ApiResource, key: ObjectKey) -> Object:
        self._answer("GET", "", key)
        if key not in self.stored:
            raise NotFoundError("not found", status=404)
        return copy.deepcopy(self.stored[key])

    async def patch(
        self, _resource: ApiResource, key: ObjectKey, patch: Any, *, subresource: str = "", **_: Any
    ) -> Object:
        self._answer("PATCH", subresource, key)
        if key not in self.stored:
            raise NotFoundError("not found", status=404)
        obj = copy.deepcopy(self.stored[key])
        if isinstance(patch, dict):
            _merge(obj, patch)
        else:
            for operation in patch:
                _apply(obj, operation)
        self.put(obj)
        if (error := self.lose("PATCH", subresource, key)) is not None:
            raise error
        return copy.deepcopy(obj)

    def _answer(self, method: str, subresource: str, key: ObjectKey) -> None:
        self.calls.append(f"{method} {subresource or 'object'}" if method != "FIND" else "FIND")
        if (error := self.refuse(method, subresource, key)) is not None:
            raise error

    # What other clients do.

    def put(self, obj: Object) -> None:
        """Store an object and deliver its event."""
        key = ObjectKey(obj["metadata"]["namespace"], obj["metadata"]["name"])
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        if obj["metadata"].get("deletionTimestamp") and not obj["metadata"].get("finalizers"):
            self.stored.pop(key, None)
            changes = self.cache.apply("", Deleted(obj))
        else:
            self.stored[key] = copy.deepcopy(obj)
            changes = self.cache.apply("", Applied(copy.deepcopy(obj)))
        for change in changes:
            self.changed(change)

    def create(self, name: str = "one", **metadata: Any) -> None:
        meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "generation": 1, **metadata}
        self.put({"apiVersion": self.gvk.api_version, "kind": self.gvk.kind, "metadata": meta, "spec": {}})

    def edit(self, name: str = "one", **metadata: Any) -> None:
        obj = copy.deepcopy(self.stored[ObjectKey("ns", name)])
        obj["metadata"].update(metadata)
        self.put(obj)

    def condition(self, kind: str, name: str = "one") -> Any:
        return find(conditions_of(self.stored[ObjectKey("ns", name)]), kind) or {}


class _Informer:
    """The informer's side of a server."""

    namespaces: Sequence[str] = ()

    def __init__(self, server: Server) -> None:
        self._server = server
        self.created = lambda: ()
        self.age = lambda: None

    @property
    def revision(self) -> int:
        return self._server.revision

    def get(self, key: ObjectKey) -> Object | None:
        return self._server.cache.get(key)

    def summary(self, key: ObjectKey) -> Summary | None:
        return self._server.cache.summary(key)

    def unknown(self, _namespace: str = "") -> Unknown | None:
        return self._server.unknown

    def excess(self, _key: ObjectKey) -> str:
        return ""

    async def follow(self, _changed: Callable[[Change], None]) -> None:
        """Wait until canceled: the server reports its changes itself."""
        await asyncio.Event().wait()

    async def known_namespaces(self) -> AsyncIterator[str]:
        yield ""

    def __len__(self) -> int:
        return len(self._server.stored)

    def __contains__(self, key: ObjectKey) -> bool:
        return self._server.cache.summary(key) is not None


def _apply(obj: Object, operation: dict[str, Any]) -> None:
    *parents, last = operation["path"].strip("/").split("/")
    where: Any = obj
    for name in parents:
        if not isinstance(where, dict) or name not in where:
            raise PatchTestError(TEST_FAILED, status=422)
        where = where[name]
    if operation["op"] == "test" and where.get(last) != operation["value"]:
        raise PatchTestError(TEST_FAILED, status=422)
    if operation["op"] == "add":
        where[last] = copy.deepcopy(operation["value"])
    if operation["op"] == "remove":
        del where[last]


def _merge(obj: dict[str, Any], patch: dict[str, Any]) -> None:
    for name, value in patch.items():
        if isinstance(value, dict):
            _merge(obj.setdefault(name, {}), value)
        else:
            obj[name] = value


class Engine:
    """Runs that take a second."""

    def __init__(self) -> None:
        self.outcome = Outcome.SUCCEEDED
        self.requeue_after: float | None = None
        self.unfinished = False
        self.failures: tuple[TaskFailure, ...] = ()
        self.refused = ""
        """Why Ansible refuses the names of hosts."""
        self.runs: list[Job] = []
        self.forgotten: list[Path] = []
        """Run folders of objects that are gone."""
        self.unrecorded: Exception | None = None
        """Why the rest of a run cannot be ended."""

    async def run(self, job: Job, _sink: Any) -> RunResult:
        self.runs.append(job)
        await asyncio.sleep(1)
        if self.refused:
            return RunResult(Outcome.FAILED, None, (), self.refused, None, 1.0, refused=True)
        return RunResult(self.outcome, None, self.failures, "", self.requeue_after, 1.0, unfinished=self.unfinished)

    async def resume(self, *_: Any) -> None:
        return None

    async def forget(self, run_dir: Path) -> None:
        self.forgotten.append(run_dir)

    async def recorded(self, _job: Job) -> None:
        if self.unrecorded is not None:
            raise self.unrecorded


class _Access:
    @asynccontextmanager
    async def open(self, *_: Any) -> AsyncIterator[Grant]:
        yield Grant("", "", RunStats(), RunSecrets())


class Bed:
    """A controller of one kind, with one worker unless more are given."""

    def __init__(self, watch: Watch, *features: Hooks, workers: int = 1, health: bool = False) -> None:
        self.server = Server(watch.gvk)
        self.engine = Engine()
        self.events = RecordedEvents()
        server = cast("Any", self.server)
        self.scope: WatchScope = scope_value(watch, _Informer(self.server), events=self.events)
        self.status = StatusWriter(
            cast("Client", server),
            watch.gvk,
            Leadership(),
            lambda obj, why: self.scope.about(obj).refused(why),
            self.scope.own,
            enabled=True,
            health=health,
        )
        refusals = Refusals(self.scope, self.status)
        owners = OwnerCheck(self.scope, server)
        runs = Runs(
            self.scope,
            cast("Any", self.engine),
            (),
            cast("RunAccess", _Access()),
            owners.during_run,
            JobFactory(self.scope, SETTINGS, {}),
        )
        common = [
            refusals,
            RunReports(self.scope),
            FinalizerRemoval(self.scope, server, refusals),
            Pause(self.scope),
            Annotations(self.scope),
        ]
        self.hooks = [*common, runs, owners, *features]
        kind = kind_value(
            self.scope,
            operator=SimpleNamespace(client=server, discovery=server),
            queue=WorkQueue(ConcurrencyLimit.of(workers), Dispatcher(ConcurrencyLimit.of(workers))),
            status=self.status,
            refusals=refusals,
            runs=runs,
            hooks=self.hooks,
        )
        self.controller = Controller(kind, Reconciler(kind))
        self.server.changed = self.controller._changed

    async def work(self, seconds: float) -> None:
        """Let the workers work."""
        working = asyncio.create_task(self.controller.work())
        following = asyncio.create_task(self.status.follow())
        await asyncio.sleep(seconds)
        for task in (working, following):
            task.cancel()
        await asyncio.gather(working, following, return_exceptions=True)

    def reasons(self) -> list[str]:
        """The reasons of the Events so far."""
        return [each.reason for each in self.events]
