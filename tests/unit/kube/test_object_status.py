"""Which part of a status means something to an owner, and the health of workloads, claims and pods."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.kube.health import HealthState, health, is_behind
from runner.core.kube.object_state import MOST, ObjectStatus, changed_fields, differing, fingerprint, meaningful

TIME = "2026-01-01T00:00:00Z"


def obj(api: str, kind: str, status: Any, *, generation: int = 1, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"generation": generation}, "spec": spec, "status": status}


def deployment(ready: int, replicas: int = 3, *, generation: int = 1, observed: int = 1, **more: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("replicas", "updatedReplicas"), replicas)
    counts |= dict.fromkeys(("readyReplicas", "availableReplicas"), ready) if ready else {}
    status = {"observedGeneration": observed, **counts, **more}
    return obj("apps/v1", "Deployment", status, generation=generation, replicas=replicas)


def status_of(found: dict[str, Any], *, uses_generation: bool = True) -> ObjectStatus:
    return ObjectStatus.of(found, uses_generation=uses_generation)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"lastScaleTime": TIME}, {"lastScaleTime": "2026-01-02T00:00:00Z"}),
        ({"since": TIME}, {"since": "2026-01-02T00:00:00+01:00"}),
        ({"last_update_time": 1}, {"last_update_time": 2}),
        ({"conditions": [{"type": "A", "lastProbeTime": None, "message": "1"}]}, {"conditions": [{"type": "A"}]}),
        ({"conditions": [{"type": "A", "lastHeartbeatTime": TIME}]}, {"conditions": [{"type": "A"}]}),
        ({"conditions": [{"type": "A"}, {"type": "B"}]}, {"conditions": [{"type": "B"}, {"type": "A"}]}),
        ({"message": "1 of 3"}, {"message": "2 of 3"}),
        ({"currentMetrics": [{"resource": {"current": {"averageUtilization": 3}}}]}, {}),
        ({"hard": {"pods": "9"}, "used": {"pods": "1"}}, {"hard": {"pods": "9"}, "used": {"pods": "2"}}),
        ({"collisionCount": 1, "restartCount": 2, "terminatingReplicas": 1}, {}),
        ({"observedResourceVersion": "4"}, {"observedResourceVersion": "5"}),
        (None, {"conditions": [], "loadBalancer": {"lastTime": TIME}}),
    ],
)
def test_times_messages_probes_usage_and_counters_mean_nothing(old: Any, new: Any) -> None:
    first, second = (status_of(obj("example.com/v1", "Thing", status)) for status in (old, new))
    assert first.meaning == second.meaning
    assert first.every != second.every


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"phase": "Pending"}, {"phase": "Running"}),
        ({"conditions": [{"type": "A", "status": "True"}]}, {"conditions": [{"type": "A", "status": "False"}]}),
        ({"conditions": [{"type": "A", "reason": "B"}]}, {"conditions": [{"type": "A", "reason": "C"}]}),
        ({"readyReplicas": 1}, {"readyReplicas": 2}),
        ({"succeeded": 1}, {"succeeded": 1, "failed": 1}),
        ({"loadBalancer": {}}, {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}),
        ({"podIP": "192.0.2.1"}, {"podIP": "192.0.2.2"}),
        ({"boundVolumeSnapshotContentName": ""}, {"boundVolumeSnapshotContentName": "c"}),
        ({"members": 1, "runtime": "a"}, {"members": 1, "runtime": "b"}),
        ({}, {"something": {"new": [1]}}),
        (None, {"phase": ""}),
        ("text", "other"),
    ],
)
def test_phases_conditions_counts_addresses_names_and_unknown_fields_mean_something(old: Any, new: Any) -> None:
    first, second = (status_of(obj("example.com/v1", "Thing", status)) for status in (old, new))
    assert first.meaning != second.meaning


def test_a_controller_that_observes_the_latest_spec_means_something() -> None:
    behind, current, later = (
        status_of(obj("example.com/v1", "Thing", {"observedGeneration": seen}, generation=latest))
        for seen, latest in ((1, 2), (2, 2), (3, 3))
    )
    assert behind.is_rolling
    assert not current.is_rolling
    assert behind.meaning != current.meaning == later.meaning


def test_a_generation_that_each_write_of_the_status_raises_shows_nothing() -> None:
    found = obj("example.com/v1", "Thing", {"observedGeneration": 1}, generation=2)
    assert not status_of(found, uses_generation=False).is_rolling


def test_conditions_are_sorted_and_a_deep_status_has_an_end() -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = {"a": deep}
    assert meaningful({"conditions": [{"type": "B"}, {"type": "A"}]}) == {"conditions": [{"type": "A"}, {"type": "B"}]}
    assert meaningful(deep) == deep


@pytest.mark.parametrize("large", [{str(number): number for number in range(9000)}, {"texts": ["x" * 1000] * 70}])
def test_all_of_a_large_status_means_something_because_a_tenant_may_not_hold_the_event_loop(large: Any) -> None:
    status = {**large, "lastProbeTime": "2026-01-01T00:00:00Z"}
    assert meaningful(status) is status


@pytest.mark.parametrize(
    ("found", "rolls"),
    [
        (deployment(2), True),
        (deployment(3), False),
        (obj("apps/v1", "Deployment", {}), True),
        (obj("apps/v1", "Deployment", "odd", replicas=0), True),
        (obj("v1", "Pod", {}), True),
        (obj("v1", "Pod", {"phase": "Failed"}), False),
        (obj("apps/v1", "Deployment", {"replicas": 0}, replicas=0), False),
        (deployment(2, conditions=[{"type": "Progressing", "status": "False"}]), False),
        (obj("v1", "Service", {"loadBalancer": {}}), False),
    ],
)
def test_a_rollout_is_in_progress_while_the_health_is_or_there_is_no_status_yet(
    found: dict[str, Any], *, rolls: bool
) -> None:
    assert status_of(found).is_rolling is rolls


def steps(*objects: dict[str, Any]) -> list[bool]:
    """Return for each state after the first whether it is a step of a rollout that is not complete."""
    old: ObjectStatus | None = None
    found = []
    for each in objects:
        new = status_of(each).after(old)
        found.append(new.is_progress(old))
        old = new
    return found[1:]


def test_each_step_of_a_rollout_but_the_last_is_progress() -> None:
    assert steps(deployment(0), deployment(1), deployment(2), deployment(3)) == [True, True, False]


def test_a_new_spec_begins_a_rollout() -> None:
    before = deployment(1, 1)
    behind = deployment(1, 3, generation=2)
    rest = [deployment(ready, 3, generation=2, observed=2) for ready in (1, 2, 3)]
    assert steps(before, behind, *rest) == [True, True, True, False]


def test_each_loss_of_a_replica_is_no_progress_and_each_step_of_the_recovery_is() -> None:
    lost = [deployment(ready) for ready in (2, 1)]
    assert steps(deployment(3), *lost, deployment(2), deployment(3)) == [False, False, True, False]


def test_a_replica_that_is_lost_during_a_rollout_is_progress() -> None:
    assert steps(deployment(0), deployment(2), deployment(1), deployment(3)) == [True, True, False]


def test_a_pod_that_is_not_ready_any_more_is_no_progress() -> None:
    ready, waits = (
        obj("v1", "Pod", {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]})
        for status in ("True", "False")
    )
    assert steps(waits, ready, waits, ready) == [False, False, False]


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        ({"size": 1}, {"size": 2}, ("spec.size",)),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3, "d": 4}}, ("spec.a.c", "spec.a.d")),
        ({"a": {"b": 1}}, {"a": [1]}, ("spec.a",)),
        ({"list": [{"a": 1}]}, {"list": [{"a": 2}]}, ("spec.list",)),
        ({"gone": None, "b": 1}, {"b": 1}, ()),
        ({"size": 1}, {"size": 1}, ()),
    ],
)
def test_each_field_that_changed_is_named_by_its_path(old: Any, new: Any, fields: tuple[str, ...]) -> None:
    assert changed_fields({"spec": old}, {"spec": new}) == fields


def test_content_outside_of_a_spec_counts_but_metadata_and_status_do_not() -> None:
    old = {"kind": "Secret", "metadata": {"labels": {"a": "1"}}, "data": {"password": "eA=="}, "status": {"a": 1}}
    new = {"kind": "Secret", "metadata": {}, "data": {"password": "eQ=="}, "status": {"a": 2}, "type": "Opaque"}
    assert changed_fields(old, new) == ("data.password", "type")


def test_only_the_first_of_many_changed_fields_are_named() -> None:
    many = {f"f{number:03}": number for number in range(100)}
    fields = changed_fields({"spec": {}}, {"spec": many})
    assert len(fields) == MOST + 1
    assert fields[-1] == "and more"


def test_a_long_key_is_not_repeated_in_the_path_of_each_field_below_it() -> None:
    old = {"spec": {"x" * 10_000: {f"k{number}": 1 for number in range(50)}}}
    new = {"spec": {"x" * 10_000: {f"k{number}": 2 for number in range(50)}}}
    assert max(map(len, changed_fields(old, new))) < 300
    assert max(map(len, fingerprint(new))) < 300
    assert len(differing(fingerprint(old), fingerprint(new))) == 50


def test_fields_whose_long_names_differ_only_at_the_end_are_two_fields() -> None:
    content = {"spec": {"x" * 1000 + "a": 1, "x" * 1000 + "b": 1}}
    assert len(fingerprint(content)) == 2


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
