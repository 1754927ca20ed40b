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
    """The pods of all runs in the watched namespaces."""

    def __init__(self, client: Client, discovery: Discovery, namespaces: Sequence[str]) -> None:
        self._informer = Informer(client, discovery, _POD, namespaces, Selection(labels=jobs.RUN), "")
        self._states: dict[str, PodState] = {}
        self._runs: dict[ObjectKey, str] = {}

    @property
    def is_synced(self) -> bool:
        """True if all existing pods are in the cache."""
        return self._informer.synced.is_set()

    def state(self, run: str) -> PodState | None:
        """Return the state of a run's pod; None if there is no pod."""
        return self._states.get(run)

    def phases(self) -> dict[str, int]:
        """Return the number of pods by phase: `waiting`, `running`, `ended`."""
        found = dict.fromkeys(("waiting", "running", "ended"), 0)
        for state in self._states.values():
            phase = "ended" if state.ended or state.lost else "waiting" if state.waits or state.broken else "running"
            found[phase] += 1
        return found

    async def follow(self) -> None:
        """Watch until canceled."""
        await self._informer.follow(self._changed)

    def problem(self) -> str | None:
        """Return why the pods are not watched; None if they are."""
        return self._informer.problem()

    def _changed(self, change: Change) -> None:
        pod = self._informer.get(change.key) if change.new is not None else None
        if pod is None:
            self._states.pop(self._runs.pop(change.key, ""), None)
            return
        run = str((metadata(pod).get("labels") or {}).get(jobs.RUN, ""))
        self._runs[change.key] = run
        self._states[run] = states.of(pod)
