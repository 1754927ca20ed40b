from __future__ import annotations

import asyncio

import pytest

from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource, Discovery, parse
from runner.values.errors import KindNotFoundError, ServerError
from runner.values.objects import GVK
from tests.unit.kube.scripted import Api

WIDGET = GVK("example.com", "v1", "Widget")
DISCOVERY = "/apis/example.com/v1"


async def test_a_kind_is_found_with_its_verbs_and_subresources(client: Client) -> None:
    found = await Discovery(client).find(WIDGET)
    assert (found.plural, found.namespaced, found.subresources) == ("widgets", True, frozenset({"status"}))
    assert "watch" in found.verbs
    assert found.qualified == "widgets.example.com"


async def test_concurrent_lookups_request_a_group_once(api: Api, client: Client) -> None:
    discovery = Discovery(client)
    await asyncio.gather(*(discovery.find(WIDGET) for _ in range(10)))
    await discovery.find(WIDGET)
    assert len(api.of(DISCOVERY)) == 1


async def test_a_forgotten_kind_is_requested_again(api: Api, client: Client) -> None:
    discovery = Discovery(client)
    await discovery.find(WIDGET)
    discovery.forget(WIDGET)
    discovery.forget(GVK("", "v1", "Unknown"))
    await discovery.find(WIDGET)
    assert len(api.of(DISCOVERY)) == 2


@pytest.mark.parametrize("gvk", [GVK("example.com", "v1", "Gadget"), GVK("nobody.example.com", "v1", "Widget")])
async def test_a_kind_that_is_not_served_is_named_and_never_remembered(api: Api, client: Client, gvk: GVK) -> None:
    discovery = Discovery(client)
    for _ in range(2):
        with pytest.raises(KindNotFoundError, match=gvk.kind):
            await discovery.find(gvk)
    assert len(api.seen) == 2


async def test_a_server_error_does_not_count_as_a_missing_kind(api: Api, client: Client) -> None:
    api.on(DISCOVERY, api.refuse(500, "InternalError"))
    with pytest.raises(ServerError):
        await Discovery(client).find(WIDGET)


def test_paths_of_objects() -> None:
    namespaced = ApiResource(WIDGET, "widgets", namespaced=True, verbs=frozenset(), subresources=frozenset())
    assert namespaced.path() == "/apis/example.com/v1/widgets"
    assert namespaced.path("ns") == "/apis/example.com/v1/namespaces/ns/widgets"
    assert namespaced.path("ns", "a", "status") == "/apis/example.com/v1/namespaces/ns/widgets/a/status"
    core = ApiResource(GVK("", "v1", "Node"), "nodes", namespaced=False, verbs=frozenset(), subresources=frozenset())
    assert core.path("ignored", "a/b:c") == "/api/v1/nodes/a%2Fb%3Ac"
    assert core.qualified == "nodes"


def test_kinds_of_subresources_are_not_discovered() -> None:
    scale = {"name": "widgets/scale", "kind": "Scale", "group": "autoscaling", "version": "v1"}
    assert parse("example.com", "v1", {"resources": [scale]}) == {}
    assert parse("example.com", "v1", {"resources": None}) == {}


def test_entries_of_another_shape_are_ignored() -> None:
    thing = {"name": "things", "kind": "Thing", "verbs": None, "shortNames": None}
    odd = [None, "words", {}, {"name": "others"}, {"kind": "Other"}, {"name": None, "kind": "Other"}]
    (found,) = parse("example.com", "v1", {"resources": [*odd, thing]}).values()
    assert (found.plural, found.namespaced, found.verbs) == ("things", False, frozenset())
