"""Owners that changes of dependents trigger, on a real control plane with a controller manager."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from runner.core.kube.client import EVERYTHING, PatchType
from runner.core.kube.watch_health import WatchState
from runner.values.objects import GVK, ObjectKey, metadata
from tests.integration.dependents.bed import CONFIG_MAP, DEPLOYMENT, config_map, deployment
from tests.kit.objects import definition
from tests.kit.wait import until

if TYPE_CHECKING:
    from tests.integration.dependents.bed import Operate
    from tests.kit.objects import Hand


async def rolled_out(hand: Hand, name: str) -> None:
    """Wait until the Deployment controller has seen a Deployment's latest generation and written its revision."""

    async def is_seen() -> bool:
        found = await hand.get(DEPLOYMENT, name)
        return bool(found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"])

    await until(is_seen, f"the controller to see {name}")


async def test_scaling_deleting_and_recreating_by_hand_trigger_the_owner(operate: Operate, app: Any, shop: Any) -> None:
    async with operate(app, watch_dependent_status="off") as operator:
        async with operator.run(shop) as run:
            await run.create(deployment("web"))
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
        key = ObjectKey(operator.hand.namespace, "web")
        await operator.hand.client.patch(
            await operator.hand.discovery.find(DEPLOYMENT),
            key,
            {"spec": {"replicas": 3}},
            content_type=PatchType.MERGE,
            subresource="scale",
            params={"fieldManager": "kubectl"},
        )
        await operator.triggers("shop", "shop")
        assert operator.triggered[1][1] == f"Deployment {key} changed: spec.replicas (by kubectl)"
        await operator.hand.delete(DEPLOYMENT, "web")
        await operator.triggers("shop", "shop", "shop")
        async with operator.run(shop) as run:
            await run.create(deployment("web"))
        await rolled_out(operator.hand, "web")
        await operator.stays_quiet(DEPLOYMENT)


async def test_writes_of_a_run_trigger_no_owner(operate: Operate, app: Any, shop: Any) -> None:
    async with operate(app, watch_dependent_status="off") as operator:
        async with operator.run(shop) as run:
            await run.create(deployment("web"))
            await run.create(config_map("settings"))
            await operator.live(DEPLOYMENT, CONFIG_MAP)
            await run.patch(DEPLOYMENT, "web", {"spec": {"replicas": 2}})
            await run.patch(DEPLOYMENT, "web", {"spec": {"replicas": 3}}, "scale")
            await run.patch(DEPLOYMENT, "web", {"metadata": {"labels": {"a": "b"}}})
            await run.patch(CONFIG_MAP, "settings", {"data": {"value": "b"}})
            await run.delete(DEPLOYMENT, "web")
            await run.create(deployment("web"))
            await run.delete(CONFIG_MAP, "settings")
        await rolled_out(operator.hand, "web")
        await operator.stays_quiet(DEPLOYMENT)
        await operator.stays_quiet(CONFIG_MAP)


async def test_an_edited_config_map_triggers_its_owner_and_an_unchanged_one_does_not(
    operate: Operate, app: Any, shop: Any
) -> None:
    async with operate(app) as operator:
        async with operator.run(shop) as run:
            await run.create(config_map("settings"))
        await operator.live(CONFIG_MAP)
        same = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"value": "a"}}
        before = await operator.hand.get(CONFIG_MAP, "settings")
        after = await operator.hand.patch(CONFIG_MAP, "settings", same, fieldManager="somebody")
        assert metadata(before)["resourceVersion"] != metadata(after)["resourceVersion"]
        await operator.stays_quiet(CONFIG_MAP)
        await operator.hand.patch(CONFIG_MAP, "settings", {"data": {"value": "b"}})
        await operator.triggers("shop")
        assert operator.triggered[0][1].endswith(f"changed: content (by {operator.hand.manager})")


async def test_after_a_version_is_no_longer_served_the_version_of_the_runs_is_watched(
    operate: Operate, app: Any, shop: Any, group: str
) -> None:
    old, new = GVK(group, "v1beta1", "Part"), GVK(group, "v1", "Part")
    async with operate(app) as operator:
        hand = operator.hand
        crd = definition(group, "Part", versions=("v1beta1", "v1"))
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
    operate: Operate, app: Any, shop: Any, devcluster: Any
) -> None:
    async with operate(app) as operator:
        async with operator.run(shop) as run:
            for name in ("a", "b", "c"):
                await run.create(config_map(name))
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


@pytest.mark.parametrize("status", [True, False], ids=["status subresource", "no subresource"])
async def test_each_phase_of_an_unknown_kind_triggers_its_owner_and_noise_does_not(
    operate: Operate, app: Any, shop: Any, group: str, *, status: bool
) -> None:
    part = GVK(group, "v1", "Part")
    async with operate(app) as operator:
        hand, subresource = operator.hand, "status" if status else ""
        await hand.install(definition(group, "Part", status=status))
        async with operator.run(shop) as run:
            await run.create({"apiVersion": part.api_version, "kind": "Part", "metadata": {"name": "p"}, "spec": {}})
        await operator.live(part)
        for phase in ("Creating", "Running", "Failed"):
            operator.triggered.clear()
            for number in range(3):
                noise = {
                    "observedGeneration": 1,
                    "message": f"{number}",
                    "lastProbeTime": f"2026-01-01T00:00:0{number}Z",
                }
                await hand.patch(part, "p", {"status": {"phase": phase, **noise}}, subresource)
            await operator.triggers("shop")
            assert operator.triggered[0][1].startswith(f"Part {hand.namespace}/p changed: status")
