"""Health of an object by its status, with the rules of kstatus for workloads, pods and claims. Pure.

An object of another kind is in progress until its controller has observed the latest spec, and otherwise ready. A
Job is ready when it is complete, or suspended. Unknown is neither ready nor failed.
Source: https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from runner.values.objects import GVK, mapping, maps, metadata

KindName: TypeAlias = tuple[str, str]
"""Group and kind."""
_NOT_OBSERVED = "its controller has not observed the latest spec yet"


class HealthState(IntEnum):
    """States, from the worst to the best."""

    FAILED = 0
    IN_PROGRESS = 1
    UNKNOWN = 2
    READY = 3


class Health(NamedTuple):
    """State of an object, and why it is not ready."""

    state: HealthState
    message: str = ""
    """Without a final dot, such as `0 of 2 ready`; empty if it is ready."""


READY = Health(HealthState.READY)
NOT_OBSERVED = Health(HealthState.IN_PROGRESS, _NOT_OBSERVED)
_FAILURES = (("Progressing", "False", HealthState.FAILED), ("ReplicaFailure", "True", HealthState.IN_PROGRESS))
"""Conditions of workloads that contain a failure, with the status that does."""
UNREAD = Health(HealthState.UNKNOWN, "its status is not read yet")


def health(obj: Mapping[str, Any], gvk: GVK | None = None, *, uses_generation: bool = True) -> Health:
    """Return the health of an object. `gvk` is needed for items of a list, which do not contain it.

    `uses_generation` is True if the generation follows the spec. Otherwise each write of the status raises it.
    """
    gvk = gvk or GVK.of(obj)
    kind, status = (gvk.group, gvk.kind), mapping(obj.get("status"))
    rule = _RULES.get(kind)
    if uses_generation and is_behind(obj):
        return NOT_OBSERVED
    if rule is None:
        return READY
    if not status:
        return Health(HealthState.UNKNOWN, "it has no status yet")
    verdict = rule(mapping(obj.get("spec")), status)
    if verdict == READY and kind in _OBSERVING and "observedGeneration" not in status:
        return Health(HealthState.UNKNOWN, _NOT_OBSERVED)
    return verdict


def is_behind(obj: Mapping[str, Any]) -> bool:
    """Return True if the status contains that its controller has not observed the latest spec."""
    observed = mapping(obj.get("status")).get("observedGeneration")
    return isinstance(observed, int) and observed != metadata(obj).get("generation")


def _replicas(
    spec: Mapping[str, Any], status: Mapping[str, Any], *, updated: int | None = None, has_available: bool = True
) -> Health:
    """Compare numbers of replicas with the desired one. `updated`: number that must be updated; None: no rule."""
    desired, ready = number(spec.get("replicas", 1)), number(status.get("readyReplicas"))
    for name, bad, state in _FAILURES:
        condition = _condition(status, name)
        if condition.get("status") == bad:
            return Health(state, f"{ready} of {desired} ready: {_reason(condition)}")
    counts = [(ready, desired, "ready")]
    if updated is not None:
        counts.append((number(status.get("updatedReplicas")), updated, "updated"))
    if has_available:
        counts.append((number(status.get("availableReplicas")), desired, "available"))
    total = number(status.get("replicas"))
    return _least(counts) or (READY if total == desired else _progress(f"{total} replicas, and {desired} desired"))


def _least(counts: Iterable[tuple[int, int, str]]) -> Health | None:
    """Return the state for the first of these numbers that is less than the desired one; None if none is."""
    low = (f"{number} of {desired} {word}" for number, desired, word in counts if number < desired)
    return next(map(_progress, low), None)


def _progress(message: str) -> Health:
    return Health(HealthState.IN_PROGRESS, message)


def _deployment(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Health:
    return _replicas(spec, status, updated=number(spec.get("replicas", 1)))


def _stateful_set(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Health:
    """Ignore the replicas that the update strategy does not update."""
    strategy = mapping(spec.get("updateStrategy"))
    partition = number(mapping(strategy.get("rollingUpdate")).get("partition"))
    updated = None if strategy.get("type") == "OnDelete" else number(spec.get("replicas", 1)) - partition
    return _replicas(spec, status, updated=updated, has_available=False)


def _daemon_set(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Health:
    desired = number(status.get("desiredNumberScheduled"))
    names = {"numberReady": "ready", "currentNumberScheduled": "scheduled", "numberAvailable": "available"}
    if mapping(spec.get("updateStrategy")).get("type") != "OnDelete":
        names["updatedNumberScheduled"] = "updated"
    if "desiredNumberScheduled" not in status:
        return NOT_OBSERVED
    return _least((number(status.get(name)), desired, word) for name, word in names.items()) or READY


def _job(_spec: Mapping[str, Any], status: Mapping[str, Any]) -> Health:
    failed = _condition(status, "Failed")
    if failed.get("status") == "True":
        return Health(HealthState.FAILED, f"failed: {_reason(failed)}")
    if any(_condition(status, name).get("status") == "True" for name in ("Complete", "Suspended")):
        return READY
    pods = number(status.get("failed"))
    return _progress("not complete" + (f", {pods} pods failed" if pods else ""))


def _claim(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Health:
    phase = str(status.get("phase", "Pending"))
    if phase == "Bound":
        return READY
    state = HealthState.FAILED if phase == "Lost" else HealthState.IN_PROGRESS
    return Health(state, phase if spec.get("storageClassName") else f"{phase}, and it has no storage class")


def _pod(_spec: Mapping[str, Any], status: Mapping[str, Any]) -> Health:
    phase = str(status.get("phase", "Pending"))
    if phase == "Succeeded" or (phase == "Running" and _condition(status, "Ready").get("status") == "True"):
        return READY
    return Health(HealthState.FAILED if phase == "Failed" else HealthState.IN_PROGRESS, phase)


_RULES: Mapping[KindName, Callable[[Mapping[str, Any], Mapping[str, Any]], Health]] = {
    ("", "PersistentVolumeClaim"): _claim,
    ("batch", "Job"): _job,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "ReplicaSet"): _replicas,
    ("", "ReplicationController"): _replicas,
    ("", "Pod"): _pod,
}
_OBSERVING = {kind for kind in _RULES if kind[0] == "apps"}
"""Kinds whose controllers write the observed generation."""


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((item for item in maps(status.get("conditions")) if item.get("type") == kind), {})


def _reason(condition: Mapping[str, Any]) -> str:
    return ": ".join(str(part) for part in (condition.get("reason"), condition.get("message")) if part)


def number(value: Any) -> int:
    """Return a number of a status; 0 if it has none."""
    return value if isinstance(value, int) else 0
