"""Unknown objects and refused namespaces: nothing is deleted, started twice, or ended: `make refusals`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from runner.values.objects import RUN_REQUESTED
from tests.integration.operator.test_health import Probes
from tests.kit.objects import CRDS, GROUP, Things, definition
from tests.kit.operator import ACCOUNT
from tests.kit.tasks import config_map
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api
    from tests.kit.operator import Operator, Project

OWNS = config_map("shared", when="makes | default(false) | bool")
USES = """
- name: Read the shared ConfigMap
  kubernetes.core.k8s_info: {kind: ConfigMap, name: shared, namespace: "{{ ansible_operator_meta.namespace }}"}
- name: Wait until the test says so
  ansible.builtin.wait_for: {path: "{{ waits }}"}
  when: waits is defined
"""
RBAC = "/apis/rbac.authorization.k8s.io/v1"
Serve = Callable[..., None]


@pytest.fixture
def serve(api: Api) -> Iterator[Serve]:
    """A kind with two versions, of which one is served or not."""
    crd = definition(GROUP, "Gauge", versions=("v1alpha1", "v1"))
    path = f"{CRDS}/{crd['metadata']['name']}"
    api.call("POST", CRDS, crd)

    def is_served(version: str) -> bool:
        found = api.call("GET", f"/apis/{GROUP}/{version}") or {"resources": []}
        return "gauges" in {each["name"] for each in found["resources"]}

    def change(*, on: bool) -> None:
        changed = [{**each, "served": on or each["name"] != "v1alpha1"} for each in crd["spec"]["versions"]]
        api.call("PATCH", path, {"spec": {"versions": changed}}, "application/merge-patch+json")
        wait_until(lambda: is_served("v1alpha1") == on, f"v1alpha1 to be served: {on}")

    wait_until(lambda: is_served("v1alpha1") and is_served("v1"), "both versions to be served")
    yield change
    api.call("DELETE", path)


@pytest.fixture
def gauges(api: Api, namespace: str, serve: Serve) -> Things:
    return Things(api, namespace, "gauges", "Gauge")


def shared(api: Api, namespace: str) -> Any:
    return api.call("GET", f"/api/v1/namespaces/{namespace}/configmaps/shared")


def run_again(things: Things, operator: Operator, name: str) -> None:
    before = len(operator.runs(name))
    things.merge(name, {"metadata": {"annotations": {RUN_REQUESTED: str(before)}}})
    wait_until(lambda: len(operator.runs(name)) > before, f"another run of {name}")


def reasons(operator: Operator, *names: str) -> list[str]:
    """The reasons of runs, of which none may have failed. Kubernetes' garbage collector deletes what is created while
    its owner's version is not served. So the owner runs again: at once, or by a retry if it is not served then either.
    """
    runs = [run for name in names for run in operator.runs(name)]
    assert {run["outcome"] for run in runs} == {"succeeded"}
    return [run["reason"] for run in runs if run["reason"] not in {"dependent changed", "retry"}]


@pytest.mark.full
def test_while_a_kind_is_not_served_nothing_is_deleted_started_or_ended_also_by_an_operator_that_starts_then(
    project: Project, things: Things, gauges: Things, serve: Serve, api: Api
) -> None:
    project.role("owns", OWNS)
    project.role("uses", USES + config_map(data={"reason": "{{ ansible_operator_run.reason }}"}))
    project.watch("owns", prune="delete")
    project.watch("uses", version="v1alpha1", kind="Gauge")
    project.grant_kind("gauges")
    operator = project.start()
    things.create("owner", {"makes": True})
    things.await_success("owner")
    gauges.create("user", {})
    gauges.await_success("user")
    things.merge("owner", {"spec": {"makes": False}})
    assert "in use by Gauge" in things.await_reason("owner", "Prunable", "InUse")["message"]
    gate = project.folder / "gate"
    gauges.create("slow", {"waits": str(gate)})
    gauges.await_condition("slow", "Running")

    serve(on=False)
    operator.await_line("The API server does not serve this kind; waiting for it")
    run_again(things, operator, "owner")
    assert "the API server does not serve" in things.await_reason("owner", "Prunable", "Waiting")["message"]
    gate.write_text("")
    wait_until(lambda: operator.runs("slow"), "the run to end")
    assert operator.runs("slow")[0]["outcome"] == "succeeded"
    serve(on=True)
    operator.await_line("The API server serves this kind now")
    gauges.await_success("slow")
    assert "in use by Gauge" in things.await_reason("owner", "Prunable", "InUse")["message"]
    assert reasons(operator, "user", "slow") == ["created", "created"]

    operator.kill()
    serve(on=False)
    operator = project.start()
    wait_until(lambda: operator.runs("owner"), "the first run")
    run_again(things, operator, "owner")
    assert "the API server does not serve" in things.await_reason("owner", "Prunable", "Waiting")["message"]
    assert shared(api, things.namespace) is not None
    serve(on=True)
    wait_until(lambda: operator.runs("user"), "the first run of the kind that is served again")
    assert "in use by Gauge" in things.await_reason("owner", "Prunable", "InUse")["message"]
    wait_until(lambda: operator.runs("slow"), "the first run of the other object")
    assert reasons(operator, "user", "slow") == ["present at start", "present at start"]
    assert shared(api, things.namespace) is not None
    assert operator.process.poll() is None


@pytest.mark.nightly
def test_a_namespace_that_is_refused_affects_its_neighbour_in_nothing_but_prune_which_names_it(
    project: Project, things: Things, api: Api, neighbour: Things
) -> None:
    second = neighbour.namespace
    project.role("owns", OWNS)
    project.watch("owns", prune="delete", skipUnchanged=True)
    flags = (f"--namespace={second},{things.namespace}",)
    operator = project.start(*flags)
    probes = Probes(operator)
    status, lines = probes.ask("/readyz?verbose")
    assert status == 200
    assert [line for line in lines if line.startswith("[!]watch/") and "forbidden" in line and second in line]
    things.create("owner", {"makes": True})
    things.create("gone")
    for name in ("owner", "gone"):
        things.await_success(name)
    folder = next((project.folder / "runs").rglob("gone"))
    assert operator.stop() == 0

    things.delete("gone")
    operator = project.start(*flags)
    operator.await_line("Run skipped", name="owner")
    wait_until(lambda: not folder.exists(), "the folder of an object that is gone to be removed")
    things.merge("owner", {"spec": {"makes": False}})
    message = things.await_reason("owner", "Prunable", "Waiting")["message"]
    assert f"in the namespace {second} are unknown" in message
    assert "forbidden" in message
    assert shared(api, things.namespace) is not None

    binding = api.call("GET", f"{RBAC}/namespaces/{things.namespace}/rolebindings/operator-{things.namespace}")
    bound = {name: binding[name] for name in ("apiVersion", "kind", "roleRef", "subjects")}
    api.call("POST", f"{RBAC}/namespaces/{second}/rolebindings", {**bound, "metadata": {"name": "operator"}})
    things.await_reason("owner", "Prunable", "Pruned")
    assert shared(api, things.namespace) is None


def test_an_operator_whose_identity_is_refused_is_not_ready_and_says_so_although_its_watches_are_open(
    project: Project, things: Things, api: Api
) -> None:
    project.role("owns", OWNS)
    project.watch("owns")
    operator = project.start(f"--namespace={things.namespace}")
    account = f"/api/v1/namespaces/{things.namespace}/serviceaccounts"
    api.call("DELETE", f"{account}/{ACCOUNT}")
    api.call("POST", account, {"metadata": {"name": ACCOUNT}})
    probes = Probes(operator)
    wait_until(lambda: probes.ask("/readyz")[0] == 500, "the operator not to be ready")
    (broken,) = [line for line in probes.broken("/readyz") if line.startswith("[-]identity")]
    assert "the API server refuses all requests" in broken
    assert operator.process.poll() is None
