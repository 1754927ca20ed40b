"""A user who can only write custom resources in one namespace does not affect other users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.objects import Things
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.objects import Api
    from tests.kit.operator import Operator, Project


@pytest.fixture
def tenant(api: Api, namespace: str) -> Iterator[Things]:
    """The Things of a tenant's namespace, beside that of the operator."""
    name = f"{namespace}-tenant"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield Things(api, name)
    api.call("DELETE", f"/api/v1/namespaces/{name}")


def _waiting(operator: Operator) -> float:
    """Return how many Things wait in the work queue."""
    (port,) = (line["port"] for line in operator.lines(msg="Serving") if "/metrics" in line["paths"])
    text = operator.fetch(port, "/metrics").data.decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("workqueue_depth{"))


def _nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


def test_objects_that_nest_too_deeply_are_reported_and_all_others_run(project: Project, things: Things) -> None:
    project.role("thing", "    - ansible.builtin.debug: {msg: hello}\n")
    project.watch("thing")
    operator = project.start()
    for levels in (300, 900, 1500):
        things.create(f"deep-{levels}", {"tree": _nested(levels)})
    things.create("neighbour", {"size": 1})

    things.await_success("neighbour")
    for levels in (300, 900, 1500):
        failure = things.await_condition(f"deep-{levels}", "Failure")
        assert failure["reason"] == "Unusable"
        assert "nests deeper than" in failure["message"]
    things.merge("neighbour", {"spec": {"size": 2}})
    things.await_success("neighbour")
    assert operator.is_ready()

    things.merge("deep-1500", {"spec": {"tree": None}})
    things.await_success("deep-1500")

    operator.stop()
    project.start()
    things.create("later")
    things.await_success("later")


WAITS = """
    - ansible.builtin.wait_for: {path: "{{ gate }}", timeout: 300}
    - ansible.builtin.command: sleep 0.3
"""


def test_sixty_objects_of_one_namespace_do_not_delay_an_object_of_another(
    project: Project, things: Things, tenant: Things
) -> None:
    gate = project.folder / "gate"
    project.role("thing", WAITS)
    project.watch("thing", vars={"gate": str(gate)})
    project.bind_everywhere()
    operator = project.start("--max-concurrent-reconciles=1", f"--namespace={tenant.namespace}")
    names = [f"mine-{number}" for number in range(60)]
    for name in names:
        tenant.create(name)
    things.create("victim", {"size": 1})
    wait_until(lambda: _waiting(operator) == 60, "all but the running object to wait")
    gate.touch()
    things.await_success("victim")
    runs = [line["namespace"] for line in operator.lines(msg="Run started")]
    assert runs.index(things.namespace) == 1

    for name in names:
        tenant.merge(name, {"metadata": {"annotations": {"ansible.sdk.operatorframework.io/run-requested": "now"}}})
    started = len(operator.lines(msg="Run started"))
    things.merge("victim", {"spec": {"size": 2}})
    things.await_success("victim")
    assert _waiting(operator) > 30
    assert [line["namespace"] for line in operator.lines(msg="Run started")][started:].index(things.namespace) < 5


def test_references_to_other_namespaces_are_not_watched_unless_the_watch_allows_them(
    project: Project, things: Things, tenant: Things, api: Api
) -> None:
    project.role("thing", "    - ansible.builtin.debug: {msg: hello}\n")
    secret = {"version": "v1", "kind": "Secret", "path": "spec.secrets"}
    shared = {"version": "v1", "kind": "ConfigMap", "path": "spec.maps", "namespaces": [things.namespace]}
    project.watch("thing", references=[shared, secret])
    project.grant([""], ["secrets", "configmaps"])
    project.bind_everywhere()
    operator = project.start(f"--namespace={tenant.namespace}")
    victims = {"name": "password", "namespace": things.namespace}
    many = [f"many-{number}" for number in range(110)]
    tenant.create(
        "spy", {"secrets": [victims, "own", *many], "maps": {"name": "shared", "namespace": things.namespace}}
    )
    tenant.await_success("spy")
    ignored = tenant.await_condition("spy", "IgnoredReferences")
    assert ignored["reason"] == "NamespaceNotAllowed"
    assert f"Secret {things.namespace}/password: not watched" in ignored["message"]
    assert all(f"Secret {tenant.namespace}/many-{number}" in ignored["message"] for number in range(98, 110))
    assert f"{tenant.namespace}/many-97" not in ignored["message"]

    core = f"/api/v1/namespaces/{things.namespace}"
    api.call("POST", f"{core}/secrets", {"metadata": {"name": "password"}})
    api.call("POST", f"/api/v1/namespaces/{tenant.namespace}/secrets", {"metadata": {"name": "own"}})
    api.call("POST", f"{core}/configmaps", {"metadata": {"name": "shared"}})
    for text in (f"Secret {tenant.namespace}/own appeared", f"ConfigMap {things.namespace}/shared appeared"):
        operator.await_line("A reference changed", name="spy", why=text)
    assert f"{things.namespace}/password appeared" not in operator.log

    tenant.merge("spy", {"spec": {"secrets": ["own"]}})
    tenant.await_condition("spy", "IgnoredReferences", "False")


MAKES_FAR = """
    - kubernetes.core.k8s:
        definition:
          apiVersion: v1
          kind: ConfigMap
          metadata: {name: "{{ ansible_operator_meta.name }}-made", namespace: "{{ item }}"}
          data: {value: made}
      loop: ["{{ ansible_operator_meta.namespace }}", "{{ far }}"]
"""


def test_an_annotation_that_names_an_owner_in_another_namespace_counts_only_on_objects_that_its_runs_wrote(
    project: Project, things: Things, tenant: Things, api: Api
) -> None:
    project.role("thing", MAKES_FAR)
    project.watch("thing")
    project.grant([""], ["configmaps"])
    project.bind_everywhere()
    operator = project.start(f"--namespace={tenant.namespace}")
    things.create("victim", {"far": tenant.namespace})
    things.await_success("victim")
    maps = f"/api/v1/namespaces/{tenant.namespace}/configmaps"
    annotations = api.call("GET", f"{maps}/victim-made")["metadata"]["annotations"]
    assert annotations["operator-sdk/primary-resource"] == f"{things.namespace}/victim"
    api.call("POST", maps, {"metadata": {"name": "forged", "annotations": annotations}})

    def change_both(value: str) -> None:
        """Change the forged object several times, then the object of the victim's role, and wait for its run."""
        for number in range(5):
            body = {"data": {"value": f"{value}-{number}"}}
            api.call("PATCH", f"{maps}/forged", body, "application/merge-patch+json")
        api.call("PATCH", f"{maps}/victim-made", {"data": {"value": value}}, "application/merge-patch+json")
        operator.await_line("Run ended", name="victim", reason="dependent changed")

    change_both("one")
    assert operator.stop() == 0
    assert f"{tenant.namespace}/forged" not in operator.log
    operator = project.start(f"--namespace={tenant.namespace}")
    operator.await_line("Run ended", name="victim", reason="present at start")
    change_both("two")
    assert f"{tenant.namespace}/victim-made" in operator.log
    assert f"{tenant.namespace}/forged" not in operator.log
    assert "Contended" not in things.conditions("victim")
