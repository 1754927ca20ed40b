"""Runs in pods as part of the operator: the certificate authority, the server for agents, and the watch of pods.

All replicas share one authority, so that an agent trusts the operator that continues its run. It is in a Secret of the
operator's namespace, or, outside a cluster, in a file of the runner folder.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from runner.base import log
from runner.base.config import atomic_file
from runner.base.config.settings import Settings
from runner.base.credentials.auth import OwnNamespaces
from runner.base.meters import Meters
from runner.core.kube.client import Client
from runner.core.kube.meaning import Request
from runner.core.kube.state import SECRETS, ClusterState, StateError
from runner.core.watches.watch import Watch
from runner.engines.plugin import OpenEngine, OperatorParts
from runner.engines.pod import certificates, jobs, payload
from runner.engines.pod.certificates import Certificates
from runner.engines.pod.engine import PodEngine
from runner.engines.pod.fields import POD_POLICY, PodPolicy
from runner.engines.pod.jobs import PODS, Address
from runner.engines.pod.links import Links
from runner.engines.pod.own_secrets import OwnSecrets
from runner.engines.pod.plugin import authority_name
from runner.engines.pod.records import Records
from runner.engines.pod.warm import WarmPods, WarmTemplate
from runner.engines.pod.watching import PodWatch
from runner.values.errors import PASSING, ApiError, ConfigError
from runner.values.objects import Object, references_of

_NAME = "ansible-operator-pods"
"""Name in the server's certificate: agents reach it at various addresses."""
_FILES = ("ca.crt", "ca.key")
_PORT = 8444
"""Port of the Service for pods."""
_METRICS = "OSDK_METRICS_ADDRESS"
"""Variable with the address of the server for metrics of roles."""
_log = log.get(__name__)


async def open_engine(parts: OperatorParts, watches: Sequence[Watch]) -> OpenEngine | None:
    """Open the engine for watches; None if a signal stops the operator. Raises ConfigError for invalid settings."""
    settings, client = parts.settings, parts.client
    namespace = OwnNamespaces.of_process(settings.leader_election_namespace).others
    server = _server(settings.pods_address, namespace)
    authority = await parts.until_answered(Request.AUTHORITY, partial(_authority, settings, client, namespace))
    if authority is None:
        return None
    issued = _issued(authority, authority_name(settings))
    links = Links(parts.proxy_connection, parts.connections.get(_METRICS))
    port = await _listen(links, settings.pods_bind_address, issued)
    parts.stack.push_async_callback(links.close)
    _log.info("Serving pods of runs", port=port, address=server)
    if unknown := await asyncio.to_thread(payload.unknown_variables, os.environ):
        _log.warning(
            "Pods of runs do not get variables that are no settings of ansible-core; set them in podTemplate.env",
            variables=unknown,
        )
    own = [namespace] if settings.namespaces and namespace else []
    pods = PodWatch(client, parts.discovery, tuple(dict.fromkeys((*settings.namespaces, *own))), namespace)

    def address() -> Address:
        return Address(server, _NAME, issued.authority, issued.key)

    started = parts.meters.histogram(
        "ansible_operator_pod_start_seconds", "Time from the creation of a run's Job to its first output"
    )
    policies = {watch.gvk: policy for watch in watches if (policy := watch.more.get(POD_POLICY)) is not None}
    records = Records(client, address, namespace, policies)
    engine = PodEngine(client, links, pods, records, parts.root, started.observe)
    _declare(parts.meters, pods, links, engine)
    if warm := {gvk: policy for gvk, policy in policies.items() if policy.warm}:
        owners = await parts.until_answered(Request.AUTHORITY, partial(_owners, client, namespace, settings.pod_name))
        engine.warm |= {
            watch.gvk: WarmPods(
                records, links, pods, await _template(watch, warm[watch.gvk], owners or (), parts), parts.leads
            )
            for watch in watches
            if watch.gvk in warm
        }
    followed = {f"warm pods {number}": idle.follow for number, idle in enumerate(engine.warm.values(), 1)}
    for idle in engine.warm.values():
        parts.stack.push_async_callback(idle.close)
    return OpenEngine(
        engine,
        {"pods": pods.follow, "certificates of pods": issued.follow, **followed},
        lambda watch: policies[watch.gvk].most,
    )


def _declare(meters: Meters, pods: PodWatch, links: Links, engine: PodEngine) -> None:
    meters.observable_gauge("ansible_operator_pods", "Pods of runs", ["phase"], pods.phases)
    meters.observable_counter(
        "ansible_operator_pod_agents",
        "Frames of agents, their connections after the first, and refused connections",
        ["event"],
        lambda: {"frames": links.frames, "reconnects": links.resumes, "refused": links.refused},
    )
    meters.observable_counter(
        "ansible_operator_pod_runs",
        "Runs in pods that this operator began, and those of an earlier operator that it resumed",
        ["start"],
        lambda: {"begun": engine.begun_runs, "resumed": engine.resumed_runs},
    )
    meters.observable_counter(
        "ansible_operator_warm_pods",
        "Runs that got a warm pod or found none, and warm pods that failed without a run",
        ["result"],
        engine.warm_counts,
    )


async def _listen(links: Links, at: str, issued: Certificates) -> int:
    """Start the server for agents; return its port. Raises ConfigError if it cannot listen."""
    host, _, port = at.rpartition(":")
    try:
        return await links.start(host.strip("[]") or None, int(port), issued.context)
    except OSError as error:
        raise ConfigError(f"--pods-bind-address: cannot listen on {at}: {error.strerror or error}") from error


async def _template(watch: Watch, policy: PodPolicy, owners: Sequence[Object], parts: OperatorParts) -> WarmTemplate:
    environment = parts.environments(watch)[0]
    files = await asyncio.to_thread(payload.configuration, environment, os.environ, Path.cwd())
    return WarmTemplate(watch.gvk.kind, policy, files, owners)


async def _owners(client: Client, namespace: str, pod_name: str) -> list[Object]:
    """Return a reference to the owner of the operator's pod, such as a ReplicaSet; none outside a cluster.

    Raises:
        ConfigError: the namespace of the operator is unknown.
        ApiError, ApiUnavailableError: a temporary error of the API server.
    """
    if not namespace:
        raise ConfigError("warmPods needs --leader-election-namespace, where these pods run")
    if not pod_name:
        return []
    try:
        pod = await client.request("GET", PODS.path(namespace, pod_name))
    except ApiError as error:
        if isinstance(error, PASSING):
            raise
        _log.warning("Cannot read the operator's pod; its warm pods have no owner", pod=pod_name, error=str(error))
        return []
    owners = [owner for owner in references_of(pod) if owner.get("controller")]
    return [{name: owner[name] for name in ("apiVersion", "kind", "name", "uid")} for owner in owners]


def without_own_objects(watch: Watch, settings: Settings) -> Watch:
    """Return a watch of Secrets, Jobs or Pods that does not select the operator's own.

    A run for the Secret of a run would need a further Secret, and that with the key of the authority is for no run.
    """
    labels = filter(None, (watch.selector, *(f"!{label}" for label in jobs.OWN_LABELS)))
    is_secret = watch.gvk.kind == SECRETS.gvk.kind
    fields = filter(None, (watch.field_selector, f"metadata.name!={authority_name(settings)}" if is_secret else ""))
    return replace(watch, selector=",".join(labels), field_selector=",".join(fields))


def own_secrets(settings: Settings) -> OwnSecrets:
    """Return the handler of the proxy that keeps the authority and the Secrets of runs from runs."""
    namespace = OwnNamespaces.of_process(settings.leader_election_namespace).others
    return OwnSecrets(namespace, authority_name(settings))


def _server(address: str, namespace: str) -> str:
    if not address:
        raise ConfigError(
            "--pods-address is required because a watch sets isolation: pod: set the name of the Service for pods "
            "(`ansible-operator generate pods` writes it), or host:port"
        )
    if ":" in address:
        return address
    if not namespace:
        raise ConfigError(f"--pods-address: {address!r} names a Service, which needs an operator in a cluster")
    return f"{address}.{namespace}.svc:{_PORT}"


async def _authority(settings: Settings, client: Client, namespace: str) -> tuple[bytes, bytes]:
    """Return certificate and key. Raises ConfigError if the storage refuses them."""
    name = authority_name(settings)
    if not namespace:
        return await asyncio.to_thread(_authority_in, settings.runner_dir / name)
    about, labels = "the certificate authority of runs in pods", {"app.kubernetes.io/managed-by": "ansible-operator"}
    state = ClusterState(client, namespace, about, ("create", "get"), labels=labels, resource=SECRETS)
    try:
        stored = await state.ensure(name, _new_authority)
    except StateError as error:
        raise ConfigError(str(error)) from error
    certificate, key = (stored.data.get(file, "").encode() for file in _FILES)
    if not (certificate and key):
        raise ConfigError(f"the Secret {name} has no {' and '.join(_FILES)}; delete it to get another one")
    return certificate, key


def _issued(authority: tuple[bytes, bytes], name: str) -> Certificates:
    """Return the certificates of an authority, which is stored under this name. Raises ConfigError."""
    try:
        return Certificates(authority, [_NAME])
    except ValueError as error:
        raise ConfigError(f"{name}: invalid {' or '.join(_FILES)} ({error}); delete it to get another one") from error


def _new_authority() -> dict[str, str]:
    return dict(zip(_FILES, (part.decode() for part in certificates.make_authority()), strict=True))


def _authority_in(folder: Path) -> tuple[bytes, bytes]:
    """Return certificate and key of a folder; create them if they are missing."""
    certificate, key = (folder / name for name in _FILES)
    if not (certificate.exists() and key.exists()):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in _new_authority().items():
            atomic_file.write(folder / name, content)
    return certificate.read_bytes(), key.read_bytes()
