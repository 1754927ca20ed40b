"""Owners that changes of dependents trigger, on a real control plane with a controller manager."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from runner.core.kube.client import EVERYTHING, PatchType
from runner.core.kube.watch_health import WatchState
from runner.values.objects import GVK, ObjectKey, metadata
from tests.kit.wait import until

if TYPE_CHECKING:
    from runner.core.kube.discovery import ApiResource
    from tests.integration.dependents.bed import MakeOwner, Operate
    from tests.kit.objects import Hand

DEPLOYMENT = GVK("apps", "v1", "Deployment")
CONFIG_MAP = GVK("", "v1", "ConfigMap")
SERVICE = GVK("", "v1", "Service")


@pytest.fixture
async def shop(app: ApiResource, make_owner: MakeOwner) -> Any:
    """An object that owns."""
    return await make_owner(app, "shop")


async def rolled_out(hand: Hand, name: str) -> None:
    """Wait until the Deployment controller has seen a Deployment's latest generation and written its revision."""

    async def is_seen() -> bool:
        found = await hand.get(DEPLOYMENT, name)
        return bool(found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"])

    await until(is_seen, f"the controller to see {name}")


async def test_scaling_deleting_and_recreating_by_hand_trigger_the_owner(
    operate: Operate, app: Any, shop: Any, objects: Any
) -> None:
    async with operate(app, watch_dependent_status="off") as operator:
        async with operator.run(shop) as run:
            await run.create(objects.deployment("web"))
        await operator.live(DEPLOYMENT)
        await rolled_out(operator.hand, "web")
        await operator.hand.patch(DEPLOYMENT, "web", {"spec": {"replicas": 5}})
        await operator.triggers("shop")
        assert (
            operator.triggered[0][1]
            == f"Deployment {operator.hand.namespace}/web changed: spec (by {operator.hand.manager})"
        )
        async with operator.run(shop) as run:
            await run.patch(DEPLOYMENT, "web", {"spec": {"replicas": 1}})
        await rolled_out(operator.hand, "web")
        await operator.stays_quiet(DEPLOYMENT)
        await operator.hand.delete(DEPLOYMENT, "web")
        await operator.triggers("shop", "shop")
        async with operator.run(shop) as run:
            await run.create(objects.deployment("web"))
        await rolled_out(operator.hand, "web")
        await operator.stays_quiet(DEPLOYMENT)


async def test_scaling_through_the_subresource_is_attributed_to_the_client_that_scaled(
    operate: Operate, app: Any, shop: Any, objects: Any
) -> None:
    async with operate(app, watch_dependent_status="off") as operator:
        async with operator.run(shop) as run:
            await run.create(objects.deployment("web"))
        await operator.live(DEPLOYMENT)
        await rolled_out(operator.hand, "web")
        deployments = await operator.hand.discovery.find(DEPLOYMENT)
        key = ObjectKey(operator.hand.namespace, "web")
        await operator.hand.client.patch(
            deployments,
            key,
            {"spec": {"replicas": 5}},
            content_type=PatchType.MERGE,
            subresource="scale",
            params={"fieldManager": "kubectl"},
        )
        await operator.triggers("shop")
        assert operator.triggered[0][1] == f"Deployment {key} changed: spec (by kubectl)"


async def test_writes_of_a_run_trigger_no_owner(operate: Operate, app: Any, shop: Any, objects: Any) -> None:
    async with operate(app, watch_dependent_status="off") as operator:
        async with operator.run(shop) as run:
            await run.create(objects.deployment("web"))
            await run.create(objects.config_map("settings"))
            await operator.live(DEPLOYMENT, CONFIG_MAP)
            await run.patch(DEPLOYMENT, "web", {"spec": {"replicas": 2}})
            await run.patch(DEPLOYMENT, "web", {"spec": {"replicas": 3}}, "scale")
            await run.patch(DEPLOYMENT, "web", {"metadata": {"labels": {"a": "b"}}})
            await run.patch(CONFIG_MAP, "settings", {"data": {"value": "b"}})
            await run.delete(DEPLOYMENT, "web")
            await run.create(objects.deployment("web"))
            await run.delete(CONFIG_MAP, "settings")
        await rolled_out(operator.hand, "web")
        await operator.stays_quiet(DEPLOYMENT)
        await operator.stays_quiet(CONFIG_MAP)


async def test_an_edited_config_map_triggers_its_owner_and_an_unchanged_one_does_not(
    operate: Operate, app: Any, shop: Any, objects: Any
) -> None:
    async with operate(app) as operator:
        async with operator.run(shop) as run:
            await run.create(objects.config_map("settings"))
        await operator.live(CONFIG_MAP)
        same = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"value": "a"}}
        before = await operator.hand.get(CONFIG_MAP, "settings")
        after = await operator.hand.patch(CONFIG_MAP, "settings", same, fieldManager="somebody")
        assert metadata(before)["resourceVersion"] != metadata(after)["resourceVersion"]
        await operator.stays_quiet(CONFIG_MAP)
        await operator.hand.patch(CONFIG_MAP, "settings", {"data": {"value": "b"}})
        await operator.triggers("shop")
        assert operator.triggered[0][1].endswith(f"changed: content (by {operator.hand.manager})")


async def test_the_status_of_a_service_triggers_its_owner(operate: Operate, app: Any, shop: Any) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }
    async with operate(app, watch_dependent_status="auto") as operator:
        async with operator.run(shop) as run:
            await run.create(service)
        await operator.live(SERVICE)
        ready = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
        await operator.hand.patch(SERVICE, "web", ready, "status")
        await operator.triggers("shop")
        await operator.hand.patch(SERVICE, "web", {"metadata": {"labels": {"last": "one"}}})
        await operator.triggers("shop", "shop")
    changes = [why.partition("/web ")[2].partition(" (")[0] for _, why in operator.triggered]
    assert changes == ["changed: status", "changed: labels"]


async def test_after_a_version_is_no_longer_served_the_version_of_the_runs_is_watched(
    operate: Operate, app: Any, shop: Any, group: str, objects: Any
) -> None:
    old, new = GVK(group, "v1beta1", "Part"), GVK(group, "v1", "Part")
    async with operate(app) as operator:
        hand = operator.hand
        crd = objects.definition(group, "Part", versions=("v1beta1", "v1"))
        await hand.install(crd)
        part = {"kind": "Part", "metadata": {"name": "p"}, "spec": {"size": 1}}
        async with operator.run(shop) as run:
            await run.create({"apiVersion": old.api_version, **part})
        await operator.live(old)
        async with operator.run(shop) as run:
            await run.patch(new, "p", {"spec": {"size": 2}})
        assert operator.dependents.watched() == {old}
        crd["spec"]["versions"][0]["served"] = False
        await hand.patch(GVK.of(crd), crd["metadata"]["name"], {"spec": {"versions": crd["spec"]["versions"]}})
        (watcher,) = operator.dependents._kinds[group, "Part"]._watchers
        await until(lambda: watcher.health.state is WatchState.WAITING_FOR_KIND, "the version to end")
        assert operator.triggered == []  # its objects are unknown, not gone
        async with operator.run(shop) as run:
            await run.patch(new, "p", {"spec": {"size": 3}})
        await operator.live(new)
        await hand.patch(new, "p", {"spec": {"size": 4}})
        await operator.triggers("shop")


async def test_after_an_outage_of_the_api_server_only_real_changes_trigger_owners(
    operate: Operate, app: Any, shop: Any, objects: Any, devcluster: Any
) -> None:
    async with operate(app) as operator:
        async with operator.run(shop) as run:
            for name in ("a", "b", "c"):
                await run.create(objects.config_map(name))
        await operator.live(CONFIG_MAP)
        await operator.stays_quiet(CONFIG_MAP)
        await asyncio.to_thread(devcluster.restart_apiserver)
        await operator.hand.patch(CONFIG_MAP, "b", {"data": {"value": "b"}})
        await operator.hand.delete(CONFIG_MAP, "c")
        await operator.triggers("shop", "shop")
        await operator.stays_quiet(CONFIG_MAP)
        page = await operator.hand.client.list_page(
            await operator.hand.discovery.find(CONFIG_MAP), operator.hand.namespace, EVERYTHING, 500, ""
        )
        assert {"a", "b"} <= {metadata(item)["name"] for item in page.items}
