"""Servers for administrators: probes and metrics.

Owns the health checks and the addresses of the servers. Probes answer from the start, so that the kubelet does not
restart an operator that waits for its API server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial

from runner.app import metrics_access
from runner.app.identities import IdentityCheck
from runner.app.metrics_access import AccessReviews
from runner.app.self_test import SelfTest
from runner.base import log
from runner.base.config.settings import Settings
from runner.base.meters import Meters
from runner.base.monitoring import endpoints
from runner.base.monitoring.background import Background
from runner.base.monitoring.certificates import CertificateFiles, Certificates
from runner.base.monitoring.endpoints import Address
from runner.base.monitoring.health import HealthChecks, ProbeServer, ProbeTimeouts
from runner.core.kube.client import Client
from runner.core.reconcile.controller import Controller
from runner.values.objects import GVK

_PROBES, _METRICS = "health-probe-bind-address", "metrics-bind-address"
_log = log.get(__name__)


class AdminServers:
    """Probes and metrics of one operator."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._proxy: SelfTest | None = None
        self._certificates: Certificates | None = None
        self.health = HealthChecks(time.monotonic)
        self.stage: str | None = "has not started yet"
        """Why the operator is not ready; None while it works."""
        self.health.add("startup", lambda: self.stage, grace=0.0)

    def note_stage(self, reason: str) -> None:
        """Report why the operator is not ready."""
        self.stage = reason

    def follow_proxy(self, proxy: SelfTest) -> None:
        """Check the proxy."""
        self._proxy = proxy
        self.health.add("proxy", lambda: proxy.problem, live=True)

    def watch(self, controllers: Iterable[Controller], identities: Mapping[str, IdentityCheck]) -> None:
        """Check the watch of each kind, and the identities."""
        for name, identity in identities.items():
            self.health.add(name, partial(getattr, identity, "problem"))
        for controller in controllers:
            name = check_name(controller.watch.gvk)
            self.health.add(f"watch/{name}", controller.informer.problem)
            self.health.add_notes(partial(_refusals, name, controller))
            self.health.add(f"watch-silence/{name}", controller.informer.silence, grace=0.0, live=True)

    async def follow(self, background: Background) -> None:
        """Run checks and reload certificates until canceled."""
        self.health.add_notes(background.notes)
        async with asyncio.TaskGroup() as group:
            group.create_task(background.keep("health", self.health.follow))
            if self._proxy is not None:
                group.create_task(background.keep("self-test of the proxy", self._proxy.follow))
            if self._certificates is not None:
                group.create_task(background.keep("certificates", self._certificates.follow))

    async def open_probes(self, stack: AsyncExitStack) -> None:
        """Serve probes until `stack` is closed."""
        address = Address.parse(self._settings.health_probe_bind_address, _PROBES)
        if address is None:
            return
        server = ProbeServer(self.health, ProbeTimeouts())
        port = await server.start(address)
        stack.push_async_callback(server.close)
        _log.info("Serving", paths=["/healthz", "/readyz"], port=port)

    async def open_metrics(self, stack: AsyncExitStack, meters: Meters, client: Client) -> None:
        """Serve metrics until `stack` is closed. With `metrics_require_rbac`, `client` authorizes readers."""
        settings = self._settings
        address = Address.parse(settings.metrics_bind_address, _METRICS)
        if address is None:
            return

        handlers = metrics_access.unrestricted(meters.text)
        if settings.metrics_require_rbac:
            reviews = AccessReviews(client.request, asyncio.get_running_loop().time)
            handlers = metrics_access.authorized(meters.text, reviews)
        context = None
        if settings.metrics_secure:
            folder = settings.metrics_cert_path
            files = CertificateFiles(folder / "tls.crt", folder / "tls.key") if folder else None
            self._certificates = await asyncio.to_thread(Certificates, files)
            context = self._certificates.context
        server, port = await endpoints.serve(address, handlers, _METRICS, context)
        stack.push_async_callback(server.cleanup)
        _log.info("Serving", paths=sorted(handlers), port=port, tls=context is not None)


def _refusals(name: str, controller: Controller) -> Mapping[str, str]:
    return {f"watch/{name}/{namespace}": why for namespace, why in controller.informer.refusals().items()}


def check_name(gvk: GVK) -> str:
    """Return a kind for the name of a check, and for a path: `memcached.v1alpha1.cache.example.com`."""
    return ".".join(filter(None, (gvk.kind.lower(), gvk.version, gvk.group)))
