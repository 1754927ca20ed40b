"""Objects of a resource that its plan run did not use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.base.config.settings import Settings
from runner.core.kube.client import Client, ListPage
from runner.core.kube.discovery import ApiResource
from runner.features.plan.changes import Plan, ResourcePlan
from runner.features.plan.trial.overlay import Overlay
from runner.sdk.preview import deletion
from runner.sdk.preview.deletion import Owned
from runner.sdk.preview.grouping import document
from runner.sdk.preview.planner import Planner
from runner.sdk.preview.progress import Progress
from runner.sdk.preview.text import Style, lines
from runner.values.errors import ApiError, ForbiddenError, GoneError, ServerError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef

CONFIG_MAP, SHOP = GVK("", "v1", "ConfigMap"), GVK("example.com", "v1", "Shop")
KEY = ObjectKey("town", "old")
PATH = "/api/v1/namespaces/town/configmaps"


def config_map(*owners: str, **more: Any) -> Owned:
    return Owned(CONFIG_MAP, KEY, "2", frozenset(owners), "configmaps", **more)


@pytest.mark.parametrize(
    ("owned", "reads", "is_unwritten"),
    [
        (config_map("1"), [], True),
        (config_map("1"), [f"{PATH}/other", "/api/v1/namespaces/town/secrets", "/api/v1/namespaces/village/x"], True),
        (config_map("1"), [f"{PATH}/old"], False),
        (config_map("1"), [PATH], False),
        (config_map("1"), [f"{PATH}?labelSelector=a%3Db"], False),
        (config_map("1"), ["/api/v1/configmaps"], False),
        (config_map("1", "3"), [], False),
        (config_map("3"), [], False),
        (config_map("1", is_kept=True), [], False),
    ],
)
def test_an_object_that_a_run_neither_wrote_nor_read_is_no_longer_written(
    owned: Owned, reads: list[str], *, is_unwritten: bool
) -> None:
    overlay = Overlay()
    for path in reads:
        target, _, query = path.partition("?")
        overlay.saw(target, [("labelSelector", query)] if query else [], "digest")
    assert deletion.unwritten("1", [owned], overlay) == [ObjectRef(CONFIG_MAP, KEY)] * is_unwritten


async def test_an_object_is_listed_once_if_resources_of_the_cluster_and_of_namespaces_are_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def dependents(_: object, namespace: str, __: list[str]) -> list[Owned]:
        return [config_map("1")] if namespace in {"", "town"} else []

    monkeypatch.setattr(deletion, "dependents", dependents)
    every: Any = SimpleNamespace(client=None)
    planner = Planner(cast("Settings", None), every, Progress())
    plans = [ResourcePlan(ObjectRef(SHOP, ObjectKey(space, "a"), "1"), "complete") for space in ("", "town")]
    planner._overlays = {plan.resource: Overlay() for plan in plans}
    assert [plan.unwritten for plan in await planner._with_unwritten(plans)] == [(ObjectRef(CONFIG_MAP, KEY),)] * 2


class _Server:
    """Serves ConfigMaps, and Pods that it cannot list."""

    def __init__(self, error: ApiError) -> None:
        self._error = error

    async def request(self, _: str, path: str) -> Object:
        kinds = [{"name": name, "kind": name, "namespaced": True, "verbs": ["list"]} for name in ("configmaps", "pods")]
        return {"groups": []} if path == "/apis" else {"resources": kinds}

    async def list_page(self, resource: ApiResource, *_: object, **__: object) -> ListPage:
        if resource.plural == "pods":
            raise self._error
        item = {"metadata": {"name": "old", "namespace": "town", "uid": "2", "ownerReferences": [{"uid": "1"}]}}
        return ListPage([item], "", "", 0)


@pytest.mark.parametrize(
    "error",
    [ForbiddenError("no", status=403), ServerError("no", status=503), GoneError("no", status=410)],
    ids=lambda error: str(error.status),
)
async def test_a_kind_that_cannot_be_listed_makes_the_plan_of_a_deletion_partial(error: ApiError) -> None:
    resource = ApiResource(SHOP, "shops", namespaced=True, verbs=frozenset(), subresources=frozenset())
    obj = {"metadata": {"name": "a", "namespace": "town", "uid": "1"}}
    collected = await deletion.find(cast("Client", _Server(error)), resource, obj)
    assert [str(change.key) for change in collected.changes] == ["town/a", "town/old"]
    assert collected.unknown == "dependents that Kubernetes also deletes are unknown: pods: no"


def test_a_written_object_is_written_whether_it_changes_or_not() -> None:
    resource = ApiResource(CONFIG_MAP, "configmaps", namespaced=True, verbs=frozenset(), subresources=frozenset())
    overlay, same = Overlay(), {"metadata": {"name": "old"}}
    overlay.record(resource, KEY, same, same, existed=True)
    assert overlay.changes() == []
    assert deletion.unwritten("1", [config_map("1")], overlay) == []


def test_the_report_lists_them_and_they_are_no_changes() -> None:
    refs = tuple(ObjectRef(CONFIG_MAP, ObjectKey("town", f"old-{number}")) for number in range(22))
    plan = Plan([ResourcePlan(ObjectRef(SHOP, ObjectKey("town", "a")), "complete", unwritten=refs)])
    assert not plan.has_changes
    shown = list(lines(plan, Style(colour=False)))
    assert shown[:2] == ["No longer written (see prune):", "  ConfigMap town/old-0, of Shop town/a"]
    assert shown[20:] == [
        "  ConfigMap town/old-19, of Shop town/a",
        "  and 2 more objects",
        "",
        "Plan: no changes for 1 resource",
    ]
    first = document(plan)["resources"][0]["unwritten"][0]
    assert first == {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "town", "name": "old-0"}
