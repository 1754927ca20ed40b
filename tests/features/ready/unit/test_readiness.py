"""The decision whether an object is ready by its dependents, the reasons of pods, and when a change is written."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.dependents.kind import Owned
from runner.core.kube.health import Health, HealthState
from runner.core.status.conditions import Condition
from runner.features.ready.pods import reason_of, selector_of
from runner.features.ready.readiness import pause, readiness
from runner.values.objects import GVK, ObjectKey

FAILED, IN_PROGRESS, UNKNOWN, READY = HealthState
GROUPS = {"PersistentVolumeClaim": "", "Job": "batch"}


def owned(kind: str, name: str, state: HealthState, message: str, namespace: str = "ns") -> Owned:
    gvk = GVK(GROUPS.get(kind, "apps"), "v1", kind)
    return Owned(gvk, ObjectKey(namespace, name), f"uid-{name}", Health(state, message))


FORGE = owned("Deployment", "forge", IN_PROGRESS, "0 of 2 ready")
DATA = owned("PersistentVolumeClaim", "data", IN_PROGRESS, "Pending")
BACKUP = owned("Job", "backup", FAILED, "failed: BackoffLimitExceeded")
NEW = owned("StatefulSet", "new", UNKNOWN, "it has no status yet")
AWAY = owned("Deployment", "away", IN_PROGRESS, "0 of 1 ready", "other")


@pytest.mark.parametrize(
    ("unready", "unknown", "state", "message"),
    [
        ((), "", READY, ""),
        ((FORGE,), "", IN_PROGRESS, "Deployment forge: 0 of 2 ready: ImagePullBackOff docker.io/x"),
        ((AWAY,), "", IN_PROGRESS, "Deployment other/away: 0 of 1 ready"),
        ((FORGE, DATA), "", IN_PROGRESS, "PersistentVolumeClaim data: Pending (and 1 more)"),
        ((FORGE, DATA, BACKUP), "", FAILED, "Job backup: failed: BackoffLimitExceeded (and 2 more)"),
        ((NEW,), "", UNKNOWN, "StatefulSet new: it has no status yet"),
        ((NEW, FORGE), "", IN_PROGRESS, "Deployment forge: 0 of 2 ready: ImagePullBackOff docker.io/x (and 1 more)"),
        ((), "Job: not listed yet", UNKNOWN, "Job: not listed yet"),
        ((NEW,), "Job: not listed yet", UNKNOWN, "Job: not listed yet"),
        ((AWAY,), "Job: not listed yet", IN_PROGRESS, "Deployment other/away: 0 of 1 ready"),
    ],
)
def test_the_worst_dependent_decides_and_is_named(
    unready: tuple[Owned, ...], unknown: str, state: HealthState, message: str
) -> None:
    now = readiness(unready, "ns", unknown, {FORGE.uid: "ImagePullBackOff docker.io/x"})
    assert now.text == (state, message)


@pytest.mark.parametrize(
    ("unready", "unknown", "expected"),
    [
        ((), "", {"Ready": ("True", "RunSucceeded")}),
        ((FORGE,), "", {"Ready": ("False", "DependentsNotReady"), "Reconciling": ("True", "DependentsNotReady")}),
        ((BACKUP,), "", {"Ready": ("False", "DependentFailed"), "Stalled": ("True", "DependentFailed")}),
        ((NEW,), "", {"Ready": ("Unknown", "DependentsUnknown"), "Reconciling": ("True", "DependentsUnknown")}),
    ],
)
def test_unknown_is_neither_ready_nor_failed(unready: Any, unknown: str, expected: dict[str, tuple[str, str]]) -> None:
    conditions = readiness(unready, "ns", unknown).conditions

    def brief(condition: Condition) -> tuple[str, str]:
        return condition["status"], condition["reason"]

    assert {kind: brief(condition) for kind, condition in conditions.items() if condition} == expected


def pod(state: Any = None, last: Any = None, *, created: str = "1", restarts: int = 0, **status: Any) -> dict[str, Any]:
    container = {"name": "db", "ready": False, "restartCount": restarts, "state": state or {}, "lastState": last or {}}
    return {
        "metadata": {"creationTimestamp": created},
        "spec": {
            "initContainers": [{"name": "init", "image": "busybox"}],
            "containers": [{"name": "db", "image": "a/b"}],
        },
        "status": {"containerStatuses": [container], **status},
    }


CRASHED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
PULL = {"waiting": {"reason": "ErrImagePull", "message": "rpc error: 12345"}}
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ([], ""),
        ([pod({"waiting": {"reason": "ContainerCreating"}})], ""),
        ([pod({"running": {}})], ""),
        ([pod(PULL)], "ImagePullBackOff a/b"),
        ([pod({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}})], "ImagePullBackOff a/b"),
        ([pod({"waiting": {"reason": "ErrImageNeverPull"}})], "ErrImageNeverPull a/b"),
        (
            [pod({"waiting": {"reason": "CrashLoopBackOff"}}, CRASHED, restarts=3)],
            "CrashLoopBackOff: container db ended with exit code 137 (OOMKilled)",
        ),
        (
            [pod({"running": {}}, CRASHED, restarts=3)],
            "CrashLoopBackOff: container db ended with exit code 137 (OOMKilled)",
        ),
        ([pod({"terminated": {"exitCode": 1, "reason": "Error"}})], "container db ended with exit code 1"),
        ([pod({"terminated": {"exitCode": 0, "reason": "Completed"}})], ""),
        (
            [pod({"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}})],
            'CreateContainerConfigError: secret "x" not found',
        ),
        ([pod({"waiting": {"reason": "RunContainerError", "message": "--password=x"}})], "RunContainerError"),
        ([pod(conditions=[UNSCHEDULED])], "Unschedulable: 0/1 nodes"),
        ([pod(reason="Evicted", message="low on memory")], "Evicted: low on memory"),
        (
            [pod(initContainerStatuses=[{"name": "init", "state": {"waiting": {"reason": "ImagePullBackOff"}}}])],
            "ImagePullBackOff busybox",
        ),
        ([pod(PULL, created="1"), pod(conditions=[UNSCHEDULED], created="2")], "Unschedulable: 0/1 nodes"),
        ([pod(PULL), pod({"running": {}}, created="2")], "ImagePullBackOff a/b"),
        ([pod(conditions=[{**UNSCHEDULED, "message": "x" * 1000}])], f"Unschedulable: {'x' * 184}…"),
        ([{"metadata": "odd", "spec": "odd", "status": {"containerStatuses": [{"state": "odd"}, "odd"]}}], ""),
    ],
)
def test_the_newest_pod_with_a_reason_explains_a_workload(pods: list[dict[str, Any]], reason: str) -> None:
    assert reason_of(pods) == reason


def test_labels_and_expressions_select_the_pods_of_a_workload() -> None:
    expressions = [{"key": "a", "operator": "In", "values": ["1", "2"]}, {"key": "b", "operator": "Exists"}]
    selector = {"matchLabels": {"app": "forge"}, "matchExpressions": expressions}
    assert selector_of({"spec": {"selector": selector}}) == "a in (1,2),app=forge,b"
    assert selector_of({"spec": "odd"}) == ""


@pytest.mark.parametrize(
    ("writes", "seconds"),
    [((), 0), ((1,), 0), ((1, 2), 26), ((1, 4, 4), 29), ((-100, 4), 0), ((-30, -26), 0), ((-25, 4), 0), ((-24, 4), 1)],
)
def test_a_few_writes_are_at_once_and_those_of_a_flapping_object_later(
    writes: tuple[float, ...], seconds: float
) -> None:
    assert pause(writes, (2, 30.0), 5) == seconds
