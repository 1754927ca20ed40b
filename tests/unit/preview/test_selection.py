"""Which resources a command line names, and what a user reads if there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.core.kube.client import Client, ListPage, Selection
from runner.core.kube.discovery import ApiResource
from runner.core.watches.watch import Finalizer, Watch
from runner.sdk.preview.selection import ResourceSelection, Selector, Target
from runner.values.errors import ConfigError, ForbiddenError, GoneError, KindNotFoundError, NotFoundError, OperatorError
from runner.values.objects import GVK, Object, ObjectKey
from tests.kit.watch_values import watch_value

MEMCACHED, REDIS = GVK("cache.example.com", "v1", "Memcached"), GVK("cache.example.com", "v1", "Redis")
PLURALS = {"Memcached": "memcacheds", "Redis": "redises"}


def obj(name: str, namespace: str = "shop", **metadata: Any) -> Object:
    return {"metadata": {"name": name, "namespace": namespace, **metadata}}


class Cluster:
    """An API server with objects of both kinds. A selector that is not empty selects the names in `selected`."""

    def __init__(
        self, *objects: Object, selected: tuple[str, ...] = (), page: int = 500, expires: bool = False
    ) -> None:
        self.objects = objects
        self.selected = selected
        self.page = page
        self.expires = expires
        self.listed: list[tuple[str, Selection]] = []
        self.credentials = SimpleNamespace(namespace="shop", base_url="https://cluster")

    async def request(self, method: str, path: str) -> Mapping[str, Any]:
        assert (method, path) == ("GET", "/apis/cache.example.com/v1")
        names = [("Memcached", ["mc"]), ("Redis", [])]
        return {
            "resources": [
                {"kind": kind, "name": PLURALS[kind], "namespaced": True, "verbs": ["list"], "shortNames": short}
                for kind, short in names
            ]
        }

    async def get(self, resource: ApiResource, key: ObjectKey) -> Object:
        for each in self.objects:
            if resource.gvk == MEMCACHED and (each["metadata"]["namespace"], each["metadata"]["name"]) == key:
                return each
        raise NotFoundError("not found", status=404)

    async def list_page(
        self, resource: ApiResource, namespace: str, selection: Selection, limit: int, cont: str
    ) -> ListPage:
        self.listed.append((namespace, selection))
        if cont and self.expires:
            self.expires = False
            raise GoneError("expired", status=410)
        name = selection.fields.partition("metadata.name=")[2].partition(",")[0]
        found = [
            each
            for each in self.objects
            if resource.gvk == MEMCACHED
            and namespace in {"", each["metadata"]["namespace"]}
            and (not selection.labels or each["metadata"]["name"] in self.selected)
            and name in {"", each["metadata"]["name"]}
        ]
        start = int(cont or 0)
        following = start + min(limit, self.page)
        return ListPage(found[start:following], "1", str(following) if following < len(found) else "", 0)


def find(
    cluster: Cluster,
    text: str,
    namespace: str = "",
    *,
    everything: bool = False,
    namespaces: tuple[str, ...] = (),
    **watch: Any,
) -> list[Target]:
    watches: list[Watch] = [watch_value(gvk=MEMCACHED, **watch), watch_value(gvk=REDIS)]
    selector = Selector(cast("Client", cluster), watches, namespaces)
    return asyncio.run(selector.find(ResourceSelection.parse(text, namespace, everything=everything)))


def names(targets: list[Target]) -> list[str]:
    return [target.obj["metadata"]["name"] for target in targets]


@pytest.mark.parametrize(
    "text",
    [
        "Memcached/a",
        "memcached/a",
        "memcacheds/a",
        "mc/a",
        "Memcached.cache.example.com/a",
        "memcacheds.v1.cache.example.com/a",
    ],
)
def test_a_resource_is_found_by_each_name_of_its_kind(text: str) -> None:
    (target,) = find(Cluster(obj("a")), text)
    assert (target.watch.gvk, names([target])) == (MEMCACHED, ["a"])


def test_a_resource_is_looked_for_in_the_given_namespace() -> None:
    cluster = Cluster(obj("a", "other"))
    assert names(find(cluster, "Memcached/a", "other")) == ["a"]
    with pytest.raises(OperatorError, match="cluster https://cluster has no Memcached 'a' in namespace shop"):
        find(cluster, "Memcached/a")


@pytest.mark.parametrize(
    ("objects", "namespaces", "advice"),
    [
        ([obj("a", "other"), obj("a", "third")], (), "in namespace shop; it is in other, third: use --namespace other"),
        ([obj("a", "other")], ("shop",), "in namespace shop"),
        ([obj("b"), obj("ab", "other")], (), "in namespace shop; there are other/ab, shop/b"),
        ([], (), "in namespace shop"),
    ],
)
def test_a_resource_that_does_not_exist_is_named_with_those_that_do(
    objects: list[Object], namespaces: tuple[str, ...], advice: str
) -> None:
    with pytest.raises(OperatorError) as caught:
        find(Cluster(*objects), "Memcached/a", namespaces=namespaces)
    assert str(caught.value) == f"the cluster https://cluster has no Memcached 'a' {advice}"


def test_a_user_who_may_not_list_objects_is_told_about_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forbidden(*_: object) -> ListPage:
        raise ForbiddenError("forbidden", status=403)

    cluster = Cluster(obj("a", "other"))
    monkeypatch.setattr(cluster, "list_page", forbidden)
    with pytest.raises(OperatorError, match="in namespace shop: select another one with --namespace"):
        find(cluster, "Memcached/a")


@pytest.mark.parametrize(
    ("text", "everything", "message"),
    [
        *((text, False, "write KIND/NAME, such as Memcached/sample, or --all") for text in ("", "Memcached", "/a")),
        *(
            (text, False, "write KIND/NAME, such as Memcached/sample, or --all")
            for text in ("Memcached/", "Memcached/a/b")
        ),
        ("Memcached/a", True, "write `plan Memcached/a`, or `plan --all Memcached`"),
        ("memcache/a", False, r"no watch is for kind 'memcache'; did you mean Memcached\?"),
        ("Memcace.cache.example.com/a", False, r"kind 'Memcace.cache.example.com'; did you mean Memcached\?"),
        ("Sink/a", False, r"kind 'Sink'; the watches are for Memcached.cache.example.com, Redis.cache.example.com"),
    ],
)
def test_an_argument_that_names_no_resource_or_kind_is_refused(text: str, message: str, *, everything: bool) -> None:
    with pytest.raises(ConfigError, match=message):
        find(Cluster(), text, everything=everything)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Shop/a", {"files": ["a"]}),
        ("", {"files": ["a"], "everything": True}),
        ("", {"deletes": True, "everything": True}),
        ("Shop", {"deletes": True}),
    ],
    ids=["a name and files", "all and files", "a deletion of all", "a deletion without a name"],
)
def test_arguments_that_exclude_each_other_are_an_error(text: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"-f plans|--delete plans|names no object"):
        ResourceSelection.parse(text, "", **{"everything": False, **options})


@pytest.mark.parametrize(
    ("kinds", "error", "message"),
    [
        pytest.param(
            [MEMCACHED, GVK("other.example.com", "v1", "Memcached")],
            ConfigError,
            r"may be one of .*: write KIND.GROUP/a",
            id="several kinds have the name",
        ),
        pytest.param(
            [GVK("cache.example.com", "v1", "Other")], KindNotFoundError, "install its CRD", id="it is not served"
        ),
    ],
)
def test_a_kind_of_the_watches_that_is_not_clear_or_not_served_is_an_error(
    kinds: list[GVK], error: type[Exception], message: str
) -> None:
    selector = Selector(cast("Client", Cluster(obj("a"))), [watch_value(gvk=kind) for kind in kinds], ())
    with pytest.raises(error, match=message):
        asyncio.run(selector.find(ResourceSelection(kinds[0].kind, "a", "")))


def test_a_resource_that_the_watch_does_not_select_is_refused_and_not_among_all() -> None:
    cluster = Cluster(obj("a"), obj("b"), selected=("b",))
    with pytest.raises(OperatorError, match="does not select Memcached shop/a: selector 'app=web'"):
        find(cluster, "Memcached/a", selector="app=web")
    assert names(find(cluster, "Memcached/b", selector="app=web")) == ["b"]
    assert names(find(cluster, "Memcached", everything=True, selector="app=web")) == ["b"]


def test_a_deleted_resource_with_our_finalizer_is_planned_even_if_no_selector_selects_it() -> None:
    finalizer = Finalizer(name="x/y", content=watch_value().content, vars={}, limit=None)
    deleted = obj("a", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["x/y"])
    assert names(find(Cluster(deleted), "Memcached/a", selector="app=web", finalizer=finalizer)) == ["a"]


def test_a_namespace_that_is_not_watched_is_refused() -> None:
    cluster = Cluster(obj("a"))
    with pytest.raises(OperatorError, match=r"namespace that is not watched.*WATCH_NAMESPACE is other"):
        find(cluster, "Memcached/a", namespaces=("other",))
    with pytest.raises(OperatorError, match="namespace shop is not watched: the operator watches other"):
        find(cluster, "", "shop", everything=True, namespaces=("other",))


def test_all_resources_of_all_watched_namespaces_are_found_in_order() -> None:
    cluster = Cluster(obj("b"), obj("a"), obj("c", "other"), obj("d", "third"))
    assert names(find(cluster, "", everything=True)) == ["c", "a", "b", "d"]
    assert names(find(cluster, "", everything=True, namespaces=("shop", "third"))) == ["a", "b", "d"]
    assert names(find(cluster, "", "third", everything=True)) == ["d"]
    assert names(find(cluster, "mc", everything=True)) == ["c", "a", "b", "d"]
    assert names(find(cluster, "Redis", everything=True)) == []


@pytest.mark.parametrize("expires", [False, True])
def test_a_list_of_several_pages_is_read_whole(expires: bool) -> None:  # noqa: FBT001 - a case of a test
    cluster = Cluster(*(obj(f"m{number}") for number in range(5)), page=2, expires=expires)
    assert names(find(cluster, "Memcached", everything=True)) == [f"m{number}" for number in range(5)]
