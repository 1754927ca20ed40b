"""State of a run's pod, with the reason why it does not start or why it ended, for statuses. Pure.

Sources: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ and
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.engines.pod.jobs import CONTAINER
from runner.values.objects import is_deleting, metadata

_NO_IMAGE = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
_NO_CONTAINER = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_LOST = {"DeletionByTaintManager", "DeletionByPodGC"}
"""Reasons of a node that is lost."""
_EVICTED = "Evicted"
"""Reason of a pod that the kubelet ended because the node, or the pod's own limit, lacks memory or disk space."""
_DISRUPTIONS = {
    "EvictionByEvictionAPI": "it was evicted, as when its node is drained",
    "PreemptionByScheduler": "a pod with a higher priority took its place",
}


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that a run waits for its pod."""

    start: float = 600.0
    """For a pod that waits, as for a node."""
    broken: float = 20.0
    """For a pod that cannot be started as it is: an image may become available."""
    connect: float = 120.0
    """For the agent of a running pod."""
    assigned: float = 30.0
    """For the agent of a warm pod that got a run."""
    silent: float = 300.0
    """For an agent that was connected."""
    lost: float = 40.0
    """For a pod whose node is not ready."""
    ended: float = 5.0
    """For the last lines of a pod that has ended."""
    gone: float = 10.0
    """For the last lines of a pod that was deleted."""
    node: float = 3.0
    """For the node of a pod, with a worker of the operator. Afterwards, the run waits without one."""
    renewal: float = 15.0
    """For a pod that is refused, as by a quota, until its Job is created again."""
    finalizer: float = 30.0
    """For the pod of a finalizer that is refused in the namespace of the resource. It then moves to another one."""
    pod: float = 10.0
    """For the pod of a Job that reports no reason, with a worker of the operator."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Reason why a run does not continue: a failure, or a pod that was lost."""

    text: str = ""
    """Why the run failed, as the end of a sentence."""
    lost: str = ""
    """Why the pod was lost, as the end of a sentence."""
    waits: str = ""
    """Why the run waits for its pod without a worker, as the end of a sentence. Nothing was executed yet."""
    is_refused: bool = False
    """True if Kubernetes refuses to create the pod, for which the run waits."""
    has_log: bool = False
    """True if the pod's log can explain the failure, and Ansible does not run in the pod."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Reason why a run makes no progress, the seconds that it can last, and the fault after that time."""

    name: str
    patience: float
    fault: Fault


@dataclass(frozen=True, slots=True)
class PodState:
    """State of a run's pod."""

    name: str
    node: str = ""
    waits: str = ""
    """Why it does not start yet, as the end of a sentence; empty if it runs."""
    broken: str = ""
    """Why it cannot start as it is, as the end of a sentence."""
    ended: str = ""
    """Why it ended, as the end of a sentence; empty before that."""
    lost: str = ""
    """Why it does not continue although nothing in it failed, as the end of a sentence."""
    has_others: bool = False
    """True if other containers run, such as an injected sidecar. They keep the pod running after the agent's end."""

    @property
    def is_starting(self) -> bool:
        """True if its container has not started yet."""
        return bool(self.waits or self.broken)


class ObstacleTimer:
    """Measures how long a pod has had its obstacle."""

    def __init__(self, since: float, name: str = "") -> None:
        """`name`: the obstacle that it has had since then."""
        self._since, self._name = since, name

    def fault(self, current: Obstacle | None, now: float) -> Fault | None:
        """Return the fault of an obstacle that has lasted longer than its patience."""
        name = current.name if current is not None else ""
        if name != self._name:
            self._since, self._name = now, name
        return current.fault if current is not None and now - self._since >= current.patience else None


def obstacle(
    state: PodState | None, wait: Patience, *, known: bool, is_connected: bool, was_connected: bool
) -> Obstacle | None:
    """Return the reason why a pod makes no progress; None if it does. `known`: there was a pod."""
    if state is None or state.is_starting or state.ended:
        return obstacle_of_pod(state, wait, known=known)
    if is_connected:
        return None
    if state.lost:
        return Obstacle("lost", wait.lost, Fault(lost=state.lost))
    return obstacle_of_agent(state, wait, was_connected=was_connected)


def obstacle_of_pod(state: PodState | None, wait: Patience, *, known: bool) -> Obstacle:
    """Return the obstacle of a run whose container does not run. `known`: there was a pod."""
    if state is None and known:
        return Obstacle("gone", wait.gone, Fault(lost="it was deleted"))
    if state is None:
        return Obstacle("absent", wait.start, Fault("the Job of the run has created no pod"))
    if state.ended:
        text = f"the pod {state.name} of the run ended: {state.ended},"
        return Obstacle("ended", wait.ended, Fault(text, has_log=True))
    if state.broken:
        return Obstacle("broken", wait.broken, Fault(f"the pod {state.name} cannot start: {state.broken},"))
    return Obstacle("waiting", wait.start, Fault(f"the pod {state.name} did not start: {state.waits},"))


def without_node(state: PodState | None, wait: Patience, refusal: str) -> Obstacle | None:
    """Return the obstacle of a pod that has no node yet; None if it has one. `refusal`: why there is no pod."""
    if state is None:
        why = f"the pod cannot be created: {refusal}" if refusal else "the Job of the run has created no pod"
        return Obstacle(
            "refused" if refusal else "absent", 0.0 if refusal else wait.pod, Fault(waits=why, is_refused=bool(refusal))
        )
    if state.node or not state.waits:
        return None
    return Obstacle("no node", wait.node, Fault(waits=f"the pod {state.name} has no node: {state.waits}"))


def obstacle_of_agent(state: PodState, wait: Patience, *, was_connected: bool) -> Obstacle:
    """Return the obstacle of a run whose container runs, and whose agent is not connected."""
    if was_connected:
        return Obstacle("silent", wait.silent, Fault(f"the connection to the pod {state.name} was lost"))
    advice = "check that NetworkPolicies let it reach the operator"
    text = f"the agent in the pod {state.name} did not connect ({advice})"
    return Obstacle("unreached", wait.connect, Fault(text, has_log=True))


def of(pod: Mapping[str, Any]) -> PodState:
    """Return the state of a pod."""
    status = pod.get("status") or {}
    phase = status.get("phase")
    name, node = str(metadata(pod).get("name", "")), str((pod.get("spec") or {}).get("nodeName") or "")
    containers = status.get("containerStatuses") or []
    container: dict[str, Any] = next((item for item in containers if item.get("name") == CONTAINER), {})
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or []}
    lost = _lost(conditions, node, status)
    if lost:
        return PodState(name, node, lost=lost)
    if phase in {"Failed", "Succeeded"}:
        return PodState(name, node, ended=_end(pod, status, container))
    if phase == "Running":
        lost = "it is being deleted" if is_deleting(pod) else ""
        others = any("running" in (other.get("state") or {}) for other in containers if other.get("name") != CONTAINER)
        has_ended = not lost and "terminated" in (container.get("state") or {})
        return PodState(name, node, "", "", _end(pod, status, container) if has_ended else "", lost, others)
    broken = _broken(container)
    return PodState(name, node, waits="" if broken else _waits(conditions, node), broken=broken)


def _lost(conditions: Mapping[Any, Mapping[str, Any]], node: str, status: Mapping[str, Any]) -> str:
    disrupted = conditions.get("DisruptionTarget") or {}
    if disrupted.get("status") == "True":
        reason = str(disrupted.get("reason", ""))
        if reason in _LOST:
            return f"its node {node} was lost"
        if reason in _DISRUPTIONS:
            return _DISRUPTIONS[reason]
        if reason == "TerminationByKubelet" and status.get("reason") != _EVICTED:
            return f"the kubelet of the node {node} ended it: {_said(status) or status.get('reason')}"
    # If a node is not ready, the control plane sets this condition of its pods without a reason, and no other one.
    ready, containers = (conditions.get(name, {}).get("status") for name in ("Ready", "ContainersReady"))
    return f"its node {node} is not ready" if (ready, containers) == ("False", "True") else ""


def _broken(container: Mapping[str, Any]) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason, message = str(waiting.get("reason", "")), _said(waiting)
    if reason in _NO_IMAGE:
        return f"its image {container.get('image', '')} cannot be pulled: {message or reason}"
    return f"its container cannot be started: {message or reason}" if reason in _NO_CONTAINER else ""


def _waits(conditions: Mapping[Any, Mapping[str, Any]], node: str) -> str:
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False":
        return f"it cannot be scheduled: {_said(scheduled) or scheduled.get('reason')}"
    return f"it is being started on node {node}" if node else "it is not scheduled yet"


def _end(pod: Mapping[str, Any], status: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    reason, message = str(status.get("reason") or ""), _said(status)
    if reason == _EVICTED:
        return f"it was evicted: {message}"
    if reason == "DeadlineExceeded":
        return "it ran longer than the activeDeadlineSeconds of its Job"
    ended = (container.get("state") or {}).get("terminated") or {}
    if ended.get("reason") == "OOMKilled":
        return f"the kernel killed it because it used more memory than {memory_limit(pod)}"
    told = (_said(ended) or message)[-500:]
    code = ended.get("exitCode")
    how = "it ended without a result" if code is None else f"its container ended with exit code {code}"
    return f"{how}; the last it said: {told}" if told else how


def _said(part: Mapping[str, Any]) -> str:
    """Return the message of a part of a status without its final dot, because it becomes part of a sentence."""
    return str(part.get("message") or "").strip().rstrip(".")


def memory_limit(pod: Mapping[str, Any]) -> str:
    """Return the memory limit of the container for a message."""
    containers = (pod.get("spec") or {}).get("containers") or []
    container: dict[str, Any] = next((item for item in containers if item.get("name") == CONTAINER), {})
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    return f"its limit of {limit}; raise podTemplate.resources.limits.memory" if limit else "the node had"
