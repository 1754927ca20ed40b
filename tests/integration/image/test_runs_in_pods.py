"""Runs in pods: what a run does, how it survives, and what its status says when its pod cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.image.pods import ROLE, PodProject
from tests.kit.images import needs_images_on_a_node
from tests.kit.objects import Things
from tests.kit.wait import wait_until

pytestmark = [
    pytest.mark.full,
    pytest.mark.xdist_group("pods"),
    needs_images_on_a_node(),
]

_WARM, _RUN_OF = (f"ansible.sdk.operatorframework.io/{name}" for name in ("warm-pod-of", "run-of"))


TOKENS = """
- name: Look for tokens
  ansible.builtin.find:
    paths: [/var/run/secrets, /run/secrets]
    recurse: true
  register: tokens
- name: Find none
  ansible.builtin.assert: {that: tokens.files | length == 0}
"""


def test_a_role_runs_in_a_pod_with_no_token_but_that_of_its_run_and_its_objects_are_owned(pods: PodProject) -> None:
    pods.watch(ROLE + TOKENS)
    operator = pods.start()
    thing = pods.things.create("one", {"size": 3})
    pods.succeeds("one")
    made = pods.config_map("one-made")
    assert made["data"] == {"size": "3"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == thing["metadata"]["uid"]
    (job,) = pods.objects("jobs")
    assert job["metadata"]["ownerReferences"][0]["uid"] == thing["metadata"]["uid"]
    (ended,) = operator.runs("one")
    assert ended["outcome"] == "succeeded"
    (pod,) = pods.objects("pods")
    wait_until(lambda: pods.objects("pods")[0]["status"]["phase"] == "Succeeded", "the pod to end")
    assert "TASK [thing : Record]" in pods.log(pod["metadata"]["name"])
    assert pods.objects("secrets") == []


def _waits_at_gate(pods: PodProject, name: str) -> None:
    """Wait until the role has made its first call to the API server."""

    def asked() -> bool:
        return any("FAILED - RETRYING" in pods.log(pod["metadata"]["name"]) for pod in pods.objects("pods"))

    wait_until(asked, f"the role of {name} to wait for its gate")


@pytest.mark.parametrize("folder", ["same", pytest.param("other", marks=pytest.mark.nightly)])
def test_a_run_continues_when_the_operator_is_killed(pods: PodProject, tmp_path: Path, folder: str) -> None:
    pods.watch()
    first = pods.start(f"--runner-dir={tmp_path}/same")
    pods.things.create("one", {"gate": "open"})
    _waits_at_gate(pods, "one")
    first.kill()
    second = pods.start(f"--runner-dir={tmp_path}/{folder}")
    second.await_line("Continuing a run that an earlier operator began")
    pods.open_gate("open")
    pods.succeeds("one")
    assert len(pods.objects("jobs")) == 1
    assert [len(each.runs("one")) for each in (first, second)] == [0, 1]


def test_a_run_whose_pod_is_deleted_is_repeated_and_did_not_fail(pods: PodProject) -> None:
    pods.watch()
    operator = pods.start()
    pods.things.create("one", {"gate": "open"})
    _waits_at_gate(pods, "one")
    (pod,) = pods.objects("pods")
    path = f"/api/v1/namespaces/{pods.namespace}/pods/{pod['metadata']['name']}"
    pods.api.call("DELETE", path)
    wait_until(lambda: operator.runs("one"), "the run to end")
    pods.open_gate("open")
    pods.succeeds("one")
    assert [run["outcome"] for run in operator.runs("one")] == ["canceled", "succeeded"]


@pytest.mark.parametrize(
    ("template", "options", "expected"),
    [
        pytest.param(
            *({"image": "example.com/none:1"}, {}, "its image example.com/none:1 cannot be pulled"),
            marks=pytest.mark.nightly,  # it waits for the image
        ),
        ({"nodeSelector": {"pool": "none"}}, {"runTimeout": "5s"}, "cannot be scheduled: 0/1 nodes are available"),
    ],
    ids=["image", "node"],
)
def test_the_status_says_why_a_pod_failed(
    pods: PodProject, template: dict[str, Any], options: dict[str, Any], expected: str
) -> None:
    """For its memory and its time, `test_isolation_of_pods.py` shows this."""
    pods.watch(template=template, **options)
    pods.start()
    pods.things.create("one")
    message = pods.things.await_condition("one", "Failure")["message"]
    assert expected in message
    wait_until(lambda: not pods.objects("secrets"), "the record of the run to go")


@pytest.mark.nightly
def test_a_finalizer_runs_after_its_namespace_was_deleted_and_the_namespace_goes(pods: PodProject) -> None:
    doomed = f"{pods.namespace}-doomed"
    path = f"/api/v1/namespaces/{doomed}"
    pods.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": doomed}})
    pods.project.role("cleans", "- ansible.builtin.debug: {msg: cleaned}\n")
    pods.project.bind_everywhere()
    pods.watch(finalizer={"name": "test.example.com/cleans", "role": "cleans"})
    operator = pods.start(f"--namespace={doomed}")
    things = Things(pods.api, doomed)
    things.create("one", {"gate": "never"})
    operator.await_line("Run started", name="one")
    pods.api.call("DELETE", path)
    things.await_gone("one")
    assert operator.runs("one")[-1]["outcome"] == "succeeded"
    (pod,) = pods.objects("pods")
    assert "cleaned" in pods.log(pod["metadata"]["name"])
    assert pods.objects("secrets") == []
    wait_until(lambda: pods.api.call("GET", path) is None, "the namespace to go")


def _warm_run(pods: PodProject) -> tuple[Any, str]:
    """Wait for the labels of the warm pod that has a run; return the pod, and namespace and name of the run."""

    def labeled() -> list[Any]:
        return [each for each in pods.objects("pods") if {_WARM, _RUN_OF} <= set(each["metadata"]["labels"])]

    wait_until(labeled, "a warm pod to get a run")
    (pod,) = labeled()
    return pod, pod["metadata"]["annotations"]["ansible.sdk.operatorframework.io/run"]


def test_a_run_gets_a_warm_pod_which_is_replaced_and_ends_with_it(pods: PodProject) -> None:
    pods.watch(warmPods=1)
    operator = pods.start()
    operator.await_line("A warm pod is ready")
    (idle,) = wait_until(pods.warm, "the node to report the warm pod")
    thing = pods.things.create("one", {"size": 3})
    pods.succeeds("one")
    assert pods.config_map("one-made")["metadata"]["ownerReferences"][0]["uid"] == thing["metadata"]["uid"]
    pod, _ = _warm_run(pods)
    assert pod["metadata"]["name"] == idle["metadata"]["name"]
    assert pod["metadata"]["labels"][_RUN_OF] == thing["metadata"]["uid"]
    (ended,) = operator.runs("one")
    assert (ended["outcome"], ended["pod"].split(" on ")[0]) == (
        "succeeded",
        f"{pods.namespace}/{idle['metadata']['name']}",
    )
    wait_until(lambda: _warm_run(pods)[0]["status"]["phase"] == "Succeeded", "the pod to end")
    assert "TASK [thing : Record]" in pods.log(idle["metadata"]["name"])
    wait_until(lambda: [each["metadata"]["name"] for each in pods.warm()] != [idle["metadata"]["name"]], "another pod")
    wait_until(pods.warm, "another pod")
    assert operator.lines(msg="Problem of warm pods") == []
    assert operator.stop() == 0
    wait_until(lambda: not pods.warm(), "the idle pod to end with its operator")


@pytest.mark.nightly
def test_another_replica_continues_a_run_in_a_warm_pod_after_a_handover(pods: PodProject) -> None:
    hosts = ("10.95.0.11", "10.95.0.12")
    pods.serve(*hosts)
    pods.project.allow_lease("pods")
    pods.watch(warmPods=1)
    first, second = (pods.start("--leader-elect", "--leader-election-id=pods", host=host) for host in hosts)
    first.await_line("A warm pod is ready")
    pods.things.create("one", {"gate": "open"})
    pod, _ = _warm_run(pods)
    wait_until(lambda: "FAILED - RETRYING" in pods.log(pod["metadata"]["name"]), "the role to wait for its gate")
    assert first.stop() == 0
    second.await_line("Continuing a run that an earlier operator began")
    pods.open_gate("open")
    pods.succeeds("one")
    assert [len(each.runs("one")) for each in (first, second)] == [0, 1]
    wait_until(lambda: _warm_run(pods)[0]["status"]["phase"] == "Succeeded", "the pod to end")
