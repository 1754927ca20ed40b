"""A namespace is deleted: finalizers do not wait for a role that can create nothing in it any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.kit.objects import Things
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api
    from tests.kit.operator import Project

CREATES = """
    - kubernetes.core.k8s:
        definition:
          apiVersion: v1
          kind: ConfigMap
          metadata: {generateName: it-, namespace: "{{ ansible_operator_meta.namespace }}"}
"""
CREATES_FOR_EVER = (
    CREATES
    + """
      register: made
      until: made.never is defined
      retries: 100000
      delay: 1
"""
)
CLEANS = """
    - ansible.builtin.debug: {msg: cleaned}
"""


@pytest.fixture
def doomed(api: Api, namespace: str) -> Iterator[str]:
    """A namespace beside that of the operator."""
    name = f"{namespace}-doomed"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    api.call("DELETE", f"/api/v1/namespaces/{name}")


def test_a_run_that_can_create_nothing_any_more_does_not_keep_the_finalizer_waiting(
    project: Project, api: Api, doomed: str
) -> None:
    project.role("creates", CREATES_FOR_EVER)
    project.role("cleans", CLEANS)
    project.watch("creates", finalizer={"name": "test.example.com/cleans", "role": "cleans"})
    project.bind_everywhere()
    operator = project.start("--engine=warm", f"--namespace={doomed}")
    things = Things(api, doomed)
    things.create("one", {})
    maps = f"/api/v1/namespaces/{doomed}/configmaps"
    wait_until(lambda: any(each["metadata"]["name"].startswith("it-") for each in api.call("GET", maps)["items"]), maps)
    api.call("DELETE", f"/api/v1/namespaces/{doomed}")
    things.await_gone("one")
    canceled, finalized = operator.runs("one")
    assert (canceled["outcome"], finalized["outcome"]) == ("canceled", "succeeded")
    assert "namespace are being deleted" in canceled["error"]
    wait_until(lambda: api.call("GET", f"/api/v1/namespaces/{doomed}") is None, "the namespace to go")


def test_the_failure_of_a_finalizer_that_creates_names_the_cause_and_its_limit_frees_the_namespace(
    project: Project, api: Api, doomed: str
) -> None:
    project.role("cleans", CLEANS)
    project.role("creates", CREATES)
    limit = {"attempts": 2, "then": "release"}
    finalizer = {"name": "test.example.com/creates", "role": "creates", "limit": limit}
    project.watch("cleans", finalizer=finalizer, retry={"delay": "5s"})
    project.bind_everywhere()
    operator = project.start("--engine=warm", f"--namespace={doomed}")
    things = Things(api, doomed)
    things.create("one", {})
    things.await_success("one")
    api.call("DELETE", f"/api/v1/namespaces/{doomed}")
    failure = things.await_condition("one", "Failure", current=False)
    assert "because it is being terminated" in failure["message"]
    assert "finalizer.limit in watches.yaml" in failure["message"]
    things.await_gone("one")
    assert [run["outcome"] for run in operator.runs("one")] == ["succeeded", "failed", "failed"]
    wait_until(lambda: api.call("GET", f"/api/v1/namespaces/{doomed}") is None, "the namespace to go")
