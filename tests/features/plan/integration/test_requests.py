"""Plan runs through the proxy, at a real API server: nothing is written, and the run reads what it planned."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.wait import patience

if TYPE_CHECKING:
    from runner.features.plan.trial.overlay import Overlay, PlannedChange
    from tests.integration.proxy.bed import Dump, Standing

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def deployment(name: str, *containers: dict[str, Any], replicas: int = 1) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": list(containers)}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels}, "spec": spec}


@dataclass
class Response:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def obj(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass
class Plan:
    """A plan run, and what it sends."""

    standing: Standing
    namespace: str
    overlay: Overlay

    @property
    def config_maps(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    @property
    def deployments(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments"

    def raw(self, data: bytes) -> Response:
        """Send bytes on a connection of their own."""
        host, port = self.standing.proxy.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=patience()) as connection:
            connection.sendall(data)
            with connection.makefile("rb") as file:
                received = file.read()
        head, _, body = received.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join(_chunks(body))
        return Response(int(lines[0].split()[1]), body, headers)

    def ask(self, method: str, target: str, body: object = None, media: str = JSON, **headers: str) -> Response:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        named = {"Host": "proxy", "Authorization": f"Bearer {self.standing.token}", "Connection": "close"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        if data:
            named |= {"Content-Type": media, "Content-Length": str(len(data))}
        head = "\r\n".join([f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())])
        return self.raw(head.encode("latin-1") + b"\r\n\r\n" + data)

    def changes(self) -> dict[str, PlannedChange]:
        return {f"{each.gvk.kind}/{each.key.name}": each for each in self.overlay.changes()}

    def summary(self) -> dict[str, str]:
        return {name: each.verb for name, each in self.changes().items()}


def _chunks(data: bytes) -> Iterator[bytes]:
    while data:
        size, _, data = data.partition(b"\r\n")
        yield data[: int(size, 16)]
        data = data[int(size, 16) + 2 :]


@pytest.fixture
def plan(standing: Standing, namespace: str, dump: Dump) -> Iterator[Plan]:
    """A plan run; after the test the cluster is as it was before."""
    before = dump()
    yield Plan(standing, namespace, standing.plan())
    assert dump() == before
    assert standing.observer.reports == []


def test_planned_objects_are_read_changed_and_deleted(plan: Plan) -> None:
    path = plan.config_maps
    created = plan.ask("POST", path, config_map("a", k="1"))
    assert created.status == 201
    assert created.obj["metadata"]["ownerReferences"][0]["name"] == "owner"
    assert plan.ask("POST", path, config_map("a")).obj["reason"] == "AlreadyExists"
    assert plan.ask("GET", f"{path}/a").obj == created.obj
    listed = plan.ask("GET", f"{path}?limit=1").obj
    assert [each["metadata"]["name"] for each in listed["items"]] == ["a", "kube-root-ca.crt", "owner"]

    assert plan.ask("PATCH", f"{path}/a", [{"op": "add", "path": "/data/j", "value": "x"}], JSON_PATCH).status == 200
    assert plan.ask("PATCH", f"{path}/a", {"data": {"k": None, "m": "x"}}, MERGE).status == 200
    assert plan.ask("PATCH", f"{path}/a", {"data": {"s": "x"}}, STRATEGIC).status == 200
    applied = config_map("a", p="x")
    assert plan.ask("PATCH", f"{path}/a?fieldManager=test", applied, APPLY).status == 200
    seen = plan.ask("GET", f"{path}/a").obj
    assert seen["data"] == {"j": "x", "m": "x", "s": "x", "p": "x"}
    assert seen["metadata"]["uid"] == created.obj["metadata"]["uid"]

    assert plan.ask("PUT", f"{path}/a", {**seen, "data": {"only": "x"}}).obj["data"] == {"only": "x"}
    assert (
        plan.ask("PATCH", f"{path}/a", [{"op": "test", "path": "/data/only", "value": "y"}], JSON_PATCH).status == 422
    )
    assert plan.ask("PATCH", f"{path}/a", {"metadata": {"labels": {"l": "-invalid-"}}}, MERGE).status == 422
    (change,) = plan.overlay.changes()
    assert (change.verb, change.reason, change.writes, change.before) == ("create", "", 6, None)
    assert change.after is not None
    assert change.after["data"] == {"only": "x"}

    assert plan.ask("DELETE", f"{path}/a").obj["status"] == "Success"
    missing = plan.ask("GET", f"{path}/a")
    assert (missing.status, missing.obj["details"]) == (404, {"name": "a", "kind": "configmaps"})
    assert plan.ask("DELETE", f"{path}/a").status == 404
    assert plan.overlay.changes() == []
    assert plan.ask("POST", path, config_map("a", again="x")).status == 201
    assert plan.summary() == {"ConfigMap/a": "create"}


def test_an_existing_object_has_a_net_change(plan: Plan) -> None:
    path = f"{plan.config_maps}/kube-root-ca.crt"
    plan.ask("PATCH", path, {"data": {"a": "1"}}, MERGE)
    plan.ask("PATCH", path, [{"op": "add", "path": "/data/b", "value": "2"}], JSON_PATCH)
    (change,) = plan.overlay.changes()
    assert (change.verb, change.reason, change.writes) == ("change", "", 2)
    assert change.before is not None
    assert change.after is not None
    assert change.after["data"] == {**change.before["data"], "a": "1", "b": "2"}
    assert plan.ask("GET", path).obj == change.after
    plan.ask("PATCH", path, {"data": {"a": None, "b": None}}, MERGE)
    assert plan.overlay.changes() == []

    assert plan.ask("DELETE", path, {"dryRun": [], "kind": "DeleteOptions", "apiVersion": "v1"}).status == 200
    assert plan.summary() == {"ConfigMap/kube-root-ca.crt": "delete"}
    assert plan.ask("PATCH", path, {"data": {}}, MERGE).status == 404
    assert plan.ask("POST", plan.config_maps, config_map("kube-root-ca.crt", new="x")).status == 201
    (change,) = plan.overlay.changes()
    assert (change.verb, change.recreated, change.reason) == ("change", True, "")
    assert change.after is not None
    assert change.after["data"] == {"new": "x"}


def test_lists_are_selected_and_merged(plan: Plan) -> None:
    def names(query: str) -> list[str]:
        found = plan.ask("GET", f"{plan.config_maps}?{query}").obj
        return [each["metadata"]["name"] for each in found["items"]]

    for name, tier in (("zz", "web"), ("aa", "db")):
        labelled = config_map(name)
        labelled["metadata"]["labels"] = {"tier": tier}
        plan.ask("POST", plan.config_maps, labelled)
    assert names("labelSelector=tier%20in%20(web,cache)") == ["zz"]
    assert names("labelSelector=tier!=web,tier") == ["aa"]
    assert names("fieldSelector=metadata.name=aa") == ["aa"]
    plan.ask("DELETE", f"{plan.config_maps}/owner")
    assert names("limit=1") == ["aa", "kube-root-ca.crt", "zz"]
    partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    assert plan.ask("GET", plan.config_maps, Accept=partial).obj["items"][0].keys() == {
        "kind",
        "apiVersion",
        "metadata",
    }
    assert plan.ask("GET", plan.config_maps, Accept=table).obj["kind"] == "ConfigMapList"
    assert plan.ask("GET", plan.config_maps, Accept="application/vnd.kubernetes.protobuf").status == 406
    assert plan.ask("DELETE", f"{plan.config_maps}?labelSelector=tier").status == 200
    assert names("") == ["kube-root-ca.crt"]
    assert plan.summary() == {"ConfigMap/owner": "delete"}


def test_a_watch_gets_the_planned_state_and_ends(plan: Plan) -> None:
    plan.ask("POST", plan.config_maps, config_map("new"))
    plan.ask("DELETE", f"{plan.config_maps}/owner")

    def events(query: str, path: str = plan.config_maps) -> list[tuple[str, str]]:
        lines = plan.ask("GET", f"{path}?{query}").body.splitlines()
        return [(each["type"], each["object"]["metadata"].get("name", "")) for each in map(json.loads, lines)]

    assert events("watch=1") == [("ADDED", "kube-root-ca.crt"), ("ADDED", "new")]
    version = plan.ask("GET", plan.config_maps).obj["metadata"]["resourceVersion"]
    assert events(f"watch=true&resourceVersion={version}") == [("ADDED", "new"), ("DELETED", "owner")]
    assert events("watch=1&fieldSelector=metadata.name%3Downer") == []
    initial = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    assert events(initial)[-1] == ("BOOKMARK", "")
    assert events("", f"/api/v1/watch/namespaces/{plan.namespace}/configmaps/new") == [("ADDED", "new")]
    secrets = f"/api/v1/namespaces/{plan.namespace}/secrets"
    assert plan.ask("GET", f"{secrets}?watch=1&timeoutSeconds=1").status == 200


def test_strategic_patches_and_applies_merge_lists_by_key(plan: Plan) -> None:
    web, log = {"name": "web", "image": "web:1"}, {"name": "log", "image": "log:1"}
    plan.ask("POST", plan.deployments, deployment("shop", web, log))
    path = f"{plan.deployments}/shop"

    def images() -> dict[str, str]:
        spec = plan.ask("GET", path).obj["spec"]["template"]["spec"]
        return {each["name"]: each["image"] for each in spec["containers"]}

    def containers(*items: dict[str, Any]) -> dict[str, Any]:
        return {"spec": {"template": {"spec": {"containers": list(items)}}}}

    patched = plan.ask("PATCH", path, containers({"name": "web", "image": "web:2"}), STRATEGIC)
    assert patched.status == 200
    assert images() == {"web": "web:2", "log": "log:1"}
    plan.ask("PATCH", path, containers({"name": "log", "$patch": "delete"}), STRATEGIC)
    assert images() == {"web": "web:2"}
    config = deployment("shop", {"name": "web", "image": "web:3"}, {"name": "side", "image": "side:1"})
    assert plan.ask("PATCH", f"{path}?fieldManager=m&force=true", config, APPLY).status == 200
    assert images() == {"web": "web:3", "side": "side:1"}
    scaled = plan.ask("PATCH", f"{path}/scale", {"spec": {"replicas": 5}}, MERGE)
    assert (scaled.status, scaled.obj["kind"]) == (200, "Scale")
    assert plan.ask("GET", path).obj["spec"]["replicas"] == 5
    assert plan.ask("GET", f"{path}/scale").obj["spec"]["replicas"] == 5
    assert plan.ask("PATCH", f"{path}/status", {"status": {"replicas": 3}}, MERGE).obj["status"] == {"replicas": 3}
    assert plan.summary() == {"Deployment/shop": "create"}


def test_an_applied_configuration_loses_the_fields_that_its_manager_leaves_out(plan: Plan) -> None:
    path = f"{plan.config_maps}/applied?fieldManager=m"
    assert plan.ask("PATCH", path, config_map("applied", a="1", b="1"), APPLY).status == 201
    assert plan.ask("PATCH", path, config_map("applied", a="1"), APPLY).obj["data"] == {"a": "1"}
    assert plan.changes()["ConfigMap/applied"].reason == ""


def test_objects_in_a_planned_namespace_are_not_validated(plan: Plan) -> None:
    assert plan.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "planned"}}).status == 201
    inside = plan.ask("POST", "/api/v1/namespaces/planned/configmaps", config_map("inside", a="b"))
    assert inside.status == 201
    assert plan.ask("PATCH", "/api/v1/namespaces/planned/configmaps/inside", {"data": {"a": "c"}}, MERGE).status == 200
    applied = plan.ask("PATCH", "/api/v1/namespaces/planned/configmaps/more?fieldManager=m", config_map("more"), APPLY)
    assert applied.status == 201
    change = plan.changes()["ConfigMap/inside"]
    assert change.reason == "the namespace planned exists in the plan only"
    listed = plan.ask("GET", "/api/v1/namespaces/planned/configmaps").obj["items"]
    assert [each["metadata"]["name"] for each in listed] == ["inside", "more"]
    assert plan.ask("DELETE", "/api/v1/namespaces/planned").status == 200
    assert plan.ask("GET", "/api/v1/namespaces/planned/configmaps/inside").status == 404
    assert plan.overlay.changes() == []


def test_a_deleted_namespace_has_no_objects(plan: Plan) -> None:
    assert plan.ask("DELETE", f"/api/v1/namespaces/{plan.namespace}").status == 200
    assert plan.ask("GET", f"{plan.config_maps}/owner").status == 404
    assert plan.ask("GET", plan.config_maps).obj["items"] == []
    assert plan.ask("POST", plan.config_maps, config_map("a")).obj["details"]["kind"] == "namespaces"
    assert plan.summary() == {f"Namespace/{plan.namespace}": "delete"}


def test_generated_names_are_the_same_in_each_plan(plan: Plan) -> None:
    body = {"metadata": {"generateName": "job-"}}
    names = [plan.ask("POST", plan.config_maps, body).obj["metadata"]["name"] for _ in range(2)]
    assert names == ["job-plan1", "job-plan2"]


HOSTILE = [
    "dryRun=",
    "dryRun=None",
    "dryRun=None&dryRun=All",
    "dryRun=All&dryRun=All",
    "dry%52un=None",
    "dryRun=%41ll&dryRun",
    "dryRun=All;dryRun=",
    "x=%zz&dryRun=",
    "_method=POST",
    "fieldManager=a%26dryRun%3D",
]


def test_no_parameter_turns_a_dry_run_off(plan: Plan) -> None:
    body, owner = config_map("hostile", a="b"), f"{plan.config_maps}/owner"
    for query in HOSTILE:
        plan.overlay = plan.standing.plan()
        assert plan.ask("POST", f"{plan.config_maps}?{query}", body).status == 201
        for media in (MERGE, STRATEGIC):
            assert plan.ask("PATCH", f"{owner}?{query}", {"data": {"a": media[-9:]}}, media).status == 200
        plan.ask("DELETE", f"{owner}?{query}", {"dryRun": []})
        assert plan.summary() == {"ConfigMap/hostile": "create", "ConfigMap/owner": "delete"}, query
    for target in plan.standing.passed.targets:
        assert target.count("dryRun") in {0, 1} or "%3D" in target


DELETE_OPTIONS = [
    (b"", JSON),
    (b"{}", JSON),
    (b'{"dryRun": []}', JSON),
    (b'{"dryRun": null, "kind": "DeleteOptions", "apiVersion": "v1"}', JSON),
    (b"kind: DeleteOptions\napiVersion: v1\ndryRun: []\n", "application/yaml"),
    (b'{"dryRun": ["All"], "dryRun": []}', JSON),
]


def test_no_content_of_a_deletion_turns_a_dry_run_off(plan: Plan) -> None:
    for options, media in DELETE_OPTIONS:
        plan.overlay = plan.standing.plan()
        assert plan.ask("DELETE", f"{plan.config_maps}/owner", options, media).status == 200
        assert plan.ask("DELETE", plan.config_maps, options, media).status == 200
        assert set(plan.summary().values()) == {"delete"}, options


def test_tricks_with_paths_methods_and_versions_write_nothing(plan: Plan) -> None:
    body, owner = config_map("tricky"), f"{plan.config_maps}/owner"
    for target in (
        f"/{plan.config_maps}",
        plan.config_maps.replace("/configmaps", "//configmaps"),
        plan.config_maps.replace("/v1/", "/v1/./"),
        f"{plan.config_maps}/../configmaps",
        plan.config_maps.replace("/configmaps", "%2Fconfigmaps"),
        f"/api/v1/watch/namespaces/{plan.namespace}/configmaps",
        f"/api/v1/proxy/namespaces/{plan.namespace}/services/a",
        "/api/v1",
        "/version",
        "/openapi/v2",
    ):
        assert plan.ask("POST", target, body).status in {400, 403}, target
    assert plan.ask("DELETE", f"{owner}/").status == 200
    for method in ("OPTIONS", "TRACE", "CONNECT", "PROPFIND"):
        assert plan.ask(method, owner).status in {400, 403}, method
    overridden = plan.ask("GET", plan.config_maps, X_HTTP_Method_Override="DELETE")
    assert overridden.status == 200
    old = f"POST {plan.config_maps}?dryRun= HTTP/1.0\r\nAuthorization: Bearer {plan.standing.token}\r\n"
    data = json.dumps(config_map("old")).encode()
    sent = f"{old}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
    assert plan.raw(sent).status == 201
    assert plan.summary() == {"ConfigMap/owner": "delete", "ConfigMap/old": "create"}


def test_sessions_and_actions_are_refused_and_recorded(plan: Plan) -> None:
    pod = f"/api/v1/namespaces/{plan.namespace}/pods/web"
    upgrade = {"Upgrade": "websocket", "Sec_WebSocket_Version": "13", "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    for method, target, headers in (
        ("GET", f"{pod}/exec?command=id", {**upgrade, "Connection": "Upgrade, close"}),
        ("GET", f"{plan.config_maps}?watch=1", {**upgrade, "Connection": "Upgrade, close"}),
        ("POST", f"{pod}/attach", {}),
        ("GET", f"{pod}/proxy/", {}),
        ("POST", f"{pod}/binding", {}),
        ("POST", f"/api/v1/namespaces/{plan.namespace}/bindings", {}),
        ("POST", f"/api/v1/namespaces/{plan.namespace}/serviceaccounts/default/token", {}),
        ("PUT", f"/api/v1/namespaces/{plan.namespace}/finalize", {}),
        ("POST", f"/apis/missing.example.com/v1/namespaces/{plan.namespace}/things", {}),
    ):
        answer = plan.ask(method, target, {} if method != "GET" else None, **headers)
        assert answer.status in {403, 404}, target
        assert answer.obj["message"].startswith("plan run: refused "), target
    assert len(plan.overlay.refusals) == 9
    assert plan.overlay.refusals[0].resource == "pods/exec"
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    allowed = plan.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert allowed.obj["status"]["allowed"] is True
    assert len(plan.overlay.partial_reasons) == 9


def test_an_eviction_is_planned_as_a_deletion(standing: Standing, pod: str, namespace: str) -> None:
    plan = Plan(standing, namespace, standing.plan())
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}, "deleteOptions": {"dryRun": []}}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
    assert plan.ask("POST", f"{path}/eviction", body).status == 201
    assert plan.ask("GET", path).status == 404
    assert plan.ask("GET", f"{path}/log").status == 404
    assert plan.summary() == {"Pod/web": "delete"}
    standing.another_run()
    assert "deletionTimestamp" not in plan.ask("GET", path).obj["metadata"]
