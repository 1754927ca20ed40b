"""What is known of dependents after a restart, and where it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runner.core.dependents.store import CONFIG_MAP as STORED
from runner.core.dependents.store import KindStore, storage
from tests.integration.dependents.bed import CONFIG_MAP, DEPLOYMENT, config_map, deployment

if TYPE_CHECKING:
    from tests.integration.dependents.bed import Operate
    from tests.kit.objects import Hand


@pytest.mark.parametrize("in_cluster", [True, False])
async def test_dependents_are_watched_before_any_run(
    operate: Operate, app: Any, shop: Any, hand: Hand, *, in_cluster: bool
) -> None:
    def store() -> KindStore | None:
        return KindStore(storage(hand.client, hand.namespace, Path())) if in_cluster else None

    async with operate(app, store=store()) as operator:
        async with operator.run(shop) as run:
            await run.create(deployment("web"))
            await run.create(config_map("settings"))
        await operator.live(DEPLOYMENT, CONFIG_MAP)
        await operator.stores(DEPLOYMENT, CONFIG_MAP)
    async with operate(app, store=store()) as operator:
        await operator.live(DEPLOYMENT, CONFIG_MAP)
        await operator.stays_quiet(CONFIG_MAP)
        await operator.hand.patch(DEPLOYMENT, "web", {"metadata": {"labels": {"by": "hand"}}})  # no status follows
        await operator.hand.patch(CONFIG_MAP, "settings", {"data": {"value": "b"}})
        await operator.triggers("shop", "shop")
    if in_cluster:
        stored = await hand.get(CONFIG_MAP, STORED)
        name = f"App.v1.{app.gvk.group}"
        assert stored["data"].keys() == {name, f"written.{name}"}
        assert stored["data"][name] == "ConfigMap.v1\nDeployment.v1.apps"


async def test_a_kind_without_dependents_is_forgotten(operate: Operate, app: Any, shop: Any) -> None:
    async with operate(app) as operator:
        async with operator.run(shop) as run:
            await run.create(deployment("web"))
            await run.create(config_map("settings"))
        await operator.stores(DEPLOYMENT, CONFIG_MAP)
        async with operator.run(shop) as run:
            await run.delete(DEPLOYMENT, "web")
    async with operate(app) as operator:
        await operator.stores(CONFIG_MAP)
    async with operate(app) as operator:
        await operator.live(CONFIG_MAP)
        assert operator.dependents.watched() == {CONFIG_MAP}
