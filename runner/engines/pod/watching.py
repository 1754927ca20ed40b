"""Watch of the pods of runs, and the state of each by its Job.

Labels alone identify no pod, because a tenant can copy them. A pod counts only if the Job that its label names controls
it, and warm pods are only in the operator's own namespace. Of each pod, only what `states` reads is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runner.core.kube.cache import Change
from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import Discovery
from runner.core.kube.informer import Informer
from runner.engines.pod import jobs, states
from runner.engines.pod.states import PodState
from runner.values.objects import GVK, Object, ObjectKey, annotations_of, labels_of, metadata, references_of, type_name

_POD = GVK("", "v1", "Pod")
_LONGEST_OWNER = 1000


@dataclass(frozen=True, slots=True)
class _Pod:
    key: ObjectKey
    state: PodState
    warm_of: str
    """Kind of a warm pod; empty for other pods."""
    run_of: str
    """UID of the resource whose run the pod has; empty for a warm pod without a run."""
    owner: str
    """That resource as `type/namespace/name`; empty for other pods than warm ones."""

    @property
    def is_idle(self) -> bool:
        return bool(self.warm_of and not self.run_of)


class PodWatch:
    """The pods of all runs in the watched namespaces, and all warm pods in `own_namespace`."""

    def __init__(self, client: Client, discovery: Discovery, namespaces: Sequence[str], own_namespace: str) -> None:
        self._informer = Informer(client, discovery, _POD, namespaces, Selection(labels=jobs.RUN), "", kept)
        self._own_namespace = own_namespace
        self._pods: dict[ObjectKey, _Pod] = {}
        """Pods by their Job, in the order of their last change."""
        self._jobs: dict[ObjectKey, ObjectKey] = {}
        """Jobs by their pod."""

    def is_known(self, namespace: str) -> bool:
        """Return True if all existing pods of a namespace are in the cache, so that a missing one does not exist."""
        return self._informer.unknown(namespace) is None

    def state(self, job: ObjectKey) -> PodState | None:
        """Return the state of the pod of a run's or warm pod's Job; None if there is no pod."""
        pod = self._pods.get(job)
        return pod.state if pod is not None else None

    def phases(self) -> dict[str, int]:
        """Return the number of pods by phase: `waiting`, `running`, `ended`, `idle` (warm pods without a run)."""
        counts = dict.fromkeys(("waiting", "running", "ended", "idle"), 0)
        for pod in self._pods.values():
            state, begun = pod.state, "idle" if pod.is_idle else "running"
            counts["ended" if state.ended or state.lost else "waiting" if state.is_starting else begun] += 1
        return counts

    def starting_warm(self, kind: str) -> set[str]:
        """Return the names of the warm pods of a kind that have not started."""
        label = jobs.warm_label(kind)
        return {name for name, pod in self._warm() if pod.is_idle and pod.warm_of == label and pod.state.is_starting}

    def ended_warm(self, uid: str) -> list[str]:
        """Return the names of the warm pods that have ended after a run of a resource, oldest first."""
        return [name for name, pod in self._warm() if pod.run_of == uid and pod.state.ended]

    def ended_warm_of(self, gvk: GVK) -> Iterator[tuple[str, ObjectKey, str]]:
        """Yield the names of the warm pods that have ended after runs of a kind, with key and UID of the resource."""
        for name, pod in self._warm():
            kind, _, key = pod.owner.partition("/")
            if pod.state.ended and kind == type_name(gvk):
                namespace, _, owner = key.partition("/")
                yield name, ObjectKey(namespace, owner), pod.run_of

    def _warm(self) -> Iterator[tuple[str, _Pod]]:
        for job, pod in self._pods.items():
            if pod.warm_of and job.namespace == self._own_namespace:
                yield job.name, pod

    async def follow(self) -> None:
        """Watch until canceled."""
        await self._informer.follow(self._changed)

    def problem(self) -> str | None:
        """Return why the pods are not watched; None if they are."""
        return self._informer.problem()

    def _changed(self, change: Change) -> None:
        pod = self._informer.get(change.key) if change.new is not None else None
        job = jobs.job_of(pod) if pod is not None else None
        former = self._jobs.pop(change.key, None)
        if former is not None and (known := self._pods.get(former)) is not None and known.key == change.key:
            del self._pods[former]
        if pod is None or job is None:
            return
        labels = labels_of(pod)
        of, owner = labels.get(jobs.RUN_OF, ""), str(annotations_of(pod).get(jobs.RUN_OF, ""))
        self._jobs[change.key] = job
        self._pods.pop(job, None)
        self._pods[job] = _Pod(change.key, states.of(pod), labels.get(jobs.WARM, ""), of, owner)


def kept(pod: Object) -> Object:
    """Return the part of a pod to cache: a tenant can fill pods with labels of runs, and with megabytes."""
    meta, spec = metadata(pod), pod.get("spec") or {}
    about = {
        name: meta[name]
        for name in ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
        if name in meta
    }
    labels = {name: text for name, text in labels_of(pod).items() if name in {jobs.RUN, jobs.RUN_OF, jobs.WARM}}
    owner = str(annotations_of(pod).get(jobs.RUN_OF, ""))[:_LONGEST_OWNER]
    owners = [reference for reference in references_of(pod) if reference.get("controller")][:1]
    containers = [{name: item.get(name) for name in ("name", "resources")} for item in spec.get("containers") or ()]
    return {
        **{name: pod[name] for name in ("apiVersion", "kind", "status") if name in pod},
        "metadata": {**about, "labels": labels, "annotations": {jobs.RUN_OF: owner}, "ownerReferences": owners},
        "spec": {
            "nodeName": spec.get("nodeName"),
            "containers": [container for container in containers if container["name"] == jobs.CONTAINER],
        },
    }
