"""The watcher and its cache on a real API server, over a wire that can be cut."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from runner.core.kube.client import Client, PatchType
from runner.core.kube.discovery import Discovery
from runner.core.kube.watch_health import WatchState
from runner.sdk.devcluster import DevCluster
from runner.values.objects import GVK, Object, ObjectKey
from tests.kit.rights import granted
from tests.kit.wait import until

if TYPE_CHECKING:
    from tests.integration.kube.widgets import Connect, Kind
    from tests.kit.following import Follow
    from tests.kit.wire import Wire

Everything = Callable[..., Awaitable[dict[ObjectKey, Object]]]
CONFIG_MAP = GVK("", "v1", "ConfigMap")


async def test_a_kind_is_listed_and_followed(kind: Kind, client: Client, follow: Follow, namespace: str) -> None:
    await kind.create(namespace, "a")
    await kind.create(namespace, "b")
    async with follow(client, kind.gvk, namespace) as followed:
        await followed.reaches("[ +a +b ]")
        await kind.create(namespace, "c")
        await client.delete(await kind.discovery.find(kind.gvk), ObjectKey(namespace, "a"))
        await followed.reaches("[ +a +b ] +c -a")
    assert [change.initial for change in followed.changes] == [True, True, False, False]


async def test_a_kind_may_come_go_and_return(absent_kind: Kind, client: Client, follow: Follow, namespace: str) -> None:
    kind = absent_kind
    async with follow(client, kind.gvk, namespace) as followed:
        await until(lambda: followed.watcher.health.state is WatchState.WAITING_FOR_KIND)
        await kind.install()
        await kind.create(namespace, "a")
        await followed.holds("a")
        await until(lambda: followed.watcher.health.state is WatchState.LIVE)
        await kind.remove()
        await followed.holds()
        await until(lambda: followed.watcher.health.state is WatchState.WAITING_FOR_KIND)
        await kind.install()
        await kind.create(namespace, "a")
        await followed.holds("a")
    created = [change for change in followed.changes if change.new is not None and change.old is None]
    assert len({change.new.uid for change in created if change.new}) == 2


async def test_a_changed_crd_is_discovered_again_and_repeats_no_object(
    kind: Kind, client: Client, follow: Follow, namespace: str
) -> None:
    await kind.create(namespace, "a")
    async with follow(client, kind.gvk, namespace) as followed:
        await followed.holds("a")
        await until(lambda: followed.watcher.health.state is WatchState.LIVE)
        discovery = followed.watcher._discovery
        assert (await discovery.find(kind.gvk)).subresources == {"status"}
        crds = await discovery.find(GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))
        without = [{"op": "remove", "path": "/spec/versions/0/subresources"}]
        await client.patch(crds, ObjectKey("", f"widgets.{kind.group}"), without, content_type=PatchType.JSON)

        async def has_none() -> bool:
            return not (await discovery.find(kind.gvk)).subresources

        await until(has_none, "the kind without subresources")
        await kind.create(namespace, "b")
        await followed.holds("a", "b")
    assert [change.key.name for change in followed.changes] == ["a", "b"]


async def test_missing_rights_are_named_and_do_once_they_are_granted(
    kind: Kind, client: Client, connected: Connect, follow: Follow, namespace: str
) -> None:
    await kind.create(namespace, "a")
    async with await connected(**{"as": "jane"}) as jane, follow(jane, kind.gvk, namespace) as followed:
        await until(lambda: followed.watcher.health.state is WatchState.FAILING)
        assert 'cannot list resource "widgets"' in followed.watcher.health.last_error
        rules = [{"apiGroups": [kind.group], "resources": ["widgets"], "verbs": ["list", "watch"]}]
        for each in granted("widgets", rules, namespace=namespace, user="jane"):
            await client.create(await kind.discovery.find(GVK.of(each)), namespace, each)
        await followed.reaches("[ +a ]")


async def test_an_expired_version_causes_a_relist_that_repeats_no_object(
    devcluster: DevCluster, kind: Kind, follow: Follow, wire: tuple[Wire, Client], client: Client, namespace: str
) -> None:
    """An API server that starts holds no history: what changed before, while the wire was cut, is 410 to it."""
    cable, far = wire
    for name in ("a", "b"):
        await kind.create(namespace, name)
    async with follow(far, kind.gvk, namespace) as followed:
        await followed.reaches("[ +a +b ]")
        await until(lambda: followed.watcher.health.state is WatchState.LIVE)
        cable.cut()
        await client.delete(await kind.discovery.find(kind.gvk), ObjectKey(namespace, "a"))
        await kind.create(namespace, "c")
        await asyncio.to_thread(devcluster.restart_apiserver)
        cable.mend()
        await followed.holds("b", "c")
        assert str(followed) == "[ +a +b ] [ +b +c ]"
    assert [(change.key.name, change.new is not None) for change in followed.changes] == [
        ("a", True),
        ("b", True),
        ("c", True),
        ("a", False),
    ]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
async def test_after_a_thousand_operations_the_cache_equals_a_direct_list(
    seed: int, client: Client, follow: Follow, wire: tuple[Wire, Client], everything: Everything, namespace: str
) -> None:
    """Creates, patches and deletions by eight writers, while the wire is cut now and then."""
    cable, far = wire
    rng = random.Random(seed)
    resource = await Discovery(client).find(CONFIG_MAP)
    names = [f"m{number}" for number in range(60)]
    existing: set[str] = set()

    async def is_published() -> bool:
        return ObjectKey(namespace, "kube-root-ca.crt") in await everything(client, resource, namespace)

    # A controller creates it in each namespace, after an outage of the API server perhaps late.
    await until(is_published, "kube-root-ca.crt")

    async def operate(name: str, number: int, choice: float) -> None:
        key = ObjectKey(namespace, name)
        if name not in existing:
            meta = {"name": name, "labels": {"n": str(number % 3)}}
            await client.create(resource, namespace, {"metadata": meta, "data": {"n": str(number)}})
            existing.add(name)
        elif choice < 0.3:
            existing.remove(name)
            await client.delete(resource, key)
        else:
            await client.patch(resource, key, {"data": {"n": str(number)}}, content_type=PatchType.MERGE)

    async with follow(far, CONFIG_MAP, namespace) as followed:
        for batch in range(125):
            if rng.random() < 0.06:
                cable.cut()
                cable.mend()
            await asyncio.gather(*(operate(name, batch, rng.random()) for name in rng.sample(names, 8)))
        expected = await everything(client, resource, namespace)
        # Both in one: the last event may be a deletion, of which what is expected says nothing.
        await until(
            lambda: (
                set(followed.cache.keys()) == set(expected)
                and {key: followed.cache.get(key) for key in expected} == expected
            )
        )
    assert {key.name for key in expected} >= existing
    assert cable.connections > 2
