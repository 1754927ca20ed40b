"""What the operator shows to those who look after it: probes, metrics for who may read them, and a page.

Owns: which checks there are, what stands behind each, and where both are served. Probes answer from the first moment
on, so that an operator that waits for its API server is not taken for a dead one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from contextlib import AsyncExitStack

from runner import log
from runner.config.settings import Settings
from runner.controller.controller import Controller
from runner.kube.client import Client
from runner.kube.credentials import auth
from runner.kube.reviews import AccessReviews
from runner.monitoring import endpoints, metrics_endpoint
from runner.monitoring.certificates import CertificateFiles, Certificates
from runner.monitoring.endpoints import Address
from runner.monitoring.health import CheckFunction, HealthChecks
from runner.monitoring.metrics_endpoint import Text
from runner.monitoring.probe_server import ProbeServer, ProbeTimeouts
from runner.objects import GVK
from runner.proxy.self_test import SelfTest
from runner.ui import server
from runner.ui.journal import Journal
from runner.ui.server import StatusPage, StreamTimings
from runner.ui.views import OperatorInfo, Views

_PROBES, _METRICS = "health-probe-bind-address", "metrics-bind-address"
_FREE = "127.0.0.1:0"
_log = log.get(__name__)


class AdminServers:
    """Probes, metrics and page of one operator."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._proxy: SelfTest | None = None
        self._certificates: Certificates | None = None
        self.health = HealthChecks(time.monotonic)
        usual = "0" if auth.pod_namespace(auth.HostEnvironment.of_process()) else _FREE
        self._page_at = Address.parse(settings.ui_bind_address or usual, server.FLAG)
        """None: there is no page."""
        self._journal = Journal(time.time)
        self.recorders = (self._journal,) if self._page_at else ()
        """Are to be told of runs: nothing is kept for a page that nobody can look at."""
        self.stage: str | None = "has not started yet"
        """What it does other than work; None while it works."""
        self.health.add("startup", lambda: self.stage, grace=0.0)

    def follow_proxy(self, proxy: SelfTest) -> None:
        """Have the proxy asked from when the operator works."""
        self._proxy = proxy
        self.health.add("proxy", lambda: proxy.problem, live=True)

    def watch(self, controllers: Iterable[Controller], engine: CheckFunction) -> None:
        """Have the kinds' watches looked at, and whether runs get the engine that was asked for."""
        self.health.add("engine", engine, grace=0.0)
        for controller in controllers:
            name = check_name(controller.watch.gvk)
            self.health.add(f"watch/{name}", controller.problem)
            self.health.add(f"watch-silence/{name}", controller.informer.silence, grace=0.0, live=True)

    async def follow(self) -> None:
        """Look after all of it, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.health.follow())
            if self._proxy is not None:
                group.create_task(self._proxy.follow())
            if self._certificates is not None:
                group.create_task(self._certificates.follow())

    async def open_probes(self, stack: AsyncExitStack) -> None:
        """Answer probes until `stack` is left."""
        address = Address.parse(self._settings.health_probe_bind_address, _PROBES)
        if address is None:
            return
        server = ProbeServer(self.health, ProbeTimeouts())
        port = await server.start(address)
        stack.push_async_callback(server.close)
        _log.info("Serving", paths=["/healthz", "/readyz"], port=port)

    async def open_metrics(self, stack: AsyncExitStack, text: Text, client: Client) -> None:
        """Show metrics until `stack` is left. `client` asks who may read them, where that is wanted."""
        settings = self._settings
        address = Address.parse(settings.metrics_bind_address, _METRICS)
        if address is None:
            return
        handlers = metrics_endpoint.unrestricted(text)
        if settings.metrics_require_rbac:
            reviews = AccessReviews(client, asyncio.get_running_loop().time)
            handlers = metrics_endpoint.authorized(text, reviews)
        context = None
        if settings.metrics_secure:
            folder = settings.metrics_cert_path
            named = settings.metrics_cert_name, settings.metrics_cert_key
            files = CertificateFiles(folder / named[0], folder / named[1]) if folder else None
            self._certificates = await asyncio.to_thread(Certificates, files)
            context = self._certificates.context
        server, port = await endpoints.serve(address, handlers, _METRICS, context)
        stack.push_async_callback(server.cleanup)
        _log.info("Serving", paths=sorted(handlers), port=port, tls=context is not None)

    async def open_page(self, stack: AsyncExitStack, controllers: Collection[Controller]) -> None:
        """Show what `controllers` do until `stack` is left; unless told otherwise, outside of a cluster alone."""
        if self._page_at is None:
            return
        place = OperatorInfo(self._settings.namespaces, self._settings.runner_dir, time.time())
        page = StatusPage(Views(place, list(controllers), self._journal), StreamTimings())
        url = await page.start(self._page_at)
        stack.push_async_callback(page.close)
        _log.info("Serving the status page", url=url)


def check_name(gvk: GVK) -> str:
    """A kind as it stands in the name of a check, and in a path: `memcached.v1alpha1.cache.example.com`."""
    return ".".join(filter(None, (gvk.kind.lower(), gvk.version, gvk.group)))
