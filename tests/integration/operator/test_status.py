"""What tools that wait see of an object: the real `kubectl wait`, and kstatus by its published rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.cluster import kubectl_of
from tests.kit.kstatus import kstatus
from tests.kit.objects import MEMCACHED, memcacheds
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.sdk.devcluster import DevCluster
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

_ROLE = """
- name: Refuse
  ansible.builtin.fail: {msg: "no room for {{ size }}"}
  when: size > 2
- name: Report
  operator_sdk.util.k8s_status:
    api_version: "{{ _test_example_com_thing.apiVersion }}"
    kind: Thing
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    conditions: [{type: Foo, status: "False"}]
  when: reports | default(false)
"""


@pytest.fixture
def kubectl_wait(devcluster: DevCluster, things: Things) -> Callable[[str], None]:
    kubectl = kubectl_of(devcluster, f"--namespace={things.namespace}")

    def wait(condition: str) -> None:
        kubectl.wait(f"--for=condition={condition}", "thing/one")

    return wait


def test_kubectl_wait_interprets_the_health_conditions_and_those_of_any_shape_are_repaired(
    project: Project, things: Things, api: Api, kubectl_wait: Callable[[str], None]
) -> None:
    twice = [{"type": kind, "status": value} for kind in ("Foo", "Ready", "Failure") for value in ("True", "False")]
    shapes = {"null": [None], "twice": [*twice, "words"], "map": {"ready": True}}
    for name, shape in shapes.items():
        things.create(name, {"size": 1, "reports": True})
        things.merge(name, {"status": {"conditions": shape}}, "status")
    project.role("thing", _ROLE)
    project.watch("thing", retry={"attempts": 1})
    project.watch("thing", **MEMCACHED, healthConditions=False)
    operator = project.start()
    others = memcacheds(api, things.namespace)
    others.create("m")

    things.create("one", {"size": 1})
    kubectl_wait("Ready")
    assert kstatus(things.get("one")) == "Current"
    assert all(each["reason"] for each in things.conditions("one").values())

    things.merge("one", {"spec": {"size": 2}})
    kubectl_wait("Ready")
    obj = things.get("one")
    assert obj["status"]["observedGeneration"] == obj["metadata"]["generation"] == 2
    assert kstatus(obj) == "Current"

    things.merge("one", {"spec": {"size": 3}})
    kubectl_wait("Stalled")
    assert kstatus(things.get("one")) == "Failed"
    found = things.conditions("one")
    place = f"{project.folder}/roles/thing/tasks/main.yml:2"
    assert found["Ready"]["message"] == f"no room for 3 (task 'Refuse', {place})"
    message = found["Failure"]["message"].splitlines()
    assert message[:2] == ["no room for 3", f"task 'Refuse', {place}"]
    assert f"ansible-operator logs Thing.test.example.com/one -n {things.namespace}" in message[-1]
    assert f"{project.folder}/runs/test.example.com/v1/Thing/{things.namespace}/one" in message[-1]

    things.merge("one", {"spec": {"size": 1}})
    kubectl_wait("Ready")
    assert kstatus(things.get("one")) == "Current"

    sample_status = wait_until(lambda: others.get("m").get("status"), "the other kind's status")
    assert sample_status is not None
    assert "observedGeneration" not in sample_status
    assert {each["type"] for each in sample_status["conditions"]} <= {"Running", "Successful", "Failure"}

    for name in shapes:
        things.await_success(name)
        types = [each["type"] for each in things.get(name)["status"]["conditions"]]
        assert sorted(types) == ["Failure", "Foo", "Ready", "Running", "Successful"]
        assert things.conditions(name)["Foo"]["status"] == "False"
        assert len(operator.runs(name)) == 1
