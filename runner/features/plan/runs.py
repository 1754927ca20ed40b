"""Plan runs (runs in check mode, behind a proxy that plans each write), and the ConfigMaps of plans.

Jobs, engine, proxy and masking are those of a real run. The cluster receives reads and dry runs only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from runner.base import log
from runner.core.content import lookups
from runner.core.engine.events import TASK_STARTS
from runner.core.engine.job import Event, Job, Outcome, RunResult
from runner.core.kube.client import Client
from runner.core.kube.meaning import Follow, Request, follow
from runner.core.kube.state import ClusterState, Stored
from runner.core.masking.masker import TOO_SLOW, SearchTimeoutError
from runner.core.reconcile.attempt import Attempt
from runner.core.reconcile.decisions import RunContent
from runner.core.reconcile.run_access import Grant
from runner.core.reconcile.runs import Runs
from runner.core.status.report import OwnStatus
from runner.features.plan import changes, published, tasks
from runner.features.plan.changes import ObjectChange, PlannedOwner, ResourcePlan, State
from runner.features.plan.tasks import UnplannedTask, UnplannedTasks
from runner.features.plan.trial.overlay import Overlay
from runner.values.errors import ApiError, ConflictError
from runner.values.objects import GVK, RECORD_OF, ObjectRef, Owner, mapping, uid_of

_CHECK = "--check --diff"
_TOO_DEEP = "an object is nested too deeply to compare"
_ACTING = frozenset({"pipe", "lines"})
"""Lookups that run commands."""
_RUNS_COMMAND = "it runs its command for real, in plans too"


@dataclass(frozen=True, slots=True)
class PlanRun:
    """A plan run that has ended."""

    result: RunResult
    overlay: Overlay
    plan: ResourcePlan
    withheld: str = ""
    """Why the plan contains no values; empty if it does."""


def plan_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of plan runs for that of runs."""
    return {**environment, **tasks.OUTPUT}


@dataclass(frozen=True, slots=True)
class PlanRuns:
    """Plan runs of one watch's objects."""

    runs: Runs
    own: OwnStatus
    """Parts of the status of the objects that plans omit."""
    planned: Callable[[ResourcePlan], None]
    """Receives each plan."""
    began: Callable[[ObjectRef, str], None] = lambda _resource, _task: None
    """Receives the name of each task that begins."""
    clock: Callable[[], float] | None = None
    """See `UnplannedTasks`."""

    async def run(self, attempt: Attempt, overlay: Overlay | None = None) -> PlanRun:
        """Plan an attempt's run.

        `overlay` contains writes that precede the run; None: there are none.

        Raises:
            TerminalError: the object cannot be run.
        """
        overlay = overlay or Overlay()
        unplanned = UnplannedTasks(overlay, clock=self.clock)
        ref = ObjectRef.of(attempt.resource.gvk, attempt.obj)

        def receive(event: Event) -> None:
            unplanned.event(event)
            if event.get("event") in TASK_STARTS:
                self.began(ref, str(mapping(event.get("event_data")).get("task") or ""))

        result, grant = await self.runs.trial(attempt, overlay, _in_check_mode, receive)
        owner = PlannedOwner(ref, self.own)
        # Masking can take seconds.
        plan = await asyncio.to_thread(_plan, owner, attempt.executes, unplanned, result, grant)
        self.planned(plan)
        return PlanRun(result, overlay, plan, grant.secrets.withheld if grant.secrets.is_exhausted else "")


def _in_check_mode(job: Job) -> Job:
    return replace(
        job,
        ansible_args=f"{job.ansible_args} {_CHECK}".strip(),
        environment=plan_environment(job.environment),
        verbosity=max(job.verbosity, tasks.VERBOSITY),
    )


def _plan(owner: PlannedOwner, run: RunContent, seen: UnplannedTasks, result: RunResult, grant: Grant) -> ResourcePlan:
    """Return the plan of a run that has ended."""
    overlay, secrets = seen.overlay, grant.secrets
    object_changes: tuple[ObjectChange, ...] = ()
    message = ""
    try:
        object_changes = changes.reported(overlay.changes(), secrets, owner, overlay.unknown)
        object_changes += changes.of_hosts(seen.hosts)
    except SearchTimeoutError:
        message = f"the changes are {TOO_SLOW}"
    except RecursionError:
        message = _TOO_DEEP
    named = set(map(str, overlay.refusals[: seen.named]))
    others = [UnplannedTask("", "", "", reason) for reason in overlay.partial_reasons if reason not in named]
    acting = [
        UnplannedTask(f"lookup {lookup.name}", lookup.place, f"lookup {lookup.name}", _RUNS_COMMAND)
        for lookup in lookups.of_run(run.content, seen.paths)
        if lookup.name in _ACTING and lookup.is_reached(seen.paths)
    ]
    masked = secrets.masker.text
    unplanned = tuple(replace(task, reason=masked(task.reason)) for task in (*seen.tasks, *others, *acting))
    state: State = "partial" if unplanned else "complete"
    if message or result.outcome is not Outcome.SUCCEEDED:
        state = "failed"
        message = message or _failure(result, grant.stats.forbidden())
    return ResourcePlan(owner.ref, state, object_changes, unplanned, seen.more, message, run.finalizing)


def _failure(result: RunResult, missing: Sequence[str]) -> str:
    """Return the failed tasks, and the rights that the run lacked."""
    failures = [
        f"task {failure.task!r}" + (f" ({failure.path})" if failure.path else "") + f" failed: {failure.message}"
        for failure in result.failures
    ]
    return "\n".join([*(failures or [result.message]), *missing])


class PlanConfigMaps:
    """Writes the ConfigMaps.

    Best effort: if the API server refuses the ConfigMap, the plan is in the status only, and one warning has the
    reason.
    """

    def __init__(self, gvk: GVK, client: Client) -> None:
        self._gvk = gvk
        self._client = client
        self._logged = log.Once()
        self._log = log.get(__name__, gvk=str(gvk))

    async def write(self, attempt: Attempt, plan: ResourcePlan) -> str:
        """Write the ConfigMap of a plan if it differs; return its name, or nothing if there is none."""
        state, name = self._state(attempt), self._name(attempt)
        data = await asyncio.to_thread(published.data, plan)  # YAML takes up to seconds
        attempt.guard.check()
        try:
            config_map = await self._own(state, attempt)
            if config_map is None or config_map.data != data:
                await state.write(name, data, config_map)
        except ApiError as error:
            self._note(error)
            return ""
        return name

    async def remove(self, attempt: Attempt) -> None:
        """Remove the ConfigMap of an object."""
        attempt.guard.check()
        state = self._state(attempt)
        try:
            config_map = await self._own(state, attempt)
            if config_map is not None:
                await state.delete(config_map.name, config_map.uid)
        except ConflictError:  # another one has the name
            return
        except ApiError as error:
            self._note(error)

    async def _own(self, state: ClusterState, attempt: Attempt) -> Stored | None:
        """Return the ConfigMap. Raises ConflictError if another one has its name."""
        config_map = await state.read(self._name(attempt))
        if config_map is not None and config_map.annotations.get(RECORD_OF) != uid_of(attempt.obj):
            raise ConflictError(f"ConfigMap {state.namespace}/{config_map.name} is not that of a plan", status=409)
        return config_map

    def _state(self, attempt: Attempt) -> ClusterState:
        owner = Owner(ObjectRef.of(self._gvk, attempt.obj), namespaced=attempt.resource.namespaced)
        namespace = attempt.key.namespace or self._client.credentials.namespace
        verbs = ("create", "delete", "get", "patch")
        created = {"annotations": {RECORD_OF: uid_of(attempt.obj)}, "ownerReferences": [dict(owner.reference())]}
        return ClusterState(self._client, namespace, "a plan", verbs, created=created)

    def _name(self, attempt: Attempt) -> str:
        return published.config_map_name(self._gvk, attempt.obj)

    def _note(self, error: ApiError) -> None:
        """Log each distinct reason once; raise an error that ends by itself."""
        if follow(Request.PLAN, error) is not Follow.OMIT:
            raise error
        if self._logged.is_new(str(error)):
            self._log.warning(
                "Cannot write the ConfigMap of a plan, so that the status contains only a part of it", error=str(error)
            )
