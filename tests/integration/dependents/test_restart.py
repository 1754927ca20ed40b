"""What is known of dependents after a restart, and where it is kept."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from runner.base.credentials import auth
from runner.core.dependents.store import CONFIG_MAP as STORED
from runner.core.dependents.store import KindStore, storage
from runner.core.kube.client import Client
from runner.core.kube.state import FileState
from runner.values.errors import NotFoundError
from runner.values.objects import GVK
from tests.kit.wait import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from runner.core.kube.discovery import ApiResource
    from tests.integration.dependents.bed import MakeOwner, Operate
    from tests.kit.objects import Hand

DEPLOYMENT = GVK("apps", "v1", "Deployment")
CONFIG_MAP = GVK("", "v1", "ConfigMap")
ROLE = GVK("rbac.authorization.k8s.io", "v1", "Role")
BINDING = GVK("rbac.authorization.k8s.io", "v1", "RoleBinding")
WATCH = GVK("example.com", "v1", "App")


@pytest.fixture
async def shop(app: ApiResource, make_owner: MakeOwner) -> Any:
    """An object that owns."""
    return await make_owner(app, "shop")


@pytest.fixture
def somebody(kubeconfig: Path, tmp_path: Path) -> Path:
    """The kubeconfig of a user that has no rights yet."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"]["as"] = "somebody"
    path = tmp_path / "somebody.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
async def account(somebody: Path) -> AsyncIterator[Client]:
    """A client with the rights of that user."""
    async with Client(await auth.load(str(somebody), None, auth.HostEnvironment.of_process())) as client:
        yield client


@pytest.fixture
def grant(hand: Hand) -> Callable[..., Awaitable[None]]:
    """Grant the account rights in the test's namespace."""

    async def grant(**rule: list[str]) -> None:
        meta, api_group = {"name": f"r-{uuid.uuid4().hex[:6]}"}, ROLE.group
        rules = [rule]
        await hand.create({"apiVersion": ROLE.api_version, "kind": "Role", "metadata": meta, "rules": rules})
        await hand.create(
            {
                "apiVersion": BINDING.api_version,
                "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": {"apiGroup": api_group, "kind": "Role", "name": meta["name"]},
                "subjects": [{"apiGroup": api_group, "kind": "User", "name": "somebody"}],
            }
        )

    return grant


async def kept(store: KindStore, kinds: dict[GVK, frozenset[GVK]]) -> bool:
    """Save, and say whether that can be loaded again."""
    await store.save(kinds)
    return await store.load() == kinds


@pytest.mark.parametrize("in_cluster", [True, False])
async def test_dependents_are_watched_before_any_run(
    operate: Operate, app: Any, shop: Any, hand: Hand, objects: Any, *, in_cluster: bool
) -> None:
    def store() -> KindStore | None:
        return KindStore(storage(hand.client, hand.namespace, Path())) if in_cluster else None

    async with operate(app, store=store()) as operator:
        async with operator.run(shop) as run:
            await run.create(objects.deployment("web"))
            await run.create(objects.config_map("settings"))
        await operator.live(DEPLOYMENT, CONFIG_MAP)
        await operator.stores(DEPLOYMENT, CONFIG_MAP)
    async with operate(app, store=store()) as operator:
        await operator.live(DEPLOYMENT, CONFIG_MAP)
        await operator.stays_quiet(CONFIG_MAP)
        await operator.hand.patch(DEPLOYMENT, "web", {"spec": {"replicas": 5}})
        await operator.hand.patch(CONFIG_MAP, "settings", {"data": {"value": "b"}})
        await operator.triggers("shop", "shop")
    if in_cluster:
        stored = await hand.get(CONFIG_MAP, STORED)
        name = f"App.v1.{app.gvk.group}"
        assert stored["data"].keys() == {name, f"written.{name}"}
        assert stored["data"][name] == "ConfigMap.v1\nDeployment.v1.apps"


async def test_a_kind_without_dependents_is_forgotten(operate: Operate, app: Any, shop: Any, objects: Any) -> None:
    async with operate(app) as operator:
        async with operator.run(shop) as run:
            await run.create(objects.deployment("web"))
            await run.create(objects.config_map("settings"))
        await operator.stores(DEPLOYMENT, CONFIG_MAP)
        async with operator.run(shop) as run:
            await run.delete(DEPLOYMENT, "web")
    async with operate(app) as operator:
        await operator.stores(CONFIG_MAP)
    async with operate(app) as operator:
        await operator.live(CONFIG_MAP)
        assert operator.dependents.watched() == {CONFIG_MAP}


async def test_a_stored_kind_that_no_longer_exists_is_ignored(operate: Operate, app: Any, tmp_path: Path) -> None:
    kinds = {app.gvk: frozenset({GVK("gone.example.com", "v1", "Gone"), CONFIG_MAP})}
    await KindStore(FileState(tmp_path)).save(kinds)
    async with operate(app) as operator:
        await operator.live(CONFIG_MAP)
        assert operator.dependents.watched() == {CONFIG_MAP}


async def test_operators_of_one_namespace_keep_their_kinds_apart(hand: Hand) -> None:
    first, second = (KindStore(storage(hand.client, hand.namespace, Path())) for _ in range(2))
    other = GVK("", "v1", "Namespace")
    await asyncio.gather(first.save({WATCH: frozenset({DEPLOYMENT})}), second.save({other: frozenset({CONFIG_MAP})}))
    await first.save({WATCH: frozenset({DEPLOYMENT, CONFIG_MAP})})
    expected = {WATCH: {DEPLOYMENT, CONFIG_MAP}, other: {CONFIG_MAP}}
    assert await KindStore(storage(hand.client, hand.namespace, Path())).load() == expected


async def test_the_rights_that_projects_grant_for_leader_election_are_enough(
    hand: Hand, account: Client, grant: Callable[..., Awaitable[None]]
) -> None:
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
    await grant(apiGroups=[""], resources=["configmaps"], verbs=verbs)
    kinds = {WATCH: frozenset({DEPLOYMENT})}
    await until(lambda: kept(KindStore(storage(account, hand.namespace, Path())), kinds), "the right to store kinds")


async def test_without_rights_one_warning_names_the_rule(
    hand: Hand, account: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    store = KindStore(storage(account, hand.namespace, Path()))
    assert await store.load() == {}
    await store.save({WATCH: frozenset({DEPLOYMENT})})
    await store.save({WATCH: frozenset({DEPLOYMENT, CONFIG_MAP})})
    logged = capsys.readouterr().out
    assert logged.count("Cannot save the kinds of dependents") == 1
    assert "resources: [configmaps], verbs: [get, create, patch]}" in logged
    with pytest.raises(NotFoundError):
        await hand.get(CONFIG_MAP, STORED)
