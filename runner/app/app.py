"""Start and stop order of the operator. `start` has begun it.

Start: credentials, probes, the API server's version, metrics, then all kinds at once. A kind that is not served yet
waits on its own. Stop (SIGTERM, SIGINT): no new events, no new runs. Runs in progress may end within the grace period
and write their status; then the leader lease is released, and connections closed. A second signal cancels the runs.
"""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar
from urllib.parse import urlsplit

from runner import __version__
from runner.app import controllers, engines, identities
from runner.app.admin import AdminServers
from runner.app.connecting import connect, release_lease, until_answered
from runner.app.controllers import RunParts
from runner.app.features import FEATURES, REQUIRED_RIGHTS, environments
from runner.app.identities import IdentityCheck
from runner.app.process import StopSignals
from runner.app.proxy import open_proxy
from runner.app.self_test import SelfTest
from runner.app.start import Begun
from runner.base import log
from runner.base.credentials import auth
from runner.base.events.recorder import EventRecorder
from runner.base.monitoring.background import Background, Work
from runner.core.dependents.notification import Notification, Trigger
from runner.core.dependents.store import KindStore, storage
from runner.core.dependents.watching import Dependents
from runner.core.engine.blocks import BlockWriter
from runner.core.engine.job import Engine
from runner.core.kube import service_accounts
from runner.core.kube.client import CallObserver, Client, Params
from runner.core.kube.discovery import Discovery
from runner.core.kube.meaning import Request
from runner.core.proxy.calls import Handler
from runner.core.proxy.server import Proxy
from runner.core.queue.line import ConcurrencyLimit
from runner.core.queue.queue import Dispatcher
from runner.core.queue.reasons import Cause
from runner.core.reconcile import run_log
from runner.core.reconcile.controller import Controller
from runner.core.reconcile.feature import Operator, PartBase, ProxyParts
from runner.core.reconcile.metrics import Metrics
from runner.core.reconcile.run_access import RunAccess
from runner.core.reconcile.run_log import Form, RunLog, RunObserver
from runner.engines.plugin import OpenEngine, OperatorParts
from runner.values.errors import ConfigError, OperatorError
from runner.values.lease_guard import Leadership
from runner.values.objects import GVK, ObjectRef, first_names

T = TypeVar("T")

_MOST_NAMED = 5
_EVENTS_GRACE = 2.0
"""Seconds to write the last Events."""
_WRITE_GRACE = 5.0
"""Seconds to write the last run's status."""

_log = log.get(__name__)


class Application:
    """The operator, from the connection to the API server to the stop."""

    def __init__(self, begun: Begun, signals: StopSignals) -> None:
        self._begun = begun
        self._settings = begun.base.settings
        self._watches = begun.watches
        self._signals = signals
        self._metrics = Metrics()
        self._environment = dict(begun.environment)
        self._background = Background(lambda work: self._metrics.background_failures.labels(work).inc())
        self._admin = AdminServers(self._settings)
        base = PartBase(self._settings, self._watches)
        made = (feature.part(base) for feature in FEATURES)
        self._parts = [part for part in made if part is not None]
        self._identities: dict[str, IdentityCheck] = {}
        self._controllers: dict[GVK, Controller] = {}

    async def run(self) -> None:
        """Start, and run until the stop. Raises ConfigError if nothing masks the secret values of runs."""
        settings = self._settings
        if not any(feature.masks for feature in FEATURES):
            raise ConfigError("this operator cannot mask the secret values of runs; install all of it")
        async with AsyncExitStack() as stack:
            credentials = await auth.load(settings.kubeconfig, settings.context, auth.HostEnvironment.of_process())
            client = await stack.enter_async_context(Client(credentials, noted=self._noted(credentials)))
            await self._admin.open_probes(stack)
            if not await self._connect(client):
                return
            if not await self._set_up(client):
                return
            form = run_log.form_of(settings.ansible_log_format)
            writer = run_log.block_writer(sys.stdout, form)
            stack.callback(writer.close)
            operator = await self._open(stack, client)
            plugins = dict.fromkeys(self._begun.assigned.values())
            guards = [guard for plugin in plugins for guard in plugin.guards(settings)]
            proxy, access = await self._open_proxy(stack, operator, guards)
            parts = OperatorParts(
                settings=settings,
                stack=stack,
                root=self._begun.base.root,
                cold=self._begun.base.cold,
                client=client,
                discovery=operator.discovery,
                meters=self._metrics,
                health=self._admin.health,
                leads=operator.leadership.leads,
                until_answered=partial(self._until_answered, client),
                environments=lambda watch: environments(watch, self._environment),
                proxy_connection=proxy.connection,
                connections={name: make for part in self._parts for name, make in part.connections.items()},
            )
            opened = await engines.opened(self._begun.openings, self._begun.assigned, parts, self._watches)
            if self._signals.stop.is_set():
                return
            of_runs = RunParts(access, self._recorders(writer, form), self._dispatcher(opened.of))
            self._controllers |= {
                watch.gvk: controllers.make(watch, opened.of[watch.gvk], operator, of_runs) for watch in self._watches
            }
            self._identities |= identities.checks(client, operator.discovery, self._watches, settings.namespaces)
            self._admin.watch(self._controllers.values(), self._identities)
            await self._admin.open_metrics(stack, self._metrics, client)
            followed: dict[str, Work] = {
                "dependents": partial(operator.dependents.follow, self._background),
                "lag": self._metrics.measure_lag,
                **{name: check.follow for name, check in self._identities.items()},
            }
            for engine in opened.all:
                followed |= engine.followed
            for part in self._parts:
                followed |= await part.start(operator, [*self._controllers.values()])
            await self._work([engine.engine for engine in opened.all], followed, operator.leadership)

    async def _open(self, stack: AsyncExitStack, client: Client) -> Operator:
        """Return what all kinds share, and open the parts of features."""
        settings, discovery = self._settings, Discovery(client)
        leadership = await self._lead(stack, client.credentials)
        triggers = (part.trigger(self._wake) for part in self._parts)
        trigger = next((trigger for trigger in triggers if trigger is not None), self._trigger)
        dependents = self._dependents(client, discovery, trigger, leadership)
        clock = asyncio.get_running_loop().time
        events = EventRecorder(client, settings.pod_name or platform.node(), clock, self._metrics)
        writing = asyncio.create_task(self._background.keep("events", events.follow))
        stack.push_async_callback(events.close, writing, _EVENTS_GRACE)
        operator = Operator(
            settings=settings,
            metrics=self._metrics,
            environment=self._environment,
            search_path=self._begun.search_path,
            client=client,
            discovery=discovery,
            leadership=leadership,
            background=self._background,
            dependents=dependents,
            events=events,
            watches=self._watches,
            wake=self._wake,
            trigger=trigger,
            rights=REQUIRED_RIGHTS,
            stack=stack,
            parts=self._parts,
        )
        for part in self._parts:
            self._environment |= await part.open(operator)
        return operator

    async def _lead(self, stack: AsyncExitStack, credentials: auth.Credentials) -> Leadership:
        """Become one of several replicas if a flag requires it. Raises ConfigError if no feature can."""
        if not self._settings.leader_elect:
            return Leadership()
        for feature in FEATURES:
            if feature.leadership is not None:
                return await feature.leadership(self._settings, credentials, self._metrics, stack)
        raise ConfigError("--leader-elect: this operator has no leader election; install all of it")

    def _trigger(self, notification: Notification) -> None:
        self._wake(notification.target, notification.cause)

    def _wake(self, target: ObjectRef, cause: Cause) -> None:
        self._controllers[target.gvk].wake(target.key, cause)

    def _noted(self, credentials: auth.Credentials) -> CallObserver:
        host = urlsplit(credentials.base_url).netloc.rpartition("@")[2]
        observers = [part.noted for part in self._parts if part.noted is not None]

        def noted(method: str, path: str, params: Params, content_type: str, status: int, user: str) -> None:
            self._metrics.requested(host, method, status)
            for identity in self._identities.values():
                identity.noted(path, status, user)
            for observer in observers:
                observer(method, path, params, content_type, status, user)

        return noted

    def _recorders(self, writer: BlockWriter, form: Form) -> Sequence[RunObserver]:
        settings = self._settings
        log_of_runs = RunLog(settings.ansible_log_events, writer, whole_output=settings.ansible_debug_logs, form=form)
        return (log_of_runs, *(recorder for part in self._parts for recorder in part.recorders))

    def _dependents(self, client: Client, discovery: Discovery, trigger: Trigger, leadership: Leadership) -> Dependents:
        """Return the watches of dependents, of no watch if owner injection is off."""
        settings = self._settings
        pod_namespace = auth.pod_namespace(auth.HostEnvironment.of_process())
        store = KindStore(storage(client, pod_namespace, settings.runner_dir))
        watches = self._watches if settings.inject_owner_ref else ()
        dependents = Dependents(client, discovery, settings.namespaces, watches, trigger, store, leadership.leads)
        leadership.listen(dependents.leadership_changed)
        dependents.declare(self._metrics)
        return dependents

    def _dispatcher(self, engine_of: Mapping[GVK, OpenEngine]) -> Dispatcher:
        """Limit how many runs there may be at once. Those in pods need no processor of the operator."""
        most = {watch.gvk: engine_of[watch.gvk].most(watch) for watch in self._watches}
        elsewhere = sum(number for number in most.values() if number is not None)
        of_processes = (gvk for gvk, number in most.items() if number is None)
        return Dispatcher(ConcurrencyLimit.of(self._settings.most_runs(of_processes) + elsewhere))

    async def _open_proxy(
        self, stack: AsyncExitStack, operator: Operator, guards: Sequence[Handler]
    ) -> tuple[Proxy, RunAccess]:
        """Serve the proxy. `guards` are those of engines."""
        settings = self._settings
        more = [ProxyParts(guards=guards, runs=(operator.dependents,)), *(part.proxy for part in self._parts)]
        proxy, access = await open_proxy(
            *(stack, operator.client, settings.proxy_port),
            inject=settings.inject_owner_ref,
            watches=self._watches,
            more=more,
        )
        _log.info("Serving the proxy", port=proxy.port)
        self._admin.follow_proxy(SelfTest(proxy.url))
        return proxy, access

    async def _set_up(self, client: Client) -> bool:
        """Resolve service accounts; return False if a signal stops the operator first."""
        resolve = partial(service_accounts.resolve, client, self._watches)
        self._watches = await self._until_answered(client, Request.ACCOUNT, resolve) or self._watches
        for plugin in engines.PLUGINS:
            self._watches = tuple(plugin.without_own_objects(watch, self._settings) for watch in self._watches)
        return not self._signals.stop.is_set()

    async def _until_answered(self, client: Client, kind: Request, send: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of requests at the start; None if a signal stops the operator first."""
        return await until_answered(kind, client, send, self._signals.stop, self._admin.note_stage)

    async def _connect(self, client: Client) -> bool:
        """Wait for the API server and log versions; return False if a signal stops the operator first."""
        server = await connect(client, self._signals.stop, self._admin.note_stage)
        if server is None:
            return False
        _log.info(
            "Starting",
            version=__version__,
            ansible_core=version("ansible-core"),
            ansible_runner=version("ansible-runner"),
            python=platform.python_version(),
            server=server.get("gitVersion"),
            url=client.credentials.base_url,
            context=client.credentials.context or None,
            credentials=client.credentials.origin,
            namespaces=list(self._settings.namespaces) or "all",
        )
        return True

    async def _work(self, engines: Sequence[Engine], followed: Mapping[str, Work], leadership: Leadership) -> None:
        """Run every kind until the stop, then wait for the end of runs."""
        controllers = self._controllers.values()
        background: list[asyncio.Task[None]] = [
            asyncio.create_task(self._admin.follow(self._background)),
            *(asyncio.create_task(self._background.keep(name, work)) for name, work in followed.items()),
            *(asyncio.create_task(controller.follow()) for controller in controllers),
        ]
        # The leader lease is renewed until the last run has ended.
        renewing = asyncio.create_task(leadership.follow())
        workers = asyncio.create_task(self._run_workers())
        stopped = asyncio.create_task(self._signals.stop.wait())
        self._admin.stage = None
        await asyncio.wait([stopped, renewing, workers], return_when=asyncio.FIRST_COMPLETED)
        self._admin.stage = "stops"
        for controller in controllers:
            controller.queue.close()
        failed: list[asyncio.Future[Any]] = [renewing] if renewing.done() else []
        for task in [*background, stopped]:
            task.cancel()
        leadership.drain()
        await self._end_runs(engines)
        done, _ = await asyncio.wait([workers], timeout=_WRITE_GRACE)
        if not done:
            _log.warning("Requests after the last runs did not end in time; some are missing", seconds=_WRITE_GRACE)
            workers.cancel()
        await asyncio.gather(workers, *background, stopped, return_exceptions=True)
        await release_lease(renewing)
        if not workers.cancelled() and workers.exception() is not None:
            failed.append(workers)
        for future in failed:
            # The lease is renewed until the end, and workers never fail: the cause is a defect.
            raise OperatorError(f"the operator cannot continue: {future.exception()!r}") from future.exception()
        _log.info("Stopped")

    async def _run_workers(self) -> None:
        await asyncio.gather(*(controller.work() for controller in self._controllers.values()))

    async def _end_runs(self, engines: Sequence[Engine]) -> None:
        """End runs after the grace period, or at a second signal."""
        grace = self._settings.graceful_shutdown_timeout
        running = [
            f"{controller.watch.gvk.kind} {entry.key}"
            for controller in self._controllers.values()
            for entry in controller.queue.entries()
            if entry.stage == "running"
        ]
        if running and grace:
            detail = first_names(running, _MOST_NAMED)
            _log.info("Waiting for runs to end; a second signal cancels them", detail=detail, grace_seconds=grace)
        closing: asyncio.Future[Any] = asyncio.gather(*(engine.close(grace) for engine in engines))
        hurried = asyncio.create_task(self._signals.urgent.wait())
        await asyncio.wait([closing, hurried], return_when=asyncio.FIRST_COMPLETED)
        if not closing.done():
            await asyncio.gather(*(engine.close(0) for engine in engines))
        hurried.cancel()
        await asyncio.gather(closing, hurried, return_exceptions=True)
