"""Plan runs: runs in check mode, behind a proxy that plans each write.

Jobs, engine, proxy and masking are those of a real run. The cluster receives reads and dry runs only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from runner.controller.attempt import Attempt
from runner.controller.runs import Runs
from runner.engine.job import Outcome, RunResult
from runner.engine.run_secrets import RunSecrets
from runner.masking.masker import TOO_SLOW, SearchTimeoutError
from runner.objects import ObjectRef
from runner.plan import changes
from runner.plan.results import ObjectChange, ResourcePlan, State
from runner.plan.tasks import UnplannedTask, UnplannedTasks
from runner.proxy.planning.overlay import Overlay

_TOO_DEEP = "an object is nested too deeply to compare"


@dataclass(frozen=True, slots=True)
class PlanRun:
    """A plan run that has ended."""

    result: RunResult
    overlay: Overlay
    plan: ResourcePlan
    withheld: str = ""
    """Why the plan contains no values; empty if it does."""


async def plan_run(runs: Runs, attempt: Attempt, overlay: Overlay | None = None) -> PlanRun:
    """Plan an attempt's run. Its recorder records what the run reads.

    `overlay` contains writes that precede the run; None: there are none.

    Raises:
        TerminalError: the object cannot be run.
    """
    overlay = overlay or Overlay()
    result, unplanned, grant = await runs.plan(attempt, overlay)
    finished = _Finished(result, overlay, unplanned, grant.secrets, grant.stats.forbidden())
    ref = ObjectRef.of(attempt.resource.gvk, attempt.obj)
    # Masking can take seconds.
    plan = await asyncio.to_thread(finished.conclude, ref, finalizing=attempt.plan.finalizing)
    if plan.state != "failed":
        runs.planned(plan)
    return PlanRun(result, overlay, plan, grant.secrets.withheld if grant.secrets.is_exhausted else "")


@dataclass(frozen=True, slots=True)
class _Finished:
    result: RunResult
    overlay: Overlay
    tasks: UnplannedTasks
    secrets: RunSecrets
    missing: Sequence[str]
    """Sentences about rights that the run lacked."""

    def conclude(self, ref: ObjectRef, *, finalizing: bool) -> ResourcePlan:
        """Return the plan of the run's resource."""
        found: tuple[ObjectChange, ...] = ()
        message = ""
        try:
            found = changes.reported(self.overlay.changes(), self.secrets, ref, self.overlay.unknown)
        except SearchTimeoutError:
            message = f"the changes are {TOO_SLOW}"
        except RecursionError:
            message = _TOO_DEEP
        masked = self.secrets.masker.text
        others = [UnplannedTask("", "", "", masked(reason)) for reason in self.overlay.partial_reasons]
        unplanned = (*self.tasks.tasks, *others)
        state: State = "partial" if unplanned else "complete"
        if message or self.result.outcome is not Outcome.SUCCEEDED:
            state = "failed"
            message = message or self._failure()
        return ResourcePlan(ref, state, found, unplanned, self.tasks.more, message, finalizing)

    def _failure(self) -> str:
        failures = [
            f"task {each.task!r}" + (f" ({each.path})" if each.path else "") + f" failed: {each.message}"
            for each in self.result.failures
        ]
        return "\n".join([*(failures or [self.result.message]), *self.missing])
