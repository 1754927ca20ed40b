"""A proxy before the real control plane, and what a run sees of it."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from yarl import URL

from runner.dependents.loop_guard import LoopGuard
from runner.dependents.store import FileStore
from runner.dependents.watching import Dependents
from runner.kube.client import Client
from runner.kube.credentials import auth
from runner.kube.discovery import ApiResource, Discovery
from runner.objects import GVK, Object, ObjectKey, ObjectRef, metadata
from runner.ownership import Owner
from runner.plan.approved import ApprovedPlan
from runner.proxy.calls import Answer, Call, Handler, Proceed
from runner.proxy.handlers.discovery_cache import DiscoveryCache
from runner.proxy.handlers.negotiate import Negotiate
from runner.proxy.handlers.plan.handler import Planning
from runner.proxy.handlers.reads import Reads
from runner.proxy.handlers.writes import ServedResources, Writes
from runner.proxy.identity import Identities, RunIdentity
from runner.proxy.planning.overlay import Overlay
from runner.proxy.server import Proxy
from runner.sdk.devcluster import DevCluster
from runner.watches import watch

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]
Dump = Callable[..., dict[str, str]]

_USED = "configmaps,secrets,pods,namespaces,events,deployments.apps,clusterroles"
"""Kinds that the tests write."""
_DEADLINE = 30.0


@dataclass
class Observer:
    """Records the reports of the proxy."""

    reports: list[str] = field(default_factory=list)

    def wants(self, owner: Owner, resource: ApiResource, namespace: str) -> bool:
        del namespace
        return owner.namespaced and resource.plural == "configmaps"

    def read(self, owner: Owner, resource: ApiResource, obj: Object) -> None:
        self.reports.append(f"read {resource.plural} {obj['metadata']['name']} of {owner.ref.key.name}")

    def wrote(self, owner: Owner, resource: ApiResource, obj: Object) -> None:
        self.reports.append(f"wrote {resource.plural} {obj['metadata'].get('name', '')} of {owner.ref.key.name}")

    def deleted(self, owner: Owner, resource: ApiResource, answer: Object) -> None:
        name = (answer.get("details") or answer["metadata"]).get("name", "")
        self.reports.append(f"deleted {resource.plural} {name} of {owner.ref.key.name}")


@dataclass
class Passed:
    """The last handler: remembers what is passed on to the API server."""

    targets: list[str] = field(default_factory=list)
    before: Callable[[str, str], None] = lambda _method, _target: None
    """Called before a request is passed on."""

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        self.targets.append(call.head.target)
        await asyncio.to_thread(self.before, call.head.method, call.head.target)
        return await proceed(call)


@dataclass
class Standing:
    """A proxy that runs in a thread, and one run that may use it."""

    proxy: Proxy
    identities: Identities
    run: RunIdentity
    token: str
    kubeconfig: Path
    observer: Observer
    passed: Passed
    loop: asyncio.AbstractEventLoop

    def another_run(self) -> None:
        """From here on the kubeconfig is that of another run of the same owner."""
        self.token = self.identities.issue(self.run)
        self.kubeconfig.write_text(self.proxy.kubeconfig_for(self.token))

    def plan(self) -> Overlay:
        """From here on the kubeconfig is that of a plan run of the same owner; return its overlay."""
        overlay = Overlay()
        self.token = self.identities.issue(replace(self.run, plan=overlay))
        self.kubeconfig.write_text(self.proxy.kubeconfig_for(self.token))
        return overlay

    def approve(self, overlay: Overlay) -> ApprovedPlan:
        """From here on the kubeconfig is that of a run that may make the planned writes."""
        approved = ApprovedPlan(overlay, self.run.owner.ref, lambda _why: None)
        self.token = self.identities.issue(replace(self.run, approval=approved))
        self.kubeconfig.write_text(self.proxy.kubeconfig_for(self.token))
        return approved

    def revoke(self) -> None:
        self.loop.call_soon_threadsafe(self.identities.revoke, self.token)


@pytest.fixture
def standing(devcluster: DevCluster, namespace: str, tmp_path: Path) -> Iterator[Standing]:
    """A proxy whose run belongs to a ConfigMap `owner` in the test's namespace."""
    command = [str(devcluster.kubectl), f"--kubeconfig={devcluster.kubeconfig}", f"--namespace={namespace}"]
    subprocess.run([*command, "create", "configmap", "owner"], check=True, capture_output=True)
    uid = subprocess.check_output([*command, "get", "configmap", "owner", "-o=jsonpath={.metadata.uid}"], text=True)
    owner = Owner(ObjectRef(GVK("", "v1", "ConfigMap"), ObjectKey(namespace, "owner"), uid), namespaced=True)
    run = RunIdentity("job", owner, True, True, False, frozenset(), False, "")  # noqa: FBT003 - by the dataclass's order
    ready: list[Standing] = []
    started, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        credentials = await auth.load(str(devcluster.kubeconfig), None, auth.HostEnvironment.of_process())
        async with Client(credentials) as client:
            identities, observer, passed = Identities(), Observer(), Passed()
            served = ServedResources(client, time.monotonic)
            discovery_cache, writes = DiscoveryCache(time.monotonic, served.forget), Writes(served, client, observer)
            planning = Planning(served, time.monotonic, longest_watch=1.0)
            handlers: list[Handler] = [discovery_cache, Negotiate(), writes, planning, passed]
            proxy = Proxy(credentials, identities, handlers)
            await proxy.start("127.0.0.1", 0)
            token = identities.issue(run)
            path = tmp_path / "run.kubeconfig"
            path.write_text(proxy.kubeconfig_for(token))
            ready.append(Standing(proxy, identities, run, token, path, observer, passed, asyncio.get_running_loop()))
            started.set()
            await stop.wait()
            await proxy.close(1.0)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(_DEADLINE)
    yield ready[0]
    ready[0].loop.call_soon_threadsafe(stop.set)
    thread.join()


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_hit(self) -> bool:
        return self.headers.get("X-Cache") == "HIT"

    @property
    def obj(self) -> Object:
        found: Object = orjson.loads(self.body)
        return found

    @property
    def version(self) -> str:
        return str(self.obj["metadata"]["resourceVersion"])


@dataclass
class Operating:
    """The proxy as an operator has it, with dependents that are watched, a run, and a client past the proxy."""

    namespace: str
    owner: Owner
    dependents: Dependents
    identities: Identities
    proxy: Proxy
    credentials: auth.Credentials
    session: aiohttp.ClientSession
    results: Counter[str]
    """Reads of owned objects: `hit`, `miss`."""
    token: str = ""

    def run(self, **different: Any) -> str:
        """Begin a run of the owner; return its token."""
        plain = RunIdentity("job", self.owner, True, True, False, frozenset(), False, "")  # noqa: FBT003 - in order
        return self.identities.issue(replace(plain, **different))

    async def ask(self, method: str, path: str, body: object = None, *, token: str = "", **headers: str) -> Reply:
        """Ask through the proxy, as the run of `token` or of the fixture."""
        login = {"Authorization": f"Bearer {token or self.token}"}
        return await self._send(method, self.proxy.url + path, body, {**login, **headers}, None)

    async def directly(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        """Ask the API server."""
        login = dict(await self.credentials.headers())
        return await self._send(
            method, self.credentials.base_url + path, body, {**login, **headers}, self.credentials.ssl
        )

    async def _send(
        self, method: str, url: str, body: object, headers: dict[str, str], tls: ssl.SSLContext | None
    ) -> Reply:
        merge = "application/merge-patch+json" if method == "PATCH" else "application/json"
        named = {"Accept": "application/json", "Content-Type": merge, **headers}
        data = None if body is None else orjson.dumps(body)
        asked = self.session.request(method, URL(url, encoded=True), data=data, headers=named, ssl=tls or True)
        async with asked as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    async def until(self, condition: Callable[[], Awaitable[object]], what: str) -> None:
        """Wait until something holds; fail at a deadline."""
        end = time.monotonic() + _DEADLINE
        while not await condition():
            assert time.monotonic() < end, f"waited {_DEADLINE} s in vain: {what}"
            await asyncio.sleep(0.05)

    async def hits(self, path: str) -> Reply:
        """Read until that is answered from memory."""
        replies: list[Reply] = []

        async def is_hit() -> bool:
            replies.append(await self.ask("GET", path))
            return replies[-1].is_hit

        await self.until(is_hit, f"{path} to be answered from memory")
        return replies[-1]


@pytest.fixture
async def operating(devcluster: DevCluster, namespace: str, tmp_path: Path) -> AsyncIterator[Operating]:
    """A proxy with everything behind it that reads from memory need; a ConfigMap owns what its run makes."""
    (tmp_path / "play.yml").write_text("[]")
    (tmp_path / "watches.yaml").write_text("[{version: v1, kind: ConfigMap, playbook: play.yml}]")
    loaded = watch.load(Path("watches.yaml"), environ={}, cwd=tmp_path, roles_path="", collections_path="")
    credentials = await auth.load(str(devcluster.kubeconfig), None, auth.HostEnvironment.of_process())
    async with Client(credentials) as client, aiohttp.ClientSession() as session:
        discovery, identities, results = Discovery(client), Identities(), Counter[str]()
        body = {"metadata": {"name": "owner"}}
        made = await client.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", body=body)
        owner = Owner(ObjectRef.of(GVK("", "v1", "ConfigMap"), made), namespaced=True)
        guard = LoopGuard(lambda *_: None, lambda *_: None, lambda *_: None)
        dependents = Dependents(
            client, discovery, (namespace,), loaded.watches, guard, FileStore(tmp_path), lambda *_: True
        )
        served = ServedResources(client, time.monotonic)
        reads = Reads(dependents.bodies, dependents, lambda result: results.update([result]))
        proxy = Proxy(credentials, identities, [Negotiate(), reads, Writes(served, client, dependents)])
        await proxy.start("127.0.0.1", 0)
        following = asyncio.create_task(dependents.follow())
        operating = Operating(namespace, owner, dependents, identities, proxy, credentials, session, results)
        operating.token = operating.run()
        dependents.began(owner)
        yield operating
        assert not following.done(), "following dependents ended"
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await proxy.close(0.0)


@pytest.fixture
def environ(standing: Standing, tmp_path: Path) -> dict[str, str]:
    """What a run sees: its kubeconfig, and homes and temporary folders of the test's own."""
    return {
        **os.environ,
        "KUBECONFIG": str(standing.kubeconfig),
        "K8S_AUTH_KUBECONFIG": str(standing.kubeconfig),
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
    }


@pytest.fixture
def kubectl(devcluster: DevCluster, environ: dict[str, str], namespace: str) -> Kubectl:
    """Run kubectl as a role does, in the test's namespace."""

    def run(
        *arguments: str, stdin: str | None = None, check: bool = True, **more: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [devcluster.kubectl, f"--namespace={namespace}", *arguments],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=check,
            timeout=60,
            env={**environ, **more},
        )

    return run


@pytest.fixture
def pod(kubectl: Kubectl) -> str:
    """The name of a running pod."""
    kubectl("run", "web", "--image=nginx")
    kubectl("wait", "pod/web", "--for=condition=Ready", "--timeout=30s")
    return "web"


@pytest.fixture
def exec_pod(devcluster: DevCluster, kubectl: Kubectl) -> str:
    """Return the name of a running pod in which commands run."""
    container = {"name": devcluster.exec_container, "image": "nginx"}
    kubectl("run", "web", "--image=nginx", "--overrides", json.dumps({"spec": {"containers": [container]}}))
    kubectl("wait", "pod/web", "--for=condition=Ready", "--timeout=30s")
    return "web"


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Wait until something holds; fail at a deadline."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + _DEADLINE
        while not condition():
            assert time.monotonic() < deadline, f"waited {_DEADLINE} s in vain"
            time.sleep(0.05)

    return wait


@pytest.fixture
def dump(devcluster: DevCluster, namespace: str) -> Dump:
    """Versions of the objects in the test's namespaces and of the cluster scope, read directly."""
    command = [str(devcluster.kubectl), f"--kubeconfig={devcluster.kubeconfig}"]

    ready = ["wait", "--for=create", "--timeout=30s", "configmap/kube-root-ca.crt", "serviceaccount/default"]
    subprocess.run([*command, f"--namespace={namespace}", *ready], check=True, capture_output=True)

    def read(kinds: str = _USED) -> dict[str, str]:
        found = json.loads(subprocess.check_output([*command, "get", kinds, "-A", "-o=json"], text=True))["items"]
        versions = {}
        for each in found:
            meta = metadata(each)
            place = meta.get("namespace") or (meta["name"] if each["kind"] == "Namespace" else namespace)
            is_ours = place.startswith((namespace, "planned")) and each["kind"] not in {"Node", "ComponentStatus"}
            if is_ours and "deletionTimestamp" not in meta:  # CRDs of earlier tests still change
                versions[f"{each['kind']} {meta.get('namespace')}/{meta['name']}"] = meta["resourceVersion"]
        return versions

    return read


@pytest.fixture
def all_kinds(devcluster: DevCluster) -> str:
    """All kinds that can be listed, except leases."""
    command = [
        str(devcluster.kubectl),
        f"--kubeconfig={devcluster.kubeconfig}",
        "api-resources",
        "--verbs=list",
        "-o=name",
    ]
    return ",".join(set(subprocess.check_output(command, text=True).split()) - {"leases.coordination.k8s.io"})
