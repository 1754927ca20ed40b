"""Plan runs: which requests reach the API server, and who is notified."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest

from runner.core.kube.discovery import ApiResource, ServedResources
from runner.core.kube.state import CONFIG_MAPS
from runner.core.proxy import protobuf
from runner.core.proxy.calls import Handler
from runner.core.proxy.handlers.writes import Writes
from runner.core.proxy.protobuf import message as encode
from runner.core.proxy.protobuf import text
from runner.core.status.report import NOTHING_OWN
from runner.features.plan.approved import APPROVED, ApprovedPlan
from runner.features.plan.changes import PlannedOwner
from runner.features.plan.requests import handler
from runner.features.plan.requests.handler import Planning
from runner.features.plan.trial.overlay import Overlay
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, key_of
from runner.values.slots import EMPTY
from tests.kit.wait import patience
from tests.unit.proxy.stage import Message, RecordedDependents, Stage, Staged

PATH = "/api/v1/namespaces/ns/configmaps"
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
CORE = {
    "resources": [
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": True, "verbs": VERBS},
        {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": VERBS},
    ]
}
DRY_RUN = {"parameters": [{"name": "dryRun", "in": "query"}]}
TEMPLATE = "/api/v1/namespaces/{namespace}/configmaps"
OPENAPI = {"paths": {TEMPLATE: {"post": DRY_RUN}, f"{TEMPLATE}/{{name}}": {"put": DRY_RUN, "patch": DRY_RUN}}}
DELETIONS = {"paths": {**OPENAPI["paths"], f"{TEMPLATE}/{{name}}": {"put": DRY_RUN, "delete": DRY_RUN}}}
MERGE = "Content-Type: application/merge-patch+json"


class Cluster(RecordedDependents):
    """A small API server, which stores nothing."""

    def __init__(self) -> None:
        super().__init__(CORE)
        self.objects: dict[str, Object] = {}
        self.forbidden: set[str] = set()
        """Methods that the run may not use."""
        self.failing: dict[tuple[str, str], str] = {}
        """Statuses by method and path."""
        self.openapi: Object = OPENAPI

    async def script(self, message: Message, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target = message.start.split()[:2]
        path = target.partition("?")[0]
        status, body = "200 OK", self.objects.get(path)
        if method in self.forbidden:
            text = (
                f'configmaps "a" is forbidden: User "u" cannot {_VERBS[method]} resource "configmaps" in API group ""'
            )
            status, body = "403 Forbidden", {"kind": "Status", "message": f'{text} in the namespace "ns"'}
        elif (method, path) in self.failing:
            status, body = self.failing[method, path], {"kind": "Status", "message": "no"}
        elif path.startswith("/openapi/v3/"):
            body = self.openapi
        elif method in {"POST", "PUT"} and message.body.startswith(b"k8s"):
            body = {**(protobuf.read(message.body) or {}), "decoded": True}
        elif method in {"POST", "PUT"}:
            body = {**orjson.loads(message.body), "checked": True}
        elif method == "PATCH":
            body = {**(body or {}), **orjson.loads(message.body)}
        elif body is None:
            status, body = "404 Not Found", {"kind": "Status"}
        data = orjson.dumps(body)
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)


_VERBS = {"PUT": "update", "GET": "get"}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def handlers(cluster: Cluster) -> list[Handler]:
    served = ServedResources(cluster, lambda: 0.0)
    return [Writes(served, cluster, cluster), Planning(served, lambda: 0.0)]


@pytest.fixture
async def stage(staged: Staged, handlers: list[Handler]) -> AsyncIterator[Stage]:
    async with staged(*handlers) as made:
        yield made


def begin(stage: Stage, cluster: Cluster, **different: object) -> Overlay:
    """Begin a plan run."""
    overlay = Overlay()
    stage.token = stage.identities.issue(stage.make_run(view=overlay, **different))
    stage.api.script = cluster.script
    return overlay


async def ask(stage: Stage, start: str, body: Object | None = None, *headers: str) -> Message:
    wire = await stage.connect()
    data = b"" if body is None else orjson.dumps(body)
    return await wire.ask(stage.request(start, *(headers or ("Content-Type: application/json",)), body=data))


def config_map(name: str = "a", **more: object) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"}, **more}


def sent(stage: Stage) -> list[str]:
    return [message.start for message in stage.api.seen if not message.start.startswith("GET")]


@pytest.mark.parametrize("start", [f"POST {PATH}", f"DELETE {PATH}/a", f"PATCH {PATH}/a?dryRun=All&dryRun="])
async def test_without_its_handler_a_plan_run_can_write_nothing(staged: Staged, cluster: Cluster, start: str) -> None:
    async with staged() as stage:
        begin(stage, cluster)
        refused = await ask(stage, start, config_map())
        assert (refused.status, orjson.loads(refused.body)["message"]) == (
            403,
            "a trial can send reads and dry runs only",
        )
        upgrade = ("Upgrade: websocket", "Connection: Upgrade")
        assert (await ask(stage, f"GET {PATH}", None, *upgrade)).status == 403
        assert stage.api.seen == []


async def test_real_runs_are_forwarded_unchanged(stage: Stage, cluster: Cluster) -> None:
    stage.api.script = cluster.script
    assert (await ask(stage, f"POST {PATH}", config_map())).status == 200
    assert sent(stage) == [f"POST {PATH} HTTP/1.1"]
    assert len(cluster.reports) == 1


async def test_writes_are_dry_runs_that_no_observer_sees(stage: Stage, cluster: Cluster) -> None:
    cluster.objects[f"{PATH}/a"] = config_map(data={"x": "1"})
    overlay = begin(stage, cluster)
    assert (await ask(stage, f"GET {PATH}/a")).status == 200
    assert (await ask(stage, f"PUT {PATH}/a?fieldManager=m", config_map(data={"x": "2"}))).status == 200
    assert (await ask(stage, f"PATCH {PATH}/a?dryRun=", {"data": {"x": "3"}}, MERGE)).status == 200
    assert orjson.loads((await ask(stage, f"GET {PATH}/a")).body)["data"] == {"x": "3"}
    assert sent(stage) == [
        f"PUT {PATH}/a?fieldManager=m&dryRun=All HTTP/1.1",
        f"PUT {PATH}/a?dryRun=All HTTP/1.1",
    ]
    (change,) = overlay.changes()
    assert (change.verb, change.writes) == ("change", 2)
    assert cluster.reports == []


async def test_the_owner_of_a_planned_object_is_kept(stage: Stage, cluster: Cluster) -> None:
    begin(stage, cluster)
    created = await ask(stage, f"POST {PATH}", config_map())
    owners = orjson.loads(created.body)["metadata"]["ownerReferences"]
    assert [each["name"] for each in owners] == ["sample"]
    updated = await ask(stage, f"PUT {PATH}/a", config_map(data={"a": "b"}))
    assert orjson.loads(updated.body)["metadata"]["ownerReferences"] == owners


async def test_apis_that_do_not_document_dry_runs_are_not_written(stage: Stage, cluster: Cluster) -> None:
    cluster.objects[f"{PATH}/a"] = config_map()
    overlay = begin(stage, cluster)
    assert (await ask(stage, f"DELETE {PATH}/a")).status == 403
    assert sent(stage) == []
    (refusal,) = overlay.refusals
    assert (refusal.verb, refusal.resource, str(refusal.key)) == ("delete", "configmaps", "ns/a")
    assert "does not document dry runs" in refusal.reason


async def test_a_patch_that_only_an_update_could_validate_is_recorded_with_the_reason(
    stage: Stage, cluster: Cluster
) -> None:
    cluster.objects[f"{PATH}/a"] = config_map(data={"x": "1"})
    overlay = begin(stage, cluster)
    assert (await ask(stage, f"PATCH {PATH}/a", {"data": {"x": "2"}}, MERGE)).status == 200
    cluster.forbidden = {"PUT"}
    assert (await ask(stage, f"PATCH {PATH}/a", {"data": {"y": "3"}}, MERGE)).status == 200
    assert (await ask(stage, f"PUT {PATH}/a", config_map())).status == 403
    (change,) = overlay.changes()
    assert change.after is not None
    assert change.after["data"] == {"x": "2", "y": "3"}
    assert change.reason
    assert "cannot update" in change.reason


async def test_a_run_that_may_not_read_an_object_can_change_it(stage: Stage, cluster: Cluster) -> None:
    overlay = begin(stage, cluster)
    stage.token = stage.identities.issue(stage.make_run(view=overlay))
    await ask(stage, f"POST {PATH}", config_map("first"))  # reads the OpenAPI document
    cluster.forbidden = {"GET"}
    assert (await ask(stage, f"PATCH {PATH}/a", config_map(data={"x": "2"}), MERGE)).status == 200
    assert [(each.verb, each.before is None) for each in overlay.changes()] == [("create", True), ("change", True)]
    assert "before its change" in overlay.partial_reasons[0]


@pytest.mark.parametrize("path", [f"{PATH}/a", "/openapi/v3/api/v1"])
async def test_a_read_that_fails_for_a_moment_plans_nothing(stage: Stage, cluster: Cluster, path: str) -> None:
    overlay = begin(stage, cluster)
    cluster.objects[f"{PATH}/a"] = config_map()
    cluster.failing["GET", path] = "503 Service Unavailable"
    assert (await ask(stage, f"PATCH {PATH}/a", {"data": {"k": "v"}}, MERGE)).status == 503
    assert (overlay.changes(), overlay.partial_reasons) == ([], [])


def approve(stage: Stage, cluster: Cluster, *planned: Object, after: Object | None = None) -> list[str]:
    """Begin a run with an approved plan, which changes these objects; return why the run is ended."""
    overlay, ended = Overlay(), list[str]()
    for obj in planned:
        overlay.record(CONFIG_MAPS, key_of(obj), obj, after, existed=True)
    owner = PlannedOwner(ObjectRef(GVK("e.com", "v1", "Thing"), ObjectKey("ns", "o")), NOTHING_OWN)
    more = EMPTY.having(APPROVED, ApprovedPlan(overlay, owner, ended.append))
    stage.token = stage.identities.issue(stage.make_run(more=more))
    stage.api.script = cluster.script
    return ended


@pytest.mark.parametrize("path", [f"{PATH}/a", "/openapi/v3/api/v1"])
async def test_a_read_that_fails_for_a_moment_does_not_end_an_approved_run(
    stage: Stage, cluster: Cluster, path: str
) -> None:
    before = cluster.objects[f"{PATH}/a"] = config_map(data={})
    ended = approve(stage, cluster, before, after=config_map(data={"k": "v"}))
    cluster.failing["GET", path] = "503 Service Unavailable"
    assert (await ask(stage, f"PATCH {PATH}/a", {"data": {"k": "v"}}, MERGE)).status == 503
    assert ended == []


async def test_an_approved_run_learns_which_object_of_a_collection_was_not_deleted(
    stage: Stage, cluster: Cluster
) -> None:
    items = [config_map(name) for name in "ab"]
    for item in items:
        item["metadata"] |= {"uid": f"u-{item['metadata']['name']}", "resourceVersion": "1"}
        cluster.objects[f"{PATH}/{item['metadata']['name']}"] = item
    cluster.objects[PATH] = {"kind": "ConfigMapList", "apiVersion": "v1", "items": items}
    cluster.openapi = {"paths": {TEMPLATE: {"delete": DRY_RUN}}}
    ended = approve(stage, cluster, *items)
    cluster.failing["DELETE", f"{PATH}/a"] = "403 Forbidden"
    assert (await ask(stage, f"DELETE {PATH}")).status == 403
    del cluster.failing["DELETE", f"{PATH}/a"], cluster.objects[f"{PATH}/b"]  # b is gone meanwhile
    assert (await ask(stage, f"DELETE {PATH}")).status == 200
    assert ended == []


@pytest.mark.parametrize("seconds", ["nan", "-1", "x", "9" * 5000])
async def test_a_watch_of_planned_objects_ends_whatever_its_timeout_is(
    stage: Stage, cluster: Cluster, seconds: str
) -> None:
    begin(stage, cluster)
    await ask(stage, f"POST {PATH}", config_map())
    cluster.objects[PATH] = {"kind": "ConfigMapList", "apiVersion": "v1", "items": []}
    watched = await asyncio.wait_for(ask(stage, f"GET {PATH}?watch=1&timeoutSeconds={seconds}"), patience())
    assert b'"ADDED"' in watched.body


@pytest.mark.parametrize("meta", [{"name": 7}, {"name": ["a"]}, {}, {"generateName": 7}])
async def test_an_object_without_a_name_in_a_planned_namespace_is_invalid(
    stage: Stage, cluster: Cluster, meta: Object
) -> None:
    overlay = begin(stage, cluster)
    space = ApiResource(
        GVK("", "v1", "Namespace"), "namespaces", namespaced=False, verbs=frozenset(), subresources=frozenset()
    )
    overlay.record(space, ObjectKey("", "ns"), None, {"metadata": {"name": "ns"}}, existed=False)
    assert (await ask(stage, f"POST {PATH}", {"metadata": meta})).status == 400
    assert [change.gvk.kind for change in overlay.changes()] == ["Namespace"]


async def test_content_that_cannot_be_parsed_is_refused(stage: Stage, cluster: Cluster) -> None:
    overlay = begin(stage, cluster, inject=False)
    binary = "Content-Type: application/vnd.kubernetes.protobuf"
    assert (await ask(stage, f"POST {PATH}", {}, binary)).status == 415
    wire = await stage.connect()
    assert (await wire.ask(stage.request(f"POST {PATH}", body=b"{"))).status == 400
    assert (await wire.ask(stage.request(f"PUT {PATH}/a", body=b"[]"))).status == 400
    assert sent(stage) == []
    assert len(overlay.refusals) == 1


async def test_protobuf_is_decoded_by_a_dry_run_under_another_name(stage: Stage, cluster: Cluster) -> None:
    cluster.openapi = DELETIONS
    binary = "Content-Type: application/vnd.kubernetes.protobuf"
    kind = encode(1, text(1, "v1") + text(2, "ConfigMap"))
    body = b"k8s\0" + kind + encode(2, encode(1, text(1, "a") + text(3, "ns")))
    options = b"k8s\0" + encode(1, text(2, "DeleteOptions")) + encode(2, text(4, "Background"))
    overlay = begin(stage, cluster)
    wire = await stage.connect()
    created = await wire.ask(stage.request(f"POST {PATH}", binary, body=body))
    assert created.status == 201
    updated = await wire.ask(stage.request(f"PUT {PATH}/a", binary, body=body))
    assert (updated.status, orjson.loads(updated.body)["metadata"]["name"]) == (200, "a")
    (change,) = overlay.changes()
    assert (change.verb, change.key, change.writes) == ("create", ObjectKey("ns", "a"), 2)
    assert change.after is not None
    assert change.after["decoded"]
    assert [each["name"] for each in change.after["metadata"]["ownerReferences"]] == ["sample"]
    assert (await wire.ask(stage.request(f"DELETE {PATH}/a", binary, body=options))).status == 200
    assert overlay.changes() == []
    cluster.objects[f"{PATH}/b"] = config_map("b")
    assert (await wire.ask(stage.request(f"DELETE {PATH}/b", binary, body=options))).status == 200
    deletion = stage.api.seen[-1]
    assert orjson.loads(deletion.body)["dryRun"] == ["All"]
    assert orjson.loads(deletion.body)["propagationPolicy"] == "Background"
    assert all("dryRun=All" in start for start in sent(stage))
    assert overlay.refusals == []


async def test_a_plan_that_is_too_large_is_partial_and_takes_no_further_writes(
    stage: Stage, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "_LARGEST_PLAN", 1000)
    overlay = Overlay()
    stage.api.script = cluster.script
    stage.token = stage.identities.issue(stage.make_run(view=overlay))
    body = orjson.dumps({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "x" * 2000}})
    assert (await stage.ask(f"POST {PATH}", body=body)).status == 201
    assert (await stage.ask(f"POST {PATH}", body=body)).status == 413
    assert (await stage.get(f"{PATH}/a")).status == 200
    assert overlay.partial_reasons == ["the run plans more than 64 MiB of objects"]
    assert len(overlay.writes) == 1
