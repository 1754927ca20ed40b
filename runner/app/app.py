"""The operator as a whole: what starts in which order, and what stops in which order.

Start: credentials, probes, the API server's version, metrics, then every kind at once; a kind that is not served
yet waits on its own. Stop (SIGTERM, SIGINT): no new events, no new runs; runs that go on may end within the grace
period and write their status; then what is shared with other replicas is given back; only then are connections closed.
A second signal ends the runs at once. When its watches were edited, the operator stops so too, but lets its runs take
their time, and another one with the new watches takes its place in the same process.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import time
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from runner import __version__, log
from runner.app import former_kinds
from runner.app.admin import AdminServers
from runner.app.edits import ProjectSources
from runner.app.process import LoopErrorHandler, StopSignals, ignore_signals
from runner.app.reload import Reloader, check_engines
from runner.config import paths
from runner.config.settings import Settings
from runner.controller import run_access
from runner.controller.attempt import WatchScope
from runner.controller.contention import ContentionReporter
from runner.controller.controller import Controller
from runner.controller.reconcile import Reconciler, Services
from runner.controller.run_access import RunAccess, WriteObservers
from runner.controller.run_log import RunLog, RunRecorder, RunRecorders
from runner.controller.runs import RunDefaults, Runs
from runner.controller.skipping import RunSkipper
from runner.dependents.loop_guard import Contention, LoopGuard
from runner.dependents.store import ConfigMapStore, FileStore, JointStore, KindStore
from runner.dependents.watching import Dependents
from runner.engine.blocks import BlockWriter
from runner.engine.engines import EngineSettings
from runner.engine.job import Engine
from runner.engine.run_engine import RunEngine
from runner.errors import ApiError, ApiUnavailableError, OperatorError
from runner.events.recorder import EventRecorder
from runner.kube.client import Client, Selection
from runner.kube.credentials import auth
from runner.kube.discovery import Discovery
from runner.kube.informer import Informer
from runner.monitoring import role_metrics
from runner.monitoring.metrics import Metrics
from runner.monitoring.role_metrics import UserMetrics
from runner.objects import GVK, ObjectKey
from runner.proxy.handlers.discovery_cache import DiscoveryCache
from runner.proxy.handlers.negotiate import Negotiate
from runner.proxy.handlers.read_set import ReadSetRecorder
from runner.proxy.handlers.reads import Reads
from runner.proxy.handlers.refusals import RefusalRecorder
from runner.proxy.handlers.secrets import Secrets
from runner.proxy.handlers.writes import ServedResources, Writes
from runner.proxy.identity import Identities
from runner.proxy.self_test import SelfTest
from runner.proxy.server import Proxy
from runner.rbac.privileges import OperatorRights
from runner.references.watching import References
from runner.replicas import setup
from runner.replicas.lease_guard import ShardOwnership
from runner.status.writer import StatusWriter
from runner.unchanged.content_digest import ContentDigest
from runner.watches.watch import LoadedWatches, Watch
from runner.workqueue.concurrency import ConcurrencyLimit
from runner.workqueue.queue import Dispatcher

_CONNECT_DELAY = 2.0
"""Seconds between two attempts to reach the API server at start."""
_PROXY_GRACE = 1.0
"""Seconds that calls through the proxy may still take when all runs have ended."""
_EVENTS_GRACE = 2.0
"""Seconds for events that are still to be written at the end."""
_WRITE_GRACE = 5.0
"""Seconds after the last run's end for its status to be written."""
_GIVE_BACK_GRACE = 5.0
"""Seconds in which Leases are released at the end."""

_log = log.get(__name__)


def run(settings: Settings, loaded: LoadedWatches, sources: ProjectSources) -> int:
    """Run the operator until it is told to stop; return 0. What keeps it from running is an OperatorError."""
    try:
        asyncio.run(_run(settings, loaded, sources))
    finally:
        ignore_signals()
    return 0


async def _run(settings: Settings, loaded: LoadedWatches, sources: ProjectSources) -> None:
    """Run an operator, and after it one with other watches, as often as these are edited."""
    signals = StopSignals(settings.graceful_shutdown_timeout)
    signals.catch()
    asyncio.get_running_loop().set_exception_handler(LoopErrorHandler())
    async with sources:
        following: LoadedWatches | None = loaded
        while following is not None:
            following = await _Operator(settings, following, signals, sources).run()


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all kinds use."""

    client: Client
    discovery: Discovery
    engine: Engine
    access: RunAccess
    references: References
    holding: ShardOwnership
    recorder: RunRecorder
    dependents: Dependents
    dispatcher: Dispatcher
    events: EventRecorder


class _Operator:
    """Holds what start and stop have in common."""

    def __init__(
        self, settings: Settings, loaded: LoadedWatches, signals: StopSignals, sources: ProjectSources
    ) -> None:
        self._settings = settings
        self._watches = loaded.watches
        self._signals = signals
        self._edits = Reloader(sources)
        self._metrics = Metrics()
        self._user_metrics = UserMetrics(time.time)
        self._places = paths.search_path(
            cwd=Path.cwd(),
            roles_path=settings.ansible_roles_path,
            collections_path=settings.ansible_collections_path,
            environ=os.environ,
        )
        self._environment = {**paths.ansible_environment(self._places), **run_access.environment(os.environ)}
        self._oversight = AdminServers(settings)
        self._privileges = OperatorRights(settings, loaded.watches)
        self._controllers: dict[GVK, Controller] = {}

    async def run(self) -> LoadedWatches | None:
        """Start, wait until it is to stop, stop; return the watches of the one that is to follow."""
        settings = self._settings
        async with AsyncExitStack() as stack:
            credentials = await auth.load(settings.kubeconfig, settings.context, auth.HostEnvironment.of_process())
            client = await stack.enter_async_context(Client(credentials, noted=self._privileges.noted))
            await self._oversight.open_probes(stack)
            if not await self._greet(client):
                return None
            engine = self._engine()
            if leftovers := await engine.reap_leftovers():
                _log.warning("Killed leftover processes of an earlier operator's runs", processes=leftovers)
            engine.clear_out(former_kinds.update(settings.runner_dir, settings.watches_file, self._watches))
            writer = BlockWriter(sys.stdout)
            stack.callback(writer.close)
            discovery = Discovery(client)
            holding = await setup.make(settings, credentials, self._metrics, stack)
            guard = LoopGuard(self._wake, self._wake_for_reference, self._contended)
            dependents = self._dependents(client, discovery, guard, holding)
            references = References(client, discovery, settings.namespaces, self._watches, guard, holding.owns)
            self._metrics.add_engine(lambda: engine.problem, lambda: engine.begun)
            self._metrics.add_dependents(dependents.live, lambda: dependents.bodies.size)
            events = EventRecorder(client, settings.pod_name or platform.node(), asyncio.get_running_loop().time)
            self._metrics.add_events(lambda: events.dropped)
            stack.push_async_callback(events.close, asyncio.create_task(events.follow()), _EVENTS_GRACE)
            shared = _Shared(
                client=client,
                discovery=discovery,
                engine=engine,
                access=await self._open_proxy(stack, client, dependents, WriteObservers(dependents, references)),
                references=references,
                holding=holding,
                recorder=self._recorder(writer),
                dependents=dependents,
                dispatcher=Dispatcher(ConcurrencyLimit.of(settings.most_runs(watch.gvk for watch in self._watches))),
                events=events,
            )
            await self._open_user_metrics(stack)
            self._expect_runs(engine)
            self._controllers = {watch.gvk: self._controller(watch, shared) for watch in self._watches}
            self._oversight.watch(self._controllers.values(), engine.unmet)
            await self._oversight.open_metrics(stack, self._exposition, client)
            await self._oversight.open_page(stack, self._controllers.values())
            stack.callback(self._privileges.close)
            followed = [dependents.follow(), references.follow(), self._privileges.follow(client, discovery)]
            followed.append(self._edits.follow(self._controllers, engine))
            await self._work(engine, followed, holding)
        return None if self._signals.stop.is_set() else self._edits.following

    def _engine(self) -> RunEngine:
        settings = self._settings
        limits = settings.run_memory_limit, settings.runner_dir_limit
        engine = RunEngine(settings.runner_dir, EngineSettings(settings.engine, settings.warm_without, *limits))
        check_engines(engine, self._watches)
        return engine

    def _recorder(self, writer: BlockWriter) -> RunRecorder:
        settings = self._settings
        run_log = RunLog(settings.ansible_log_events, writer, whole_output=settings.ansible_debug_logs)
        return RunRecorders((run_log, *self._oversight.recorders))

    def _expect_runs(self, engine: RunEngine) -> None:
        """Have runs made ready, once their environment is complete: what is made ready serves the very same only."""
        watches = [watch for watch in self._watches if engine.is_warm(watch.engine)]
        contents = [watch.content for watch in watches]
        contents += [watch.finalizer.content for watch in watches if watch.finalizer]
        if contents:
            engine.expect(contents, self._environment)

    def _dependents(
        self, client: Client, discovery: Discovery, guard: LoopGuard, holding: ShardOwnership
    ) -> Dependents:
        """What runs make is watched for every watch, unless owner injection is off."""
        settings = self._settings
        pod_namespace = auth.pod_namespace(auth.HostEnvironment.of_process())
        store: KindStore = ConfigMapStore(client, pod_namespace) if pod_namespace else FileStore(settings.runner_dir)
        if settings.shards > 1:
            store = JointStore(store)
        watches = self._watches if settings.inject_owner_ref else ()
        return Dependents(client, discovery, settings.namespaces, watches, guard, store, holding.owns)

    def _wake(self, gvk: GVK, key: ObjectKey, why: str) -> None:
        self._controllers[gvk].wake(key, why)

    def _wake_for_reference(self, gvk: GVK, key: ObjectKey, why: str) -> None:
        self._controllers[gvk].wake_for_reference(key, why)

    def _contended(self, gvk: GVK, key: ObjectKey, contention: Contention | None) -> None:
        self._controllers[gvk].contention.report(key, contention)

    async def _open_proxy(
        self, stack: AsyncExitStack, client: Client, dependents: Dependents, observers: WriteObservers
    ) -> RunAccess:
        identities = Identities()
        clock = asyncio.get_running_loop().time
        served = ServedResources(client, clock)
        reads = Reads(dependents.bodies, dependents, self._metrics.read_through_proxy)
        proxy = Proxy(
            client.credentials,
            identities,
            [
                *self._privileges.handlers(),
                Secrets(),
                DiscoveryCache(clock, served.forget),
                Negotiate(),
                ReadSetRecorder(),
                RefusalRecorder(),
                reads,
                Writes(served, client, observers),
            ],
        )
        _log.info("Serving the proxy", port=await proxy.start(run_access.LOOPBACK, self._settings.proxy_port))
        stack.push_async_callback(proxy.close, _PROXY_GRACE)
        self._oversight.follow_proxy(SelfTest(proxy.url))
        inject, namespace = self._settings.inject_owner_ref, client.credentials.namespace
        environment = run_access.secrets_in(os.environ)

        def known() -> list[str]:
            return [*client.credentials.secret_values(), *environment]

        return RunAccess(proxy, identities, observers, inject=inject, namespace=namespace, known=known)

    async def _open_user_metrics(self, stack: AsyncExitStack) -> None:
        """Take the metrics that roles post, and tell runs where; unless somebody has told them already."""
        server, port = await role_metrics.serve(
            self._user_metrics, run_access.LOOPBACK, self._settings.user_metrics_port
        )
        stack.push_async_callback(server.cleanup)
        _log.info("Serving the endpoint for role metrics", port=port)
        if not os.environ.get(role_metrics.ADDRESS_VARIABLE):
            self._environment[role_metrics.ADDRESS_VARIABLE] = role_metrics.address(run_access.LOOPBACK, port)

    async def _greet(self, client: Client) -> bool:
        """Wait for the API server and say what runs where; False when told to stop meanwhile."""
        while not self._signals.stop.is_set():
            try:
                server = await client.request("GET", "/version")
            except (ApiError, ApiUnavailableError) as error:
                _log.warning("Cannot reach the API server; retrying", error=str(error))
                await _wait(self._signals.stop, _CONNECT_DELAY)
                continue
            _log.info(
                "Starting",
                version=__version__,
                ansible_core=version("ansible-core"),
                ansible_runner=version("ansible-runner"),
                python=platform.python_version(),
                server=server.get("gitVersion"),
                url=client.credentials.base_url,
                namespaces=list(self._settings.namespaces) or "all",
            )
            return True
        return False

    def _controller(self, watch: Watch, shared: _Shared) -> Controller:
        settings = self._settings
        finalizer = watch.finalizer.name if watch.finalizer else ""
        selection = Selection(labels=watch.selector, fields=watch.field_selector)
        informer = Informer(shared.client, shared.discovery, watch.gvk, settings.namespaces, selection, finalizer)
        scope = WatchScope(watch, informer, shared.holding, self._metrics)
        scope.registry.subscribe(partial(shared.dependents.forget, watch.gvk))
        defaults = RunDefaults(
            runner_dir=settings.runner_dir,
            ansible_args=settings.ansible_args,
            environment=self._environment,
            verbosity=settings.verbosity_for,
            forget=shared.engine.forget,
            timeout=settings.run_timeout,
        )
        runs = Runs(scope, shared.engine, shared.recorder, shared.events, defaults)
        health = settings.health_conditions if watch.health_conditions is None else watch.health_conditions
        status = StatusWriter(shared.client, watch.gvk, enabled=watch.manage_status, health=health)
        period = settings.reconcile_period if watch.reconcile_period is None else watch.reconcile_period
        services = Services(shared.client, shared.discovery, shared.access, shared.events)
        reconciler = Reconciler(scope, services, runs, status, self._skipping(watch, shared), period)
        contention = ContentionReporter(scope, shared.discovery, status, shared.events)
        workers = settings.workers_for(watch.gvk)
        account, selector = watch.service_account or None, watch.selector or None
        _log.info("Watching", gvk=str(watch.gvk), workers=workers, selector=selector, service_account=account)
        return Controller(scope, reconciler, runs, contention, shared.references, workers, shared.dispatcher)

    def _skipping(self, watch: Watch, shared: _Shared) -> RunSkipper | None:
        if not watch.skip_unchanged:
            return None
        environ = {**os.environ, **self._environment}
        executed = ContentDigest(watch, self._places, self._settings.ansible_args, environ, Path.cwd())
        return RunSkipper(watch.gvk, shared.client, shared.dependents, shared.references, executed)

    async def _exposition(self) -> bytes:
        return await self._metrics.text() + self._user_metrics.text()

    async def _work(
        self, engine: Engine, followers: Iterable[Coroutine[Any, Any, None]], holding: ShardOwnership
    ) -> None:
        """Run every kind until told to stop, then let runs end."""
        controllers = self._controllers.values()
        background: list[asyncio.Task[None]] = [
            asyncio.create_task(self._metrics.measure_lag()),
            asyncio.create_task(self._oversight.follow()),
            *map(asyncio.create_task, followers),
            *(asyncio.create_task(controller.follow()) for controller in controllers),
        ]
        # Until the last run has ended, what is ours has to be kept.
        keeping = asyncio.create_task(holding.follow())
        workers = asyncio.ensure_future(asyncio.gather(*(controller.work() for controller in controllers)))
        stopped = asyncio.create_task(self._signals.stop.wait())
        outdated = asyncio.create_task(self._edits.outdated.wait())
        awaited: list[asyncio.Future[Any]] = [stopped, keeping, workers, *background]
        self._oversight.stage = None
        await asyncio.wait([outdated, *awaited], return_when=asyncio.FIRST_COMPLETED)
        self._oversight.stage = "stops"
        for controller in controllers:
            controller.queue.close()
        if outdated.done():
            # Runs that go on end as they began: the workers end with them.
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in (keeping, *background) if task.done()]
        for task in [*background, stopped, outdated]:
            task.cancel()
        holding.drain()
        await self._end_runs(engine)
        done, _ = await asyncio.wait([workers], timeout=_WRITE_GRACE)
        if not done:
            _log.warning("Cannot write the last runs' status in time", seconds=_WRITE_GRACE)
            workers.cancel()
        await asyncio.gather(workers, *background, stopped, outdated, return_exceptions=True)
        await self._give_back(keeping)
        for task in failed:
            # Following never ends by itself: what ended it is a defect, and said as one.
            raise OperatorError(f"a background task ended unexpectedly: {task.exception()!r}") from task.exception()
        _log.info("Stopped")

    async def _give_back(self, keeping: asyncio.Task[None]) -> None:
        """Let others have what was ours, now that nothing of it goes on."""
        await asyncio.wait([keeping], timeout=_GIVE_BACK_GRACE)
        if not keeping.done():
            _log.warning("Cannot release the leases; other replicas wait until they expire", seconds=_GIVE_BACK_GRACE)
            keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    async def _end_runs(self, engine: Engine) -> None:
        """Give runs their grace, shortened by a second signal."""
        closing = asyncio.create_task(engine.close(self._settings.graceful_shutdown_timeout))
        hurried = asyncio.create_task(self._signals.urgent.wait())
        await asyncio.wait([closing, hurried], return_when=asyncio.FIRST_COMPLETED)
        if not closing.done():
            await engine.close(0)
        hurried.cancel()
        await asyncio.gather(closing, hurried, return_exceptions=True)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
