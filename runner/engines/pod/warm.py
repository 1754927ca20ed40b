"""Warm pods of one watch: idle agents with Ansible loaded. Each serves one run, and is replaced.

They are Jobs in the namespace of the operator, because the resource is not known yet. Each operator process uses only
those that it started, and an idle agent ends when that process is gone. So no pod gets two runs, and no operator
deletes a pod in which a run can be.

Promises: `take` returns an agent that is connected and has never had a run. A pod that does not start or that ends is
replaced after a delay, which doubles with each failure, up to five minutes. Each failure is logged.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from runner.base import log
from runner.engines.pod import jobs, states
from runner.engines.pod.fields import PodPolicy
from runner.engines.pod.idle import IdleLink
from runner.engines.pod.links import Links
from runner.engines.pod.records import Records
from runner.engines.pod.states import Fault, ObstacleTimer, Patience, PodState
from runner.engines.pod.watching import PodWatch
from runner.values.errors import ApiError, ApiUnavailableError
from runner.values.objects import Object, ObjectKey

_LOOK = 1.0
"""Seconds between two looks at the pods."""
_REFUSED_AFTER = 5.0
"""Seconds after which Kubernetes should have created a pod."""
_PATIENCE = Patience(silent=60.0)
_CLOSE = 5.0
"""Seconds for deletions when the operator stops."""
_FIRST_DELAY = 2.0
_LONGEST_DELAY = 300.0
_STABLE = 60.0
"""Seconds for which an agent must have been ready, so that earlier failures do not count any more."""
_LONGEST_PROBLEM = 500
"""Characters."""
_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class WarmTemplate:
    """The warm pods of a watch."""

    kind: str
    policy: PodPolicy
    files: Mapping[str, str]
    """Files of each run's order on which Ansible's options depend."""
    owners: Sequence[Object] = ()
    """Owner references: the object that owns the operator's pod, if it is known."""


@dataclass(slots=True)
class WarmPod:
    """A warm pod that has no run yet."""

    name: str
    link: IdleLink
    timer: ObstacleTimer
    created: float
    was_seen: bool = False
    ready_since: float | None = None


class WarmPods:
    """Warm pods of one watch."""

    def __init__(
        self, records: Records, links: Links, pods: PodWatch, template: WarmTemplate, leads: Callable[[], bool]
    ) -> None:
        """`leads` returns False while this replica has no resources."""
        self._records = records
        self._links = links
        self._pods = pods
        self._template = template
        self._leads = leads
        self._waiting: dict[str, WarmPod] = {}
        self._doomed: set[str] = set()
        """Names of Jobs to delete."""
        self._strays: dict[str, ObstacleTimer] = {}
        """Pods that an earlier operator created and that have not started."""
        self._wake = asyncio.Event()
        self._is_active = True
        self._clock = asyncio.get_running_loop().time
        self._failures = 0
        self._not_before = 0.0
        self._logged = log.Once()
        self.orphans: Callable[[], Iterable[str]] = tuple
        """Returns the names of ended warm pods whose resource is gone."""
        self.hits = 0
        """Number of runs that got a warm pod."""
        self.misses = 0
        """Number of runs for which no warm pod was ready."""
        self.failures = 0
        """Number of warm pods that ended, or did not start, without a run."""
        self.unused = 0
        """Number of runs in warm pods that did not use the loaded Ansible."""

    def take(self) -> WarmPod | None:
        """Return a pod whose agent is ready, which is replaced at once; None if there is none."""
        ready = next((pod for pod in self._waiting.values() if self._is_usable(pod)), None)
        if ready is None:
            self.misses += 1
            return None
        del self._waiting[ready.name]
        self.hits += 1
        self._failures = 0
        self._wake.set()
        return ready

    def _is_usable(self, pod: WarmPod) -> bool:
        state = self._state(pod.name)
        return pod.link.is_ready and not (state is not None and (state.lost or state.ended))

    def _state(self, name: str) -> PodState | None:
        return self._pods.state(self._key(name))

    def _key(self, name: str) -> ObjectKey:
        return ObjectKey(self._records.namespace, name)

    def preload_unused(self, reason: str) -> None:
        """Count a run in a warm pod that did not use the loaded Ansible."""
        self.unused += 1
        self._report(f"a run did not use the loaded Ansible: {reason}")

    def give_back(self, pod: WarmPod) -> None:
        """Keep a pod whose run did not begin."""
        self.hits -= 1
        self._waiting[pod.name] = pod

    async def follow(self) -> None:
        """Keep the number of warm pods until canceled."""
        while True:
            self._wake.clear()
            if self._pods.is_known(self._records.namespace):
                self._is_active = self._leads()
                self._check()
                await self._check_refusals()
                await self._delete()
                await self._create()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._wake.wait()

    async def close(self) -> None:
        """End all idle agents, and delete their pods as far as there is time."""
        for pod in list(self._waiting.values()):
            self._drop(pod)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE):
                await self._delete()

    def _check(self) -> None:
        now = self._clock()
        for pod in list(self._waiting.values()):
            fault = self._fault(pod, now)
            if fault is not None:
                self._failed(fault.text or f"the pod {pod.name} was lost: {fault.lost}")
                self._drop(pod)
            elif pod.link.is_ready:
                if pod.ready_since is None:
                    pod.ready_since = now
                    if pod.link.problem:
                        self._report(f"Ansible is not loaded in warm pods: {pod.link.problem}")
                    _log.info("A warm pod is ready", kind=self._template.kind, pod=pod.name)
                if now - pod.ready_since > _STABLE:
                    self._failures = 0
        for pod in list(self._waiting.values())[self._wanted :]:
            self._drop(pod)
        self._check_strays(now)
        self._doomed.update(self.orphans())

    async def _check_refusals(self) -> None:
        """Replace pods that Kubernetes does not create, such as one that a policy of the namespace forbids."""
        for pod in list(self._waiting.values()):
            if pod.was_seen or self._clock() - pod.created < _REFUSED_AFTER:
                continue
            if refusal := await self._records.refusal(self._key(pod.name)):
                self._failed(f"the pod cannot be created: {refusal}")
                self._drop(pod)

    @property
    def _wanted(self) -> int:
        return self._template.policy.warm if self._is_active else 0

    def _fault(self, pod: WarmPod, now: float) -> Fault | None:
        state = self._state(pod.name)
        pod.was_seen = pod.was_seen or state is not None
        link = pod.link
        obstacle = states.obstacle(
            state,
            _PATIENCE,
            known=pod.was_seen,
            is_connected=link.is_connected,
            was_connected=bool(link.connects),
        )
        return pod.timer.fault(obstacle, now)

    def _check_strays(self, now: float) -> None:
        """Doom pods of other operators that have not started for long. Without a start, there is no run in them."""
        starting = self._pods.starting_warm(self._template.kind) - set(self._waiting)
        self._strays = {name: self._strays.get(name) or ObstacleTimer(now) for name in starting}
        for name, timer in self._strays.items():
            if timer.fault(states.obstacle_of_pod(self._state(name), _PATIENCE, known=True), now) is not None:
                self._doomed.add(name)

    def _drop(self, pod: WarmPod) -> None:
        del self._waiting[pod.name]
        pod.link.dismiss()
        self._doomed.add(pod.name)

    def _failed(self, problem: str) -> None:
        delay = min(_FIRST_DELAY * 2**self._failures, _LONGEST_DELAY)
        self._failures = min(self._failures + 1, 30)
        self._not_before = self._clock() + delay
        self.failures += 1
        _log.warning(
            "A warm pod did not start or has ended; starting another one later",
            kind=self._template.kind,
            problem=problem,
            seconds=delay,
        )

    async def _delete(self) -> None:
        for name in list(self._doomed):
            try:
                await self._records.remove_job(self._key(name))
            except (ApiError, ApiUnavailableError) as error:
                self._report(f"the Job of a warm pod cannot be deleted: {error}")
                continue
            self._doomed.discard(name)

    async def _create(self) -> None:
        while len(self._waiting) < self._wanted and self._clock() >= self._not_before:
            name = jobs.warm_name(self._template.kind)
            link = self._links.expect(name, self._records.warm_token(name), self._wake.set)
            pod = self._waiting[name] = WarmPod(name, link, ObstacleTimer(self._clock()), self._clock())
            template = self._template
            try:
                await self._records.create_warm(name, template.kind, template.policy, template.files, template.owners)
            except (ApiError, ApiUnavailableError) as error:
                self._failed(f"its Job and Secret cannot be created: {error}")
                self._drop(pod)

    def _report(self, problem: str) -> None:
        """Log a problem once. Agents can send any text."""
        problem = problem[:_LONGEST_PROBLEM]
        if self._logged.is_new(problem):
            _log.warning("Problem of warm pods", kind=self._template.kind, problem=problem)
