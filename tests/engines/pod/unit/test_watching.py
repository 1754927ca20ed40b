"""Pods of runs in memory."""

from __future__ import annotations

from typing import Any

import orjson

from runner.engines.pod import jobs, states
from runner.engines.pod.watching import kept


def _pod() -> dict[str, Any]:
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
    pod = _pod()
    small = kept(pod)
    assert len(orjson.dumps(small)) < 1000
    assert states.of(small) == states.of(pod)
    assert jobs.job_of(small) == jobs.job_of(pod)
    assert small["metadata"]["annotations"] == {jobs.RUN_OF: "things/shop/one"}


def test_a_pod_without_optional_parts_is_kept() -> None:
    assert states.of(kept({"metadata": {"name": "a", "namespace": "b"}})).name == "a"
