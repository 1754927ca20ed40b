"""What a role makes through the proxy: owned by its resource, watched, put right, and collected."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.kit.objects import Objects
from tests.kit.tasks import NAME, config_map
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

MAKE = """
    - name: Make a ConfigMap and a Deployment
      kubernetes.core.k8s:
        definition:
          - apiVersion: v1
            kind: ConfigMap
            metadata:
              name: "{{ ansible_operator_meta.name }}"
              namespace: "{{ ansible_operator_meta.namespace }}"
            data:
              size: "{{ size | string }}"
          - apiVersion: apps/v1
            kind: Deployment
            metadata:
              name: "{{ ansible_operator_meta.name }}"
              namespace: "{{ ansible_operator_meta.namespace }}"
            spec:
              replicas: "{{ size }}"
              selector: &labels
                matchLabels:
                  thing: "{{ ansible_operator_meta.name }}"
              template:
                metadata:
                  labels:
                    thing: "{{ ansible_operator_meta.name }}"
                spec:
                  containers:
                    - name: it
                      image: example.com/it
"""


SHARE = """
    - name: Apply what all resources of the namespace share
      kubernetes.core.k8s:
        apply: true
        server_side_apply: {field_manager: shop}
        definition:
          apiVersion: v1
          kind: ConfigMap
          metadata:
            name: "shared-{{ item }}"
            namespace: "{{ ansible_operator_meta.namespace }}"
            annotations: "{{ {'ansible.sdk.operatorframework.io/adopt': 'true'} if item == 'adopted' else {} }}"
          data: {a: b}
      loop: [adopted, created]
    - name: Write without JSON in the response
      ansible.builtin.uri:
        url: "{{ server }}/api/v1/namespaces/{{ ansible_operator_meta.namespace }}/configmaps/shared-adopted"
        method: PATCH
        body: {data: {run: "{{ lookup('pipe', 'date +%N') }}"}}
        body_format: json
        headers:
          Accept: application/vnd.kubernetes.protobuf
          Content-Type: application/merge-patch+json
          Authorization: "Bearer {{ kubeconfig.users[0].user.token }}"
      vars:
        kubeconfig: "{{ lookup('file', lookup('env', 'KUBECONFIG')) | from_yaml }}"
        server: "{{ kubeconfig.clusters[0].cluster.server }}"
      when: ansible_operator_meta.name == 'two'
"""


def test_dependents_are_owned_corrected_recreated_and_garbage_collected_and_a_backup_of_the_finalizer_remains(
    project: Project, things: Things, api: Api
) -> None:
    maps = Objects(api, f"/api/v1/namespaces/{things.namespace}/configmaps")
    deployments = Objects(api, f"/apis/apps/v1/namespaces/{things.namespace}/deployments")
    project.role("thing", MAKE)
    project.role("cleanup", config_map(f"{NAME}-backup", {"size": "{{ size | string }}"}))
    project.watch("thing", finalizer={"name": "test.example.com/finalizer", "role": "cleanup"})
    operator = project.start()
    things.create("one", {"size": 2})
    things.await_success("one")
    uid = things.get("one")["metadata"]["uid"]
    owner = {"apiVersion": "test.example.com/v1", "kind": "Thing", "name": "one", "uid": uid}
    assert maps.get("one")["metadata"]["ownerReferences"] == [owner]
    assert deployments.get("one")["metadata"]["ownerReferences"] == [owner]

    wait_until(lambda: deployments.get("one").get("status", {}).get("readyReplicas") == 2, "the rollout")
    deployments.merge("one", {"spec": {"replicas": 5}})
    wait_until(lambda: deployments.get("one")["spec"]["replicas"] == 2, "the Deployment to be put right")
    maps.merge("one", {"data": {"size": "9"}})
    wait_until(lambda: maps.get("one")["data"] == {"size": "2"}, "the ConfigMap to be put right")
    maps.delete("one")
    wait_until(lambda: maps.get("one").get("data") == {"size": "2"}, "the ConfigMap to come back")
    assert maps.get("one")["metadata"]["ownerReferences"] == [owner]
    reasons = [run["reason"] for run in operator.runs("one")]
    assert reasons[0] == "created"
    assert set(reasons[1:]) == {"dependent changed"}
    for size in (3, 4):
        things.merge("one", {"spec": {"size": size}})
        things.await_success("one")
    # Only runs have written the ConfigMap since it came back.
    assert operator.lines("Run ended", name="one", reason="changed")[-1]["cache_hits"] > 0

    things.delete("one")
    things.await_gone("one")
    wait_until(lambda: maps.get("one") == {} and deployments.get("one") == {}, "the children to be collected")
    assert maps.get("one-backup")["data"] == {"size": "4"}
    assert "ownerReferences" not in maps.get("one-backup")["metadata"], "the garbage collector must not take it too"
    assert operator.stop() == 0


def test_a_run_whose_object_is_deleted_and_created_again_writes_nothing_more(
    project: Project, things: Things, api: Api
) -> None:
    gate = project.folder / "gate"
    wait = '    - ansible.builtin.wait_for: {path: "{{ gate }}", timeout: 60, sleep: 1}\n'
    project.role("thing", wait + MAKE)
    project.watch("thing", vars={"gate": str(gate)})
    operator = project.start("--max-concurrent-reconciles=2")
    old = things.create("one", {"size": 1})["metadata"]["uid"]
    operator.await_line("Run started", name="one")
    things.delete("one")
    things.await_gone("one")
    new = things.create("one", {"size": 2})["metadata"]["uid"]
    # The watch delivers events in order: once it has delivered this one, it has delivered the others.
    things.create("later", {"size": 1})
    operator.await_line("Run started", name="later")
    gate.touch()

    things.await_success("one")
    refused, successful, *later = operator.runs("one")
    assert {run["reason"] for run in later} <= {"dependent changed"}, "for the rollout of the Deployment"
    assert (refused["outcome"], successful["outcome"]) == ("failed", "succeeded")
    error = operator.lines(msg="Task failed", job=refused["job"])[0]["error"]
    assert f"Thing {things.namespace}/one was deleted and created again during this run" in error
    assert f"the deleted object (UID {old})" in error
    rejected = operator.lines(msg="Rejected a write of a run whose object was deleted")
    assert {(line["job"], line["state"]) for line in rejected} == {(refused["job"], "replaced")}
    made = Objects(api, f"/api/v1/namespaces/{things.namespace}/configmaps").get("one")
    assert made["data"] == {"size": "2"}
    assert [each["uid"] for each in made["metadata"]["ownerReferences"]] == [new]


def test_resources_that_apply_the_same_object_keep_each_other_as_owners_and_trigger_no_further_runs(
    project: Project, things: Things, api: Api
) -> None:
    maps = Objects(api, f"/api/v1/namespaces/{things.namespace}/configmaps")

    def owners(name: str) -> list[str]:
        return [each["name"] for each in maps.get(f"shared-{name}")["metadata"]["ownerReferences"]]

    project.role("thing", SHARE)
    project.watch("thing")
    operator = project.start()
    for name in ("one", "two"):
        things.create(name)
        things.await_success(name)
    assert owners("adopted") == ["one", "two"]
    assert owners("created") == ["one"]
    wait_until(lambda: len(operator.runs("one")) > 1, "the run of the other owner")
    time.sleep(5)  # further runs would begin in this time
    assert len(operator.runs("two")) == 1
    assert len(operator.runs("one")) <= 3, "one run for each of the two changes by the other owner"
    assert owners("adopted") == ["one", "two"]
