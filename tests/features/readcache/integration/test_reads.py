"""GETs of owned objects that are answered from memory, on the real API server."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.wait import until

if TYPE_CHECKING:
    from pathlib import Path

    from runner.sdk.devcluster import DevCluster
    from tests.integration.proxy.bed import Operating

APPLY = "application/apply-patch+yaml"


def config_map(value: str = "a", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", **metadata}, "data": {"value": value}}


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "example.com/i:1"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


@pytest.fixture
def space(operating: Operating) -> str:
    """The path of the test's ConfigMaps."""
    return f"/api/v1/namespaces/{operating.namespace}/configmaps"


async def test_a_hit_is_what_the_api_server_answers_and_no_write_is_missed(operating: Operating, space: str) -> None:
    path = f"{space}/one"
    assert (await operating.ask("POST", space, config_map())).status == 201
    found, direct = await operating.hits(path), await operating.directly("GET", path)
    assert found.body == direct.body
    for name in ("Content-Type", "Cache-Control", "Content-Length"):
        assert found.headers[name] == direct.headers[name]

    async def reads(value: str) -> None:
        """The first read already, and one from memory later, are those of what was written."""
        assert (await operating.ask("GET", path)).obj["data"] == {"value": value}
        hit = await operating.hits(path)
        assert hit.obj["data"] == {"value": value}
        assert hit.body == (await operating.directly("GET", path)).body

    await operating.ask("PATCH", path, {"data": {"value": "b"}})
    await reads("b")
    await operating.ask("PUT", path, config_map("c"))
    await reads("c")
    applied = {"Content-Type": APPLY}
    await operating.ask("PATCH", f"{path}?fieldManager=it&force=true", config_map("d"), **applied)
    await reads("d")
    dry = await operating.ask("PATCH", f"{path}?dryRun=All", {"data": {"value": "never"}})
    assert dry.obj["data"] == {"value": "never"}
    assert (await operating.ask("GET", path)).is_hit
    await reads("d")
    await operating.ask("DELETE", path)
    assert (await operating.ask("GET", path)).status == 404
    await operating.ask("POST", space, config_map("e"))
    await reads("e")
    await operating.ask("DELETE", space)
    assert (await operating.ask("GET", path)).status == 404


async def test_writes_of_a_subresource_are_writes_of_the_object(operating: Operating) -> None:
    deployments = f"/apis/apps/v1/namespaces/{operating.namespace}/deployments"
    path = f"{deployments}/web"
    await operating.ask("POST", deployments, deployment(0))
    for replicas in (1, 2):
        await operating.hits(path)
        await operating.ask("PATCH", f"{path}/scale", {"spec": {"replicas": replicas}})
        assert (await operating.ask("GET", path)).obj["spec"]["replicas"] == replicas

    async def is_rolled_out() -> bool:
        """And known to be: who reads from memory may learn a little later, of the last write to the status too."""
        hit, direct = await operating.hits(path), await operating.directly("GET", path)
        return direct.obj["status"].get("readyReplicas") == 2 and hit.body == direct.body

    await until(is_rolled_out, "the rollout, as read from memory")


async def test_objects_changed_by_other_clients_are_read_again_and_deleted_ones_dropped(
    operating: Operating, space: str
) -> None:
    path = f"{space}/one"
    await operating.ask("POST", space, config_map())
    await operating.hits(path)
    await operating.directly("PATCH", path, {"data": {"value": "b"}})

    async def is_read_again() -> bool:
        hit = await operating.hits(path)
        return bool(hit.obj["data"] == {"value": "b"})

    await until(is_read_again, "the changed ConfigMap in memory")
    await operating.directly("DELETE", path)

    async def is_dropped() -> bool:
        return operating.cache.size == 0

    await until(is_dropped, "the ConfigMap to be dropped")
    assert (await operating.ask("GET", path)).status == 404


async def test_kubectl_is_answered_from_memory(
    operating: Operating, space: str, devcluster: DevCluster, tmp_path: Path
) -> None:
    await operating.ask("POST", space, config_map())
    await operating.hits(f"{space}/one")
    kubeconfig = tmp_path / "run.kubeconfig"
    kubeconfig.write_text(operating.proxy.kubeconfig_for(operating.token))
    before = operating.results["hit"]
    environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(tmp_path)}
    named = f"--namespace={operating.namespace}"
    command = [str(devcluster.kubectl), named, "get", "configmap", "one", "-o=jsonpath={.data.value}"]
    process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert (output, operating.results["hit"]) == (b"a", before + 1)
