"""Changes of a dependent's status that trigger its owner, with `watchDependentStatus: auto`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from runner.values.objects import GVK
from tests.kit.wait import until

if TYPE_CHECKING:
    from runner.core.kube.discovery import ApiResource
    from tests.integration.dependents.bed import MakeOwner, Operate

AUTOSCALER = GVK("autoscaling", "v2", "HorizontalPodAutoscaler")
CLAIM = GVK("", "v1", "PersistentVolumeClaim")


@pytest.fixture
async def shop(app: ApiResource, make_owner: MakeOwner) -> Any:
    """An object that owns."""
    return await make_owner(app, "shop")


@pytest.mark.parametrize("status", [True, False], ids=["status subresource", "no subresource"])
async def test_each_phase_of_an_unknown_kind_triggers_its_owner_and_noise_does_not(
    operate: Operate, app: Any, shop: Any, group: str, objects: Any, *, status: bool
) -> None:
    part = GVK(group, "v1", "Part")
    async with operate(app) as operator:
        hand, subresource = operator.hand, "status" if status else ""
        await hand.install(objects.definition(group, "Part", status=status))
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


async def test_a_status_that_always_changes_triggers_a_bounded_number_of_runs(
    operate: Operate, app: Any, shop: Any
) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "absent"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 100}
    async with operate(app) as operator:
        async with operator.run(shop) as run:
            body = {"apiVersion": AUTOSCALER.api_version, "kind": AUTOSCALER.kind, "metadata": {"name": "web"}}
            await run.create({**body, "spec": spec})
        await operator.live(AUTOSCALER)
        for number in range(60):
            change = {"status": {"desiredReplicas": number + 1, "currentReplicas": number + 1}}
            await operator.hand.patch(AUTOSCALER, "web", change, "status")
            await asyncio.sleep(0.1)
        # Five at once; then delays of 2, 4, 8, … and 30 seconds.
        assert 5 <= len(operator.triggered) <= 8


async def test_a_claim_whose_volume_is_bound_triggers_its_owner(operate: Operate, app: Any, shop: Any) -> None:
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": "none"}
    async with operate(app) as operator:
        async with operator.run(shop) as run:
            await run.create({"apiVersion": "v1", "kind": CLAIM.kind, "metadata": {"name": "data"}, "spec": spec})
        await operator.live(CLAIM)
        await operator.hand.patch(CLAIM, "data", {"status": {"phase": "Bound"}}, "status")
        await until(lambda: any("status" in why for _, why in operator.triggered), "the owner to be triggered")
