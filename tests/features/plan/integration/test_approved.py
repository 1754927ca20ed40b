"""Runs with an approved plan, at a real API server: they can send the writes of the plan, and no others."""

from __future__ import annotations

import itertools
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.features.plan.integration.test_requests import (
    APPLY,
    JSON,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Plan,
    Response,
    config_map,
    deployment,
)
from tests.kit.cluster import Kubectl, kubectl_of
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.features.plan.approved import ApprovedPlan
    from runner.sdk.devcluster import DevCluster
    from tests.integration.proxy.bed import Dump, Standing

CONTAINER = {"name": "main", "image": "one"}


@pytest.fixture
def run(standing: Standing, namespace: str) -> Plan:
    return Plan(standing, namespace, standing.plan())


@pytest.fixture
def directly(devcluster: DevCluster, namespace: str) -> Kubectl:
    """kubectl past the proxy."""
    return kubectl_of(devcluster, f"--namespace={namespace}")


Request = tuple[Any, ...]


def send(run: Plan, *requests: Request) -> list[Response]:
    return [run.ask(*request) for request in requests]


def approved(run: Plan, *requests: Request) -> ApprovedPlan:
    """Plan the requests; from then on the run may send them."""
    planned = send(run, *requests)
    assert all(each.status < 300 for each in planned), [each.body for each in planned]
    return run.standing.approve(run.overlay)


def statuses(responses: Sequence[Response]) -> list[int]:
    return [each.status for each in responses]


def test_the_writes_of_the_plan_take_place(run: Plan, directly: Kubectl) -> None:
    maps, deployments = run.config_maps, run.deployments
    directly("create", "configmap", "old", "--from-literal=k=1")
    directly("create", "configmap", "unused")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once"},
        "spec": {"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"type": "NodePort", "ports": [{"port": 80}]},
    }
    requests: list[Request] = [
        ("POST", maps, config_map("new", k="1")),
        ("PATCH", f"{maps}/new", {"data": {"m": "2"}}, MERGE),
        ("POST", maps, {**config_map("x"), "metadata": {"generateName": "some-"}}),
        ("PATCH", f"{maps}/old", [{"op": "replace", "path": "/data/k", "value": "2"}], JSON_PATCH),
        ("PATCH", f"{maps}/applied?fieldManager=test", config_map("applied", k="1"), APPLY),
        ("PATCH", f"{maps}/applied?fieldManager=test", config_map("applied", k="2"), APPLY),
        ("POST", deployments, deployment("web", CONTAINER)),
        ("PATCH", f"{deployments}/web", {"spec": {"replicas": 2}}, STRATEGIC),
        ("PATCH", f"{deployments}/web/scale", {"spec": {"replicas": 3}}, MERGE),
        ("POST", f"/api/v1/namespaces/{run.namespace}/services", service),
        ("POST", f"/apis/batch/v1/namespaces/{run.namespace}/jobs", job),
        ("DELETE", f"{maps}/unused?propagationPolicy=Foreground"),
        ("DELETE", f"{maps}/old", {"gracePeriodSeconds": 0}),
        ("POST", maps, config_map("old", k="3")),
    ]
    approval = approved(run, *requests)
    responses = send(run, *requests)
    assert approval.refused == ""
    assert statuses(responses) == [201, 200, 201, 200, 201, 200, 201, 200, 200, 201, 201, 200, 200, 201]
    found = json.loads(directly("get", "configmaps", "-o=json"))["items"]
    data = {each["metadata"]["name"]: each.get("data") for each in found}
    (generated,) = [name for name in data if name.startswith("some-")]
    assert generated == responses[2].obj["metadata"]["name"]
    assert (data["new"], data["applied"], data["old"]) == ({"k": "1", "m": "2"}, {"k": "2"}, {"k": "3"})
    # The garbage collector ends a deletion in the foreground.
    wait_until(lambda: "configmap/unused" not in directly("get", "configmaps", "-o=name").split())
    assert directly("get", "deployment", "web", "-o=jsonpath={.spec.replicas}") == "3"
    assert "wrote configmaps new of owner" in run.standing.observer.reports
    assert sum("/configmaps/old?dryRun" in each for each in run.standing.passed.targets) < len(requests)
    # A write without an effect needs no approval.
    assert run.ask("PATCH", f"{maps}/new", {"data": {"m": "2"}}, MERGE).status == 200


OTHER_WRITES: list[tuple[str, str, object, str, str]] = [
    ("POST", "", config_map("other"), "", "no write of this object: create ConfigMap {}/other"),
    ("PATCH", "/old", {"data": {"k": "9"}}, MERGE, "no write with this effect: change ConfigMap {}/old: data.k"),
    ("PATCH", "/old", {"data": {"k": "2", "z": "1"}}, MERGE, "change ConfigMap {}/old: data.k, data.z"),
    ("DELETE", "/old", None, "", "no write with this effect: delete ConfigMap {}/old"),
    ("DELETE", "", None, "", "no write"),
    ("PATCH", "/applied?fieldManager=t", config_map("applied", a="b"), APPLY, "create ConfigMap {}/applied"),
    ("POST", "/../pods/web/exec?command=id", None, "", "session"),
    ("POST", "/../pods/web/eviction", {"metadata": {"name": "web"}}, "", "eviction"),
    ("POST", "/../serviceaccounts/default/token", {}, "", "cannot dry-run"),
]
"""Method, path below that of ConfigMaps, content, its type, and why it is refused."""


def test_the_first_other_write_is_refused_and_no_further_one_is_sent(run: Plan, directly: Kubectl, dump: Dump) -> None:
    directly("create", "configmap", "old", "--from-literal=k=1")
    planned: Request = ("PATCH", f"{run.config_maps}/old", {"data": {"k": "2"}}, MERGE)
    before = dump()
    for method, place, body, media, why in OTHER_WRITES:
        run.overlay = run.standing.plan()
        approval = approved(run, planned)
        target = f"{run.config_maps}{place}".replace("configmaps/../", "")
        refused = run.ask(method, target, body, *([media] if media else []))
        assert refused.status == 403, target
        assert why.format(run.namespace) in approval.refused
        assert why.format(run.namespace) in refused.obj["message"]
        assert send(run, planned)[0].status == 403
        assert run.ask("GET", f"{run.config_maps}/old").status == 200
    assert dump() == before


def test_a_change_between_dry_run_and_write_is_detected(run: Plan, directly: Kubectl) -> None:
    for number, (method, body, media) in enumerate(
        (
            ("PATCH", {"data": {"k": "2"}}, MERGE),
            ("PATCH", [{"op": "replace", "path": "/data/k", "value": "2"}], JSON_PATCH),
            ("PATCH", config_map("old-2", k="2"), APPLY),
            ("PUT", config_map("old-3", k="2"), JSON),
            ("DELETE", None, JSON),
        )
    ):
        name = f"old-{number}"
        directly("create", "configmap", name, "--from-literal=k=1")
        query = "?fieldManager=test&force=true" if media == APPLY else ""
        planned: Request = (method, f"{run.config_maps}/{name}{query}", body, media)
        run.overlay = run.standing.plan()
        approval = approved(run, planned)
        changes = ['--patch={"metadata":{"labels":{"a":"b"}}}', '--patch={"data":{"k":"7"}}']
        if method == "PUT":
            del changes[0]  # an update would remove the label
        run.standing.passed.before = partial(_change, directly, method, name, changes)
        # The first change does not concern the effect. The second one does, unless the object is deleted anyway.
        (answer,) = send(run, planned)
        run.standing.passed.before = lambda _method, _target: None
        assert changes == []
        if method == "DELETE":
            assert (answer.status, approval.refused) == (200, "")
            assert name not in directly("get", "configmaps", "-o=name")
        else:
            assert answer.status == 403, method
            assert "change ConfigMap" in approval.refused
            assert directly("get", "configmap", name, "-o=jsonpath={.data.k}") == "7"


def _change(directly: Kubectl, method: str, name: str, changes: list[str], sent: str, target: str) -> None:
    """Change an object before a request that is no dry run is passed on, once for each change."""
    if sent == method and "dryRun" not in target and changes:
        directly("patch", "configmap", name, changes.pop(0))


def test_a_plan_that_has_the_changes_of_other_clients_is_incomplete(run: Plan, directly: Kubectl) -> None:
    directly("create", "configmap", "old")
    made = itertools.count(1)

    def meanwhile(sent: str, _target: str) -> None:
        if sent == "PATCH":
            directly("patch", "configmap", "old", f'--patch={{"metadata":{{"labels":{{"a":"{next(made)}"}}}}}}')

    run.standing.passed.before = meanwhile
    assert run.ask("PATCH", f"{run.config_maps}/old", {"data": {"k": "2"}}, MERGE).status == 200
    assert run.overlay.partial_reasons == [f"other clients change configmaps {run.namespace}/old all the time"]


@pytest.mark.parametrize("changes", [7, None], ids=["for a while", "forever"])
def test_changes_between_read_and_dry_run_do_not_count_as_the_effect(
    run: Plan, directly: Kubectl, changes: int | None
) -> None:
    directly("create", "configmap", "old", "--from-literal=k=1")
    planned: Request = ("PATCH", f"{run.config_maps}/old", {"data": {"k": "2"}}, MERGE)
    approval = approved(run, planned)
    assert run.overlay.partial_reasons == []
    made = itertools.count(1)

    def meanwhile(sent: str, target: str) -> None:
        if sent == "PATCH" and "dryRun" in target and (number := next(made)) <= (changes or number):
            directly("patch", "configmap", "old", f'--patch={{"metadata":{{"labels":{{"a":"{number}"}}}}}}')

    run.standing.passed.before = meanwhile
    (answer,) = send(run, planned)
    if changes is None:
        assert answer.status == 403
        assert approval.refused.endswith(": other clients change the object all the time")
        return
    assert (answer.status, approval.refused) == (200, "")
    assert answer.obj["metadata"]["labels"] == {"a": str(changes)}


def test_the_effect_of_a_deletion_is_bound_to_the_object(run: Plan, directly: Kubectl) -> None:
    directly("create", "configmap", "old")
    approval = approved(run, ("DELETE", f"{run.config_maps}/old"))
    directly("delete", "configmap", "old")
    directly("create", "configmap", "old")
    assert run.ask("DELETE", f"{run.config_maps}/old").status == 403
    assert "delete ConfigMap" in approval.refused


def test_a_dry_run_of_the_run_itself_is_answered_and_writes_nothing(run: Plan, dump: Dump) -> None:
    approval = approved(run, ("POST", run.config_maps, config_map("new")))
    before = dump()
    assert run.ask("POST", f"{run.config_maps}?dryRun=All", config_map("other")).status == 201
    assert approval.refused == ""
    assert dump() == before
