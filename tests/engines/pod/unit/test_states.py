"""States of the pod of a run, how they are explained, and what is kept of pods in memory."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from runner.engines.pod import jobs, states
from runner.engines.pod.states import Patience, PodState
from runner.engines.pod.watching import kept

WAIT = Patience()


def _pod(phase: str = "Running", *, container: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    found = {"name": "ansible", "image": "example.com/ee:1", **(container or {})}
    limits = {"resources": {"limits": {"memory": "256Mi"}}}
    return {
        "metadata": {"name": "run-1-x"},
        "spec": {"nodeName": "n1", "containers": [{"name": "sidecar"}, {"name": "ansible", **limits}]},
        "status": {"phase": phase, "containerStatuses": [{"name": "sidecar"}, found], **status},
    }


def _condition(kind: str, status: str, reason: str = "", message: str = "") -> list[dict[str, str]]:
    return [{"type": kind, "status": status, "reason": reason, "message": message}]


def test_only_a_pod_that_no_node_takes_waits_and_it_has_the_schedulers_message() -> None:
    assert states.of(_pod()) == PodState("run-1-x", "n1")
    pod = _pod("Pending", conditions=_condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available"))
    assert states.of(pod).waits == "it cannot be scheduled: 0/3 nodes are available"


def test_an_image_that_cannot_be_pulled_is_named_with_the_reason() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found."}}
    state = states.of(_pod("Pending", container={"state": waiting}))
    assert state.broken == "its image example.com/ee:1 cannot be pulled: not found"
    assert states.obstacle_of_pod(state, WAIT, known=True).fault.text == (
        "the pod run-1-x cannot start: its image example.com/ee:1 cannot be pulled: not found,"
    )


@pytest.mark.parametrize(
    ("terminated", "status", "expected"),
    [
        ({}, {"reason": "Evicted", "message": "The node was low on resource: memory."}, "it was evicted: The node was"),
        ({}, {"reason": "DeadlineExceeded"}, "activeDeadlineSeconds"),
        ({}, {}, "it ended without a result"),
        ({"reason": "OOMKilled", "exitCode": 137}, {}, "more memory than its limit of 256Mi"),
        (
            {"exitCode": 1, "message": "python3: not found\n"},
            {},
            "its container ended with exit code 1; the last it said: python3: not found",
        ),
    ],
    ids=["evicted", "deadline", "without a reason", "out of memory", "last output"],
)
def test_the_end_of_a_pod_is_explained(terminated: dict[str, Any], status: dict[str, Any], expected: str) -> None:
    state = {"state": {"terminated": terminated}} if terminated else None
    assert expected in states.of(_pod("Failed", container=state, **status)).ended


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        # As the control plane sets them; see tests/integration/image/test_lost_node.py.
        (_condition("Ready", "False") + _condition("ContainersReady", "True"), "its node n1 is not ready"),
        (_condition("DisruptionTarget", "True", "DeletionByTaintManager"), "its node n1 was lost"),
        (_condition("DisruptionTarget", "True", "EvictionByEvictionAPI"), "it was evicted"),
    ],
)
def test_a_lost_pod_is_not_a_failure(conditions: list[dict[str, str]], expected: str) -> None:
    state = states.of(_pod(conditions=conditions))
    assert state.lost.startswith(expected)
    assert state.ended == ""


_BY_KUBELET = _condition("DisruptionTarget", "True", "TerminationByKubelet")
_EVICTIONS = [
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 42Mi. Container ansible uses 302Mi.",
    "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.",
]


@pytest.mark.parametrize("message", _EVICTIONS)
def test_an_eviction_by_the_kubelet_is_a_failure_with_its_message(message: str) -> None:
    ended = {"state": {"terminated": {"exitCode": 137, "reason": "Error"}}}
    pod = _pod("Failed", container=ended, reason="Evicted", message=message, conditions=_BY_KUBELET)
    state = states.of(pod)
    assert (state.lost, state.ended) == ("", f"it was evicted: {message.rstrip('.')}")
    assert states.obstacle_of_pod(state, WAIT, known=True).fault.text == (
        f"the pod run-1-x of the run ended: it was evicted: {message.rstrip('.')},"
    )


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Terminated", "Pod was terminated in response to imminent node shutdown."),
        ("Preempting", "Preempted in order to admit critical pod"),
    ],
)
def test_a_pod_that_the_kubelet_ended_for_the_node_is_lost(reason: str, message: str) -> None:
    ended = {"state": {"terminated": {"exitCode": 143, "reason": "Error"}}}
    state = states.of(_pod("Failed", container=ended, reason=reason, message=message, conditions=_BY_KUBELET))
    assert (state.lost, state.ended) == (f"the kubelet of the node n1 ended it: {message.rstrip('.')}", "")


def test_a_pod_that_was_deleted_is_lost_and_one_that_never_came_failed() -> None:
    assert states.obstacle_of_pod(None, WAIT, known=True).fault.lost == "it was deleted"
    absent = states.obstacle_of_pod(None, WAIT, known=False)
    assert (absent.patience, absent.fault.text) == (WAIT.start, "the Job of the run has created no pod")


def test_the_end_of_the_agent_is_noticed_while_a_sidecar_runs() -> None:
    sidecar = {"name": "mesh", "state": {"running": {}}}
    own = {"name": "ansible", "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}
    state = states.of(_pod(containerStatuses=[sidecar, own]))
    assert state.ended == "its container ended with exit code 137"
    assert state.has_others
    assert not states.of(_pod(containerStatuses=[{**own, "state": {"running": {}}}])).has_others
    alone = states.of(_pod(containerStatuses=[{"name": "mesh", "state": {"terminated": {}}}, own]))
    assert (alone.ended, alone.has_others) == (state.ended, False)


def _large_pod() -> dict[str, Any]:
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "run-1", "uid": "u", "controller": True}
    status = {"phase": "Failed", "containerStatuses": [{"name": "ansible", "state": {"terminated": {"exitCode": 1}}}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "run-1-x",
            "namespace": "shop",
            "uid": "p",
            "resourceVersion": "7",
            "labels": {jobs.RUN: "run-1", jobs.RUN_OF: "uid", "app": "x"},
            "annotations": {jobs.RUN_OF: "things/shop/one", "large": "x" * 200_000},
            "ownerReferences": [job],
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "ansible", "env": [{"name": "A", "value": "x" * 1_000_000}]}, {"name": "other"}],
        },
        "status": status,
    }


def test_a_large_pod_with_labels_of_a_run_needs_little_memory_and_has_the_same_state() -> None:
    pod = _large_pod()
    small = kept(pod)
    assert len(orjson.dumps(small)) < 1000
    assert states.of(small) == states.of(pod)
    assert jobs.job_of(small) == jobs.job_of(pod)
    assert small["metadata"]["annotations"] == {jobs.RUN_OF: "things/shop/one"}


def test_a_pod_without_optional_parts_is_kept() -> None:
    assert states.of(kept({"metadata": {"name": "a", "namespace": "b"}})).name == "a"
