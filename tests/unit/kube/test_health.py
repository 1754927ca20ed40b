"""The health of workloads, claims and pods by their standard status."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.kube.health import HealthState, health, is_behind

FAILED, IN_PROGRESS, UNKNOWN, READY = HealthState
SEEN = {"observedGeneration": 1}
TWO = {**SEEN, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}
DAEMONS = dict.fromkeys(("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberAvailable"), 2)
NOT_OBSERVED = "its controller has not observed the latest spec yet"


def condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}


def deployed(**status: Any) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    return "apps/v1", "Deployment", {"replicas": 2}, {**TWO, **status}


def stateful(spec: dict[str, Any], **status: Any) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    return "apps/v1", "StatefulSet", {"replicas": 2, **spec}, {**TWO, **status}


def daemons(spec: dict[str, Any], **status: Any) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    return "apps/v1", "DaemonSet", spec, {**SEEN, **DAEMONS, **status}


def job(**status: Any) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    return "batch/v1", "Job", {}, status


def claim(phase: str, spec: Any = None) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    return "v1", "PersistentVolumeClaim", {"storageClassName": "standard"} if spec is None else spec, {"phase": phase}


@pytest.mark.parametrize(
    ("case", "state", "message"),
    [
        (deployed(), READY, ""),
        (deployed(readyReplicas=0), IN_PROGRESS, "0 of 2 ready"),
        (deployed(readyReplicas=None), IN_PROGRESS, "0 of 2 ready"),
        (deployed(updatedReplicas=1), IN_PROGRESS, "1 of 2 updated"),
        (deployed(availableReplicas=1), IN_PROGRESS, "1 of 2 available"),
        (deployed(replicas=3), IN_PROGRESS, "3 replicas, and 2 desired"),
        (deployed(observedGeneration=0), IN_PROGRESS, NOT_OBSERVED),
        (deployed(observedGeneration=2), IN_PROGRESS, NOT_OBSERVED),
        (
            deployed(readyReplicas=1, **condition("Progressing", "False", "ProgressDeadlineExceeded", "too late")),
            FAILED,
            "1 of 2 ready: ProgressDeadlineExceeded: too late",
        ),
        (
            deployed(readyReplicas=1, **condition("ReplicaFailure", "True", "FailedCreate", "exceeded quota")),
            IN_PROGRESS,
            "1 of 2 ready: FailedCreate: exceeded quota",
        ),
        (("apps/v1", "Deployment", {}, {}), UNKNOWN, "it has no status yet"),
        (("apps/v1", "Deployment", {"replicas": 0}, {"replicas": 0}), UNKNOWN, NOT_OBSERVED),
        (("apps/v1", "Deployment", {"replicas": 0}, SEEN), READY, ""),
        (("apps/v1", "Deployment", {"replicas": 2}, "odd"), UNKNOWN, "it has no status yet"),
        (stateful({}), READY, ""),
        (stateful({}, readyReplicas=1), IN_PROGRESS, "1 of 2 ready"),
        (stateful({}, updatedReplicas=1), IN_PROGRESS, "1 of 2 updated"),
        (stateful({"updateStrategy": {"rollingUpdate": {"partition": 1}}}, updatedReplicas=1), READY, ""),
        (stateful({"updateStrategy": {"type": "OnDelete"}}, updatedReplicas=0), READY, ""),
        (stateful({}, availableReplicas=0), READY, ""),
        (daemons({}, updatedNumberScheduled=2), READY, ""),
        (daemons({}, updatedNumberScheduled=1), IN_PROGRESS, "1 of 2 updated"),
        (daemons({"updateStrategy": {"type": "OnDelete"}}), READY, ""),
        (daemons({}, numberReady=1), IN_PROGRESS, "1 of 2 ready"),
        (daemons({}, numberAvailable=1), IN_PROGRESS, "1 of 2 available"),
        (
            ("apps/v1", "DaemonSet", {}, dict.fromkeys(DAEMONS, 0) | {"updatedNumberScheduled": 0}),
            UNKNOWN,
            NOT_OBSERVED,
        ),
        (job(**condition("Complete", "True")), READY, ""),
        (job(**condition("Suspended", "True")), READY, ""),
        (job(active=1, startTime="now"), IN_PROGRESS, "not complete"),
        (job(active=1, failed=2), IN_PROGRESS, "not complete, 2 pods failed"),
        (
            job(**condition("Failed", "True", "BackoffLimitExceeded", "too often")),
            FAILED,
            "failed: BackoffLimitExceeded: too often",
        ),
        (claim("Bound"), READY, ""),
        (claim("Pending"), IN_PROGRESS, "Pending"),
        (claim("Pending", {}), IN_PROGRESS, "Pending, and it has no storage class"),
        (claim("Lost"), FAILED, "Lost"),
        (("v1", "PersistentVolumeClaim", {}, {}), UNKNOWN, "it has no status yet"),
        (("v1", "Pod", {}, {"phase": "Running", **condition("Ready", "True")}), READY, ""),
        (("v1", "Pod", {}, {"phase": "Running"}), IN_PROGRESS, "Running"),
        (("v1", "Pod", {}, {"phase": "Failed"}), FAILED, "Failed"),
        (("apps/v1", "ReplicaSet", {}, {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1, **SEEN}), READY, ""),
        (("v1", "ConfigMap", {}, {}), READY, ""),
        (("example.com/v1", "Thing", {}, {"conditions": "odd", "observedGeneration": "odd"}), READY, ""),
        (("example.com/v1", "Deployment", {"replicas": 2}, {}), READY, ""),
    ],
)
def test_the_status_decides_about_the_health(case: Any, state: HealthState, message: str) -> None:
    api, kind, spec, status = case
    obj = {"apiVersion": api, "kind": kind, "metadata": {"generation": 1}, "spec": spec, "status": status}
    assert health(obj) == (state, message)


def test_a_generation_that_each_write_of_the_status_raises_says_nothing_about_health() -> None:
    obj = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"generation": 2}, "status": SEEN}
    assert is_behind(obj)
    assert health(obj).state is IN_PROGRESS
    assert health(obj, uses_generation=False).state is READY
