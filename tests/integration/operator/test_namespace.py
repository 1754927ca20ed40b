"""A namespace is deleted: finalizers do not wait for a role that can create nothing in it any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

CREATES = """
    - kubernetes.core.k8s:
        definition:
          apiVersion: v1
          kind: ConfigMap
          metadata: {generateName: it-, namespace: "{{ ansible_operator_meta.namespace }}"}
      register: made
      until: made is succeeded and not (repeats | bool)
      retries: "{{ 100000 if repeats | bool else 1 }}"
      delay: 1
      when: creates | bool
"""


def test_finalizers_in_a_deleted_namespace_do_not_wait_for_a_run_that_cannot_create_and_name_the_cause_of_their_own(
    project: Project, api: Api, neighbour: Things
) -> None:
    project.role("thing", CREATES)
    variables = {"repeats": False, "creates": "{{ undo_creates }}"}
    limit = {"attempts": 2, "then": "release"}
    finalizer: dict[str, Any] = {"name": "test.example.com/undo", "vars": variables, "limit": limit}
    project.watch("thing", finalizer=finalizer, retry={"delay": "5s"})
    project.bind_everywhere()
    things, doomed = neighbour, neighbour.namespace
    operator = project.start("--engine=warm", f"--namespace={doomed}")
    things.create("endless", {"creates": True, "repeats": True, "undoCreates": False})
    things.create("creating", {"creates": False, "repeats": False, "undoCreates": True})
    things.await_success("creating")
    maps = f"/api/v1/namespaces/{doomed}/configmaps"
    wait_until(lambda: any(each["metadata"]["name"].startswith("it-") for each in api.call("GET", maps)["items"]), maps)
    api.call("DELETE", f"/api/v1/namespaces/{doomed}")

    things.await_gone("endless")
    canceled, finalized = operator.runs("endless")
    assert (canceled["outcome"], finalized["outcome"]) == ("canceled", "succeeded")
    assert "namespace are being deleted" in canceled["error"]

    failure = things.await_condition("creating", "Failure", current=False)
    assert "because it is being terminated" in failure["message"]
    assert "finalizer.limit in watches.yaml" in failure["message"]
    things.await_gone("creating")
    assert [run["outcome"] for run in operator.runs("creating")] == ["succeeded", "failed", "failed"]
    wait_until(lambda: api.call("GET", f"/api/v1/namespaces/{doomed}") is None, "the namespace to go")
