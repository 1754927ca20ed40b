"""A user who can only write custom resources in one namespace does not affect other users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.tasks import NAME, NAMESPACE, config_map
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Operator, Project


def _waiting(operator: Operator) -> float:
    """Return how many Things wait in the work queue."""
    lines = operator.get("/metrics").splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("workqueue_depth{"))


def _nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


WAITS = """
    - ansible.builtin.wait_for: {path: "{{ gate }}", timeout: 300}
    - ansible.builtin.command: sleep 0.3
"""


def test_sixty_objects_of_one_namespace_do_not_delay_an_object_of_another(
    project: Project, things: Things, neighbour: Things
) -> None:
    gate = project.folder / "gate"
    project.role("thing", WAITS)
    project.watch("thing", vars={"gate": str(gate)})
    project.bind_everywhere()
    operator = project.start("--max-concurrent-reconciles=1", f"--namespace={neighbour.namespace}")
    names = [f"mine-{number}" for number in range(60)]
    for name in names:
        neighbour.create(name)
    things.create("victim", {"size": 1})
    wait_until(lambda: _waiting(operator) == 60, "all but the running object to wait")
    gate.touch()
    things.await_success("victim")
    runs = [line["namespace"] for line in operator.lines(msg="Run started")]
    assert runs.index(things.namespace) == 1

    for name in names:
        neighbour.merge(name, {"metadata": {"annotations": {"ansible.sdk.operatorframework.io/run-requested": "now"}}})
    started = len(operator.lines(msg="Run started"))
    things.merge("victim", {"spec": {"size": 2}})
    things.await_success("victim")
    assert _waiting(operator) > 30
    assert [line["namespace"] for line in operator.lines(msg="Run started")][started:].index(things.namespace) < 5


MAKES_FAR = config_map(
    f"{NAME}-made", {"value": "made"}, namespace="{{ item }}", loop=[NAMESPACE, "{{ far }}"], when="far is defined"
)


@pytest.mark.full
def test_neither_deep_objects_nor_foreign_references_nor_forged_owners_reach_the_objects_of_others(
    project: Project, things: Things, neighbour: Things, api: Api
) -> None:
    project.role("thing", MAKES_FAR)
    shared = {"version": "v1", "kind": "ConfigMap", "path": "spec.maps", "namespaces": [things.namespace]}
    project.watch("thing", references=[shared, {"version": "v1", "kind": "Secret", "path": "spec.secrets"}])
    project.grant([""], ["secrets", "configmaps"])
    project.bind_everywhere()
    operator = project.start(f"--namespace={neighbour.namespace}")
    deep = [f"deep-{levels}" for levels in (300, 900, 1500)]
    for name in deep:
        neighbour.create(name, {"tree": _nested(int(name.removeprefix("deep-")))})
    secrets = [{"name": "password", "namespace": things.namespace}, "own", *(f"many-{number}" for number in range(110))]
    neighbour.create("spy", {"secrets": secrets, "maps": {"name": "shared", "namespace": things.namespace}})
    things.create("victim", {"far": neighbour.namespace})
    things.await_success("victim")
    for name in deep:
        failure = neighbour.await_condition(name, "Failure")
        assert (failure["reason"], "nests deeper than" in failure["message"]) == ("Unusable", True)
    assert operator.is_ready()
    neighbour.merge(deep[-1], {"spec": {"tree": None}})
    neighbour.await_success(deep[-1])

    neighbour.await_success("spy")
    ignored = neighbour.await_condition("spy", "IgnoredReferences")
    assert ignored["reason"] == "NamespaceNotAllowed"
    assert f"Secret {things.namespace}/password: not watched" in ignored["message"]
    assert all(f"Secret {neighbour.namespace}/many-{number}" in ignored["message"] for number in range(98, 110))
    assert f"{neighbour.namespace}/many-97" not in ignored["message"]
    core, theirs = (f"/api/v1/namespaces/{namespace}" for namespace in (things.namespace, neighbour.namespace))
    api.call("POST", f"{core}/secrets", {"metadata": {"name": "password"}})
    api.call("POST", f"{theirs}/secrets", {"metadata": {"name": "own"}})
    api.call("POST", f"{core}/configmaps", {"metadata": {"name": "shared"}})
    for text in (f"Secret {neighbour.namespace}/own appeared", f"ConfigMap {things.namespace}/shared appeared"):
        operator.await_line("A reference changed", name="spy", why=text)
    assert f"{things.namespace}/password appeared" not in operator.log
    neighbour.merge("spy", {"spec": {"secrets": ["own"]}})
    neighbour.await_condition("spy", "IgnoredReferences", "False")

    annotations = api.call("GET", f"{theirs}/configmaps/victim-made")["metadata"]["annotations"]
    assert annotations["operator-sdk/primary-resource"] == f"{things.namespace}/victim"
    api.call("POST", f"{theirs}/configmaps", {"metadata": {"name": "forged", "annotations": annotations}})

    def change_both(value: str) -> None:
        """Change the forged object several times, then the object of the victim's role, and wait for its run."""
        for number in range(5):
            body = {"data": {"value": f"{value}-{number}"}}
            api.call("PATCH", f"{theirs}/configmaps/forged", body, "application/merge-patch+json")
        made = f"{theirs}/configmaps/victim-made"
        api.call("PATCH", made, {"data": {"value": value}}, "application/merge-patch+json")
        operator.await_line("Run ended", name="victim", reason="dependent changed")

    change_both("one")
    assert operator.stop() == 0
    assert f"{neighbour.namespace}/forged" not in operator.log
    operator = project.start(f"--namespace={neighbour.namespace}")
    operator.await_line("Run ended", name="victim", reason="present at start")
    change_both("two")
    assert f"{neighbour.namespace}/victim-made" in operator.log
    assert f"{neighbour.namespace}/forged" not in operator.log
    assert "Contended" not in things.conditions("victim")
