"""Objects whose mode is `plan` or `approve`: plan runs, and what they leave in the cluster.

A plan run writes the status of the object, an Event, and a ConfigMap, and only if the plan differs from the one before.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from runner import log
from runner.controller import decisions
from runner.controller.annotations import AnnotationOverrides
from runner.controller.attempt import Attempt, WatchScope
from runner.controller.decisions import Decision, RetryTerms
from runner.controller.plan_config_maps import PlanConfigMaps
from runner.controller.plan_run import PlanRun, plan_run
from runner.controller.run_access import RunAccess
from runner.controller.run_events import ObjectEvents
from runner.controller.runs import Runs
from runner.engine.job import Outcome
from runner.events.recorder import EventRecorder
from runner.kube.client import Client
from runner.objects import Object, ObjectRef, key_of, metadata, uid_of
from runner.ownership import OwnerState
from runner.plan import published
from runner.plan.published import PlanBasis
from runner.plan.results import ResourcePlan
from runner.status import report
from runner.status.conditions import Condition, ConditionStatus
from runner.status.writer import StatusWriter
from runner.unchanged import last_run
from runner.unchanged.content_digest import ContentDigest

_NONCE = 8
"""Bytes."""


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """How one attempt plans, and what follows."""

    overrides: AnnotationOverrides
    retry: RetryTerms
    on_terminating: Callable[[], None]
    owner_state: Callable[[], Awaitable[OwnerState]]
    conditions: tuple[Condition, ...]
    """Further conditions to write."""


class PlanReconciler:
    """Plans the objects of one watch."""

    def __init__(
        self,
        scope: WatchScope,
        client: Client,
        access: RunAccess,
        events: EventRecorder,
        runs: Runs,
        contents: tuple[ContentDigest, ContentDigest],
    ) -> None:
        """`contents` are the digests of the role and of the finalizer."""
        self._scope = scope
        self._access = access
        self._events = events
        self._runs = runs
        self._contents = contents
        self._config_maps = PlanConfigMaps(scope.watch.gvk, client)
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))

    async def reconcile(self, attempt: Attempt, terms: PlanTerms, status: StatusWriter) -> Decision:
        """Plan the attempt's object, and publish the plan if it differs from the one before."""
        run, basis = await self._plan(attempt, terms)
        self._count(run)
        decision = decisions.after_run(
            run.result, replace(terms.retry, finalizing=False, limit=None), failed_runs=attempt.request.failed_runs
        )
        if run.result.outcome is not Outcome.CANCELED:
            await self._publish(attempt, terms, status, run, basis)
        return decision

    async def end(self, attempt: Attempt) -> tuple[tuple[Condition, ...], Mapping[str, Any] | None]:
        """Return the conditions and `status.plan` of an object whose mode is `apply`; remove its ConfigMap."""
        found = published.of_status(attempt.obj)
        if found.get("configMap"):
            await self._config_maps.remove(attempt)
        return report.plan_ended(attempt.obj), {} if found else None

    async def _plan(self, attempt: Attempt, terms: PlanTerms) -> tuple[PlanRun, PlanBasis]:
        """Plan, again if the role was edited meanwhile."""
        content = self._contents[attempt.plan.finalizing]
        before = await content.fresh()
        while True:
            run = await plan_run(
                self._scope.watch, self._runs, self._access, attempt, terms.on_terminating, terms.owner_state
            )
            after = await content.fresh()
            if after == before or run.result.outcome is Outcome.CANCELED:
                return run, _basis(attempt.obj, run, after)
            before = after

    async def _publish(
        self, attempt: Attempt, terms: PlanTerms, status: StatusWriter, run: PlanRun, basis: PlanBasis
    ) -> None:
        obj = self._latest(attempt.obj)
        before = published.of_status(obj)
        failed = run.plan.state == "failed"
        plan = _failed(before) if failed else await self._published(attempt, before, basis)
        made = report.plan_made(*_condition(run.plan, str(plan.get("hash"))), plan)
        made = report.observed(attempt.obj, made.with_conditions(terms.conditions))
        await status.write(attempt.resource, obj, made, attempt.guard)
        about = ObjectEvents(self._events, ObjectRef.of(self._scope.watch.gvk, obj))
        if failed:
            about.plan_failed(run.plan.message)
        elif plan != before:
            about.planned(f"Plan {plan['hash']}: {published.summary(run.plan)}")

    async def _published(self, attempt: Attempt, before: Mapping[str, Any], basis: PlanBasis) -> Mapping[str, Any]:
        """Return the new `status.plan`: the one before if it is equal and can still be approved."""
        approval = before.get("approval") or {}
        is_used = approval.get("hash") == before.get("hash")
        if not is_used and before.get("hash") and before["hash"] == basis.hash(str(before.get("nonce"))):
            return before
        name = ""
        if basis.plan.changes or basis.plan.unplanned:
            name = await self._config_maps.write(attempt, basis.plan)
        elif before.get("configMap"):
            await self._config_maps.remove(attempt)
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return published.status(basis, secrets.token_hex(_NONCE), time, name, approval)

    def _latest(self, obj: Object) -> Object:
        cached = self._scope.informer.get(key_of(obj))
        return cached if cached is not None and uid_of(cached) == uid_of(obj) else obj

    def _count(self, run: PlanRun) -> None:
        result = "canceled" if run.result.outcome is Outcome.CANCELED else _reason(run.plan)
        self._scope.metrics.plans.labels(str(self._scope.watch.gvk), result).inc()
        self._log.info(
            "Plan ended",
            result=result,
            seconds=round(run.result.duration, 3),
            changes=len(run.plan.changes),
            error=run.plan.message or None,
            **run.plan.resource.key._asdict(),
        )


def _failed(before: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `status.plan` after a plan run that failed: what an approval needs to be used only once."""
    return {name: before[name] for name in ("approval",) if name in before}


def _reason(plan: ResourcePlan) -> str:
    if plan.state == "failed":
        return report.PLAN_FAILED
    if plan.state == "partial":
        return report.PARTIAL
    return report.CHANGES if plan.changes else report.NO_CHANGES


def _condition(plan: ResourcePlan, approvable: str) -> tuple[ConditionStatus, str, str]:
    """Return status, reason and message of `Planned`."""
    reason = _reason(plan)
    if reason == report.PLAN_FAILED:
        return "False", reason, plan.message
    return "True", reason, f"Plan {approvable}: {published.summary(plan)}"


def _basis(obj: Object, run: PlanRun, content: str) -> PlanBasis:
    generation = metadata(obj).get("generation")
    if generation is None:
        rest = {name: value for name, value in obj.items() if name not in {"metadata", "status"}}
        generation = last_run.digest(rest)
    return PlanBasis(run.plan, uid_of(obj), generation, content, run.overlay.reads)
