"""A proxy before the real control plane, and what a run sees of it."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from runner.app.features import FEATURE_FIELDS
from runner.base.credentials import auth
from runner.base.monitoring.background import Background
from runner.core.dependents.store import KindStore
from runner.core.dependents.watching import Dependents
from runner.core.kube.client import Client
from runner.core.kube.discovery import Discovery, ServedResources
from runner.core.kube.state import FileState
from runner.core.proxy.calls import Handler
from runner.core.proxy.handlers.forward import Negotiate
from runner.core.proxy.handlers.writes import Writes
from runner.core.proxy.identity import Identities, RunIdentity
from runner.core.proxy.server import Proxy
from runner.core.watches import watch
from runner.features.discoverycache.handler import DiscoveryCache
from runner.features.plan.requests.handler import Planning
from runner.features.readcache.bodies import MOST_BYTES, ReadCache
from runner.features.readcache.handler import Reads
from runner.sdk.devcluster import DevCluster
from runner.values.objects import GVK, ObjectRef, Owner, metadata
from tests.integration.proxy.bed import Dump, Observer, Operating, Passed, Standing
from tests.kit.cluster import Kubectl, kubectl_of
from tests.kit.objects import Api
from tests.kit.wait import patience, wait_until

_USED = "configmaps,secrets,pods,namespaces,events,deployments.apps,clusterroles"
"""Kinds that the tests write."""
_OF_OTHERS = {"Node", "ComponentStatus", "IPAddress", "ServiceCIDR"}
"""Kinds without a namespace whose objects the API server and kubelets write, for the Services of any test too."""
_OF_EACH_NAMESPACE = ("configmaps/kube-root-ca.crt", "serviceaccounts/default")


@pytest.fixture
def standing(api: Api, devcluster: DevCluster, namespace: str, tmp_path: Path) -> Iterator[Standing]:
    """A proxy whose run belongs to a ConfigMap `owner` in the test's namespace."""
    made = api.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "owner"}})
    owner = Owner(ObjectRef.of(GVK("", "v1", "ConfigMap"), made), namespaced=True)
    run = RunIdentity("job", owner, True, True, "")  # noqa: FBT003 - by the dataclass's order
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
    assert started.wait(patience())
    yield ready[0]
    ready[0].loop.call_soon_threadsafe(stop.set)
    thread.join()


@pytest.fixture
async def operating(devcluster: DevCluster, namespace: str, tmp_path: Path) -> AsyncIterator[Operating]:
    """A proxy with everything behind it that reads from memory need; a ConfigMap owns what its run makes."""
    (tmp_path / "play.yml").write_text("[]")
    (tmp_path / "watches.yaml").write_text("[{version: v1, kind: ConfigMap, playbook: play.yml}]")
    loaded = watch.load(
        Path("watches.yaml"), environ={}, cwd=tmp_path, roles_path="", collections_path="", features=FEATURE_FIELDS
    )
    credentials = await auth.load(str(devcluster.kubeconfig), None, auth.HostEnvironment.of_process())
    async with Client(credentials) as client, aiohttp.ClientSession() as session:
        discovery, identities, results = Discovery(client), Identities(), Counter[str]()
        body = {"metadata": {"name": "owner"}}
        made = await client.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", body=body)
        owner = Owner(ObjectRef.of(GVK("", "v1", "ConfigMap"), made), namespaced=True)
        dependents = Dependents(
            *(client, discovery, (namespace,), loaded.watches, lambda _: None),
            KindStore(FileState(tmp_path)),
            lambda: True,
        )
        served = ServedResources(client, time.monotonic)
        cache = ReadCache(MOST_BYTES)
        dependents.listener = cache
        reads = Reads(cache, dependents.follows, lambda result: results.update([result]))
        proxy = Proxy(credentials, identities, [Negotiate(), reads, Writes(served, client, dependents)])
        await proxy.start("127.0.0.1", 0)
        following = asyncio.create_task(dependents.follow(Background()))
        operating = Operating(namespace, owner, dependents, cache, identities, proxy, credentials, session, results)
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
def kubectl(devcluster: DevCluster, standing: Standing, environ: dict[str, str], namespace: str) -> Kubectl:
    """Run kubectl as a role does, in the test's namespace."""
    return Kubectl(devcluster.kubectl, standing.kubeconfig, f"--namespace={namespace}", environ=environ)


@pytest.fixture
def pod(kubectl: Kubectl) -> str:
    """The name of a running pod."""
    return kubectl.run_pod()


@pytest.fixture
def exec_pod(devcluster: DevCluster, kubectl: Kubectl) -> str:
    """Return the name of a running pod in which commands run."""
    return kubectl.run_pod(devcluster.exec_container)


@pytest.fixture
def dump(api: Api, devcluster: DevCluster, namespace: str) -> Dump:
    """Versions of the objects in the test's namespaces and of the cluster scope, read directly."""
    of_each = [f"/api/v1/namespaces/{namespace}/{each}" for each in _OF_EACH_NAMESPACE]
    wait_until(lambda: all(api.call("GET", path) for path in of_each), "the objects that each namespace has")
    kubectl = kubectl_of(devcluster)

    def read(kinds: str = _USED) -> dict[str, str]:
        found = json.loads(kubectl("get", kinds, "-A", "-o=json"))["items"]
        versions = {}
        for each in found:
            meta = metadata(each)
            place = meta.get("namespace") or (meta["name"] if each["kind"] == "Namespace" else namespace)
            is_ours = place.startswith((namespace, "planned")) and each["kind"] not in _OF_OTHERS
            if is_ours and "deletionTimestamp" not in meta:  # CRDs of earlier tests still change
                versions[f"{each['kind']} {meta.get('namespace')}/{meta['name']}"] = meta["resourceVersion"]
        return versions

    return read


@pytest.fixture
def all_kinds(devcluster: DevCluster) -> str:
    """All kinds that can be listed, except leases."""
    names = kubectl_of(devcluster)("api-resources", "--verbs=list", "-o=name").split()
    return ",".join({*names} - {"leases.coordination.k8s.io"})
