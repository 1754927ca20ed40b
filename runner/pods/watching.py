"""Watch of the pods of runs, and the state of each by the run's name."""

from __future__ import annotations

from collections.abc import Sequence

from runner.kube.cache import Change
from runner.kube.client import Client, Selection
from runner.kube.discovery import Discovery
from runner.kube.informer import Informer
from runner.objects import GVK, ObjectKey, metadata
from runner.pods import jobs, states
from runner.pods.states import PodState

_POD = GVK("", "v1", "Pod")


class PodWatch:
    """The pods of all runs in the watched namespaces, and all warm pods."""

    def __init__(self, client: Client, discovery: Discovery, namespaces: Sequence[str]) -> None:
        self._informer = Informer(client, discovery, _POD, namespaces, Selection(labels=jobs.RUN), "")
        self._states: dict[str, PodState] = {}
        self._runs: dict[ObjectKey, str] = {}
        self._warm: dict[str, str] = {}
        """Kinds of warm pods without a run, by name."""
        self._of: dict[str, str] = {}
        """UIDs of the resources of warm pods with a run, by the pod's name, oldest first."""

    @property
    def is_synced(self) -> bool:
        """True if all existing pods are in the cache."""
        return self._informer.synced.is_set()

    def state(self, run: str) -> PodState | None:
        """Return the state of the pod of a run or of a warm pod; None if there is no pod."""
        return self._states.get(run)

    def phases(self) -> dict[str, int]:
        """Return the number of pods by phase: `waiting`, `running`, `ended`, `idle` (warm pods without a run)."""
        found = dict.fromkeys(("waiting", "running", "ended", "idle"), 0)
        for name, state in self._states.items():
            begun = "idle" if name in self._warm else "running"
            found["ended" if state.ended or state.lost else "waiting" if state.is_starting else begun] += 1
        return found

    def starting_warm(self, kind: str) -> set[str]:
        """Return the names of the warm pods of a kind that have not started."""
        label = jobs.warm_label(kind)
        return {name for name, of in self._warm.items() if of == label and self._states[name].is_starting}

    def ended_warm(self, uid: str) -> list[str]:
        """Return the names of the warm pods that have ended after a run of a resource, oldest first."""
        return [name for name, of in self._of.items() if of == uid and self._states[name].ended]

    async def follow(self) -> None:
        """Watch until canceled."""
        await self._informer.follow(self._changed)

    def problem(self) -> str | None:
        """Return why the pods are not watched; None if they are."""
        return self._informer.problem()

    def _changed(self, change: Change) -> None:
        pod = self._informer.get(change.key) if change.new is not None else None
        if pod is None:
            run = self._runs.pop(change.key, "")
            self._states.pop(run, None)
            self._warm.pop(run, None)
            self._of.pop(run, None)
            return
        labels: dict[str, str] = metadata(pod).get("labels") or {}
        run = labels.get(jobs.RUN, "")
        self._runs[change.key] = run
        self._states[run] = states.of(pod)
        if jobs.WARM in labels and jobs.RUN_OF not in labels:
            self._warm[run] = labels[jobs.WARM]
        elif jobs.WARM in labels:
            self._warm.pop(run, None)
            self._of[run] = labels[jobs.RUN_OF]
