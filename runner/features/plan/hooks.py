"""Objects whose mode is `plan` or `approve`: plan runs, what they leave in the cluster, and approvals.

A plan run writes the status of the object, an Event, and a ConfigMap, and only if the plan differs from the one before.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from runner.base import log
from runner.core.content.files import ContentDigest
from runner.core.engine.job import Outcome
from runner.core.kube.client import Client, PatchType
from runner.core.reconcile import decisions
from runner.core.reconcile.attempt import AnnotationOverrides, Attempt, WatchScope, overrides_of
from runner.core.reconcile.decisions import Done, RequeueAfter, Retry
from runner.core.reconcile.hooks import UP_TO_DATE, Addition, FinishedRun, Hooks, Skip
from runner.core.reconcile.run_log import ObjectEvents
from runner.core.reconcile.runs import Runs
from runner.core.status import report
from runner.core.status.conditions import Condition, ConditionStatus, timestamp
from runner.core.status.report import StatusReport
from runner.core.status.writer import StatusWriter
from runner.core.watches.policy import RunMode
from runner.features.plan import changes, plan_status, published
from runner.features.plan.approved import (
    APPROVED,
    ApprovedPlan,
    Execute,
    PlanAgain,
    PlanDecision,
    Publish,
    Reject,
    decide,
    is_approved,
    is_used,
    joined,
)
from runner.features.plan.changes import DifferingValue, PlannedOwner, ResourcePlan
from runner.features.plan.plan_status import APPROVE, approved_hash
from runner.features.plan.published import PlanBasis
from runner.features.plan.runs import PlanConfigMaps, PlanRun, PlanRuns
from runner.values.digests import digest
from runner.values.objects import JSONPatch, Object, ObjectKey, ObjectRef, is_deleting, is_paused, metadata, uid_of

_NONCE = 8
"""Bytes."""
_REPLAN = 1.0
"""Seconds after a refused run until the next plan."""
_RUNNING = "Running"
_RESULTS = (plan_status.CHANGES, plan_status.NO_CHANGES, plan_status.PARTIAL, plan_status.PLAN_FAILED, "canceled")


class PlanReconciler(Hooks):
    """Plans the objects of one watch."""

    def __init__(
        self,
        scope: WatchScope,
        client: Client,
        runs: Runs,
        plans: PlanRuns,
        writer: StatusWriter,
        contents: tuple[ContentDigest, ContentDigest],
        hooks: Sequence[Hooks],
    ) -> None:
        """`contents` are the digests of the role and of the finalizer; `hooks` are called around a plan run."""
        self._scope = scope
        self._client = client
        self._runs = runs
        self._trials = plans
        self._writer = writer
        self._contents = contents
        self._hooks = hooks
        self._config_maps = PlanConfigMaps(scope.watch.gvk, client)
        self._unbegun: dict[ObjectKey, Mapping[str, str]] = {}
        """Approvals of plans that are marked as used, although no run has begun."""
        scope.registry.subscribe(lambda key: self._unbegun.pop(key, None))
        self._plans = scope.metrics.counter("ansible_operator_plans", "Plans by result", ["GVK", "result"])
        for result in _RESULTS:
            self._plans.labels(str(scope.watch.gvk), result)
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Plan an object whose mode is `plan` or `approve`, and publish the plan if it differs from the one before.

        Return the attempt with the plan if a user approved the plan, and it is still the same.
        """
        if attempt.overrides.mode == "apply":
            return attempt
        obj = await self._fresh(attempt)
        if obj is None or overrides_of(obj, self._scope.bounds).mode != attempt.overrides.mode:
            return Skip(Done(None))  # the watch delivers the event
        attempt = replace(attempt, obj=obj)
        before = self._before(attempt)
        run, basis = await self._plan(attempt)
        attempt = await attempt.learned(run.result)
        self._count(run)
        terms = replace(self._scope.terms(attempt), finalizing=False, limit=None)
        decision = decisions.after_run(run.result, terms, failed_runs=attempt.request.failed_runs)
        if run.result.outcome is not Outcome.CANCELED:
            match await self._decide(attempt, run, basis):
                case Publish():
                    await self._publish(attempt, run, basis)
                case Reject(why):
                    await self._reject(attempt, run, basis, why)
                case PlanAgain():  # the second plan failed
                    return Skip(Retry(terms.retry.backoff, ran=False))
                case Execute(values):
                    return await self._approve(attempt, run, before, values)
        for sentence in decision.advice:
            self._about(attempt).given_up(sentence)
            self._log.warning("No further run", why=sentence, job=attempt.ident, **attempt.key._asdict())
        if run.result.waits:
            return Skip(decision.result, report.run_ended(run.result, report.FailureDetails()))
        return Skip(decision.result)

    async def _decide(self, attempt: Attempt, run: PlanRun, basis: PlanBasis) -> PlanDecision:
        """Decide about a plan, with a second one if necessary. If that one fails, the result is `PlanAgain`."""
        before = self._before(attempt)
        approved = before if is_approved(attempt.obj, before, attempt.overrides) else None
        decided = decide(run.plan, basis, run.withheld, approved, None)
        if isinstance(decided, PlanAgain):
            values = await self._differing(attempt, run)
            decided = decide(run.plan, basis, run.withheld, approved, values)
        return decided

    def _before(self, attempt: Attempt) -> dict[str, Any]:
        """Return `status.plan`, without an approval whose run did not begin, for example because of an outage."""
        plan = plan_status.of_status(attempt.obj)
        if "approval" in plan and plan["approval"] == self._unbegun.get(attempt.key):
            del plan["approval"]
        return plan

    def begins(self, attempt: Attempt) -> None:
        """Use the approval: it must not be executed twice."""
        self._unbegun.pop(attempt.key, None)

    def status(self, attempt: Attempt, run: FinishedRun) -> StatusReport:
        """Report what became of the approved plan. A run in the mode `apply` ends plans."""
        approved = attempt.more.get(APPROVED)
        if approved is None:
            obj = self._scope.latest(attempt)  # a plan that was published just before the run is not in the attempt
            before = plan_status.of_status(obj)
            return plan_status.ended(obj, removes=bool(before) and not before.get("configMap"))
        if attempt.is_stopped:
            return plan_status.refused(_stopped(approved), self._with_approval(attempt.obj, approved.hash, "Refused"))
        plan = self._with_approval(attempt.obj, approved.hash, run.result.outcome.value.capitalize())
        return plan_status.executed(attempt.obj, approved.hash, plan)

    async def after(self, attempt: Attempt, run: FinishedRun) -> Addition:  # noqa: ARG002 - see Hooks
        """Plan again after an approved run that the proxy ended. Remove the ConfigMap of a plan that has ended."""
        if (approved := attempt.more.get(APPROVED)) is not None:
            if not attempt.is_stopped:
                return Addition()
            self._stale(attempt, _stopped(approved))
            return Addition(result=RequeueAfter(_REPLAN))
        if not plan_status.of_status(self._scope.latest(attempt)).get("configMap"):
            return Addition()
        await self._config_maps.remove(attempt)
        return Addition(StatusReport((), fields={plan_status.FIELD: {}}))

    async def _fresh(self, attempt: Attempt) -> Object | None:
        """Read the object: the cache can lack the approval that was used last. None: the attempt is outdated."""
        obj = await self._client.get(attempt.resource, attempt.key)
        if uid_of(obj) != uid_of(attempt.obj) or is_deleting(obj) != is_deleting(attempt.obj) or is_paused(obj):
            return None
        if attempt.completes and metadata(obj).get("generation") != metadata(attempt.obj).get("generation"):
            return None  # the parts of features are those of the older spec
        return _as_cached(obj)

    async def _differing(self, attempt: Attempt, run: PlanRun) -> tuple[DifferingValue, ...] | None:
        """Plan once more, and return the fields whose values differ; None if the second plan did not succeed."""
        if not run.plan.changes:
            return ()
        second = await self._plan_once(attempt)
        if second.plan.state == "failed" or second.result.outcome is not Outcome.SUCCEEDED:
            why = second.plan.message or second.result.message
            self._log.info("Cannot compare two plans: the second one failed", error=why, **attempt.key._asdict())
            return None
        return changes.between(run.overlay, second.overlay, self._owner(attempt.obj))

    async def _approve(
        self, attempt: Attempt, run: PlanRun, before: Mapping[str, Any], differ: tuple[DifferingValue, ...]
    ) -> Attempt:
        """Mark the plan as used, before anything is written: a crash must not repeat the run.

        The mark is also noted before it is sent. Until the run begins, an outage repeats the attempt with the approval.
        """
        approved = str(before["hash"])
        obj, generation = attempt.obj, metadata(attempt.obj).get("generation")
        mark = _approval(approved, _RUNNING)
        patch: JSONPatch = [
            {"op": "test", "path": "/metadata/uid", "value": uid_of(obj)},
            *([] if generation is None else [{"op": "test", "path": "/metadata/generation", "value": generation}]),
            {"op": "test", "path": "/status/plan/hash", "value": approved},
            {"op": "test", "path": "/status/plan/approval", "value": obj["status"]["plan"].get("approval")},
            {"op": "add", "path": "/status/plan/approval", "value": mark},
        ]
        attempt.guard.check()
        self._unbegun[attempt.key] = mark
        marked = await self._client.patch(
            attempt.resource, attempt.key, patch, content_type=PatchType.JSON, subresource="status"
        )
        self._about(attempt).record("Normal", "PlanApproved", "Run", f"Plan {approved} is executed")
        self._log.info("Plan approved", hash=approved, **attempt.key._asdict())
        plan = ApprovedPlan(run.overlay, self._owner(obj), partial(self._runs.end, attempt.key), differ, approved)
        return replace(attempt.having(APPROVED, plan), obj=_as_cached(marked), bounds=plan)

    async def _reject(self, attempt: Attempt, run: PlanRun, basis: PlanBasis, why: str) -> None:
        """Publish a new plan instead of the approved one, with the reason."""
        before = plan_status.of_status(attempt.obj)
        plan = await self._published(attempt, run, basis)
        new = f"New plan {plan['hash']}: {published.summary(basis.plan)}"
        sentence = f"Plan {before['hash']} was not executed: {why}. {new}"
        stale = report.observed(attempt.obj, plan_status.stale(sentence, plan))
        await self._writer.write(attempt.resource, attempt.obj, stale, attempt.guard)
        self._stale(attempt, sentence)

    def _stale(self, attempt: Attempt, why: str) -> None:
        self._about(attempt).record("Warning", "PlanStale", "Wait", why)
        self._log.warning("Approved plan is stale", why=why, **attempt.key._asdict())

    def _with_approval(self, obj: Object, approved: str, state: str) -> Mapping[str, Any]:
        return {**plan_status.of_status(obj), "approval": _approval(approved, state)}

    def _owner(self, obj: Object) -> PlannedOwner:
        return PlannedOwner(ObjectRef.of(self._scope.watch.gvk, obj), self._scope.own)

    def _about(self, attempt: Attempt) -> ObjectEvents:
        return self._scope.about(attempt.obj)

    async def _plan(self, attempt: Attempt) -> tuple[PlanRun, PlanBasis]:
        """Plan, again if the role was edited meanwhile."""
        content = self._contents[attempt.executes.finalizing]
        before = await content.fresh()
        while True:
            run = await self._plan_once(attempt)
            after = await content.fresh()
            if after == before or run.result.outcome is Outcome.CANCELED:
                return run, _basis(attempt.obj, run, after)
            before = after

    async def _plan_once(self, attempt: Attempt) -> PlanRun:
        for hooks in self._hooks:
            attempt = await hooks.before_trial(attempt)
        run = await self._trials.run(attempt)
        for hooks in self._hooks:
            await hooks.after_trial(attempt, run.result, _why_effective(run.plan))
        return run

    async def _publish(self, attempt: Attempt, run: PlanRun, basis: PlanBasis) -> None:
        obj, overrides = attempt.obj, attempt.overrides
        before = self._before(attempt)
        failed = run.plan.state == "failed"
        if failed and before.get("configMap"):
            await self._config_maps.remove(attempt)  # the status will not name it any more
        plan = _failed(before) if failed else await self._published(attempt, run, basis)
        made = plan_status.made(*_condition(run.plan, plan, overrides.mode), plan)
        if plan == before and plan_status.is_stale(obj):
            made = StatusReport(())  # the user must see why the last approval was not used
        outdated = _outdated(obj, plan, overrides)
        more = (*attempt.conditions, *plan_status.outdated(outdated), *_up_to_date(attempt, run.plan))
        made = report.observed(obj, made.with_conditions(more))
        await self._writer.write(attempt.resource, obj, made, attempt.guard)
        if failed:
            self._about(attempt).record("Warning", "PlanFailed", "Plan", run.plan.message)
        elif plan != before:
            note = f"Plan {plan['hash']}: {published.summary(run.plan)}"
            self._about(attempt).record("Normal", "Planned", "Plan", note)
        if outdated:
            self._stale(attempt, outdated)

    async def _published(self, attempt: Attempt, run: PlanRun, basis: PlanBasis) -> Mapping[str, Any]:
        """Return the new `status.plan`: the one before if it is equal and can still be approved."""
        before = self._before(attempt)
        approval = before.get("approval") or {}
        is_equal = bool(before.get("hash")) and before["hash"] == basis.hash(str(before.get("nonce")))
        if is_equal and not is_used(before):
            return before
        if approval.get("state") == _RUNNING:
            approval = {**approval, "state": "Interrupted"}
        differing_values = await self._differing(attempt, run) if attempt.overrides.mode == "approve" else ()
        name = ""
        if basis.plan.changes or basis.plan.unplanned:
            name = await self._config_maps.write(attempt, basis.plan)
        elif before.get("configMap"):
            await self._config_maps.remove(attempt)
        plan = published.status(basis, secrets.token_hex(_NONCE), _now(), name, approval, differing_values or ())
        if before.get("hash") and not is_used(before):
            plan["replaces"] = {"hash": before["hash"], "because": joined(published.differences(before, basis))}
        return plan

    def _count(self, run: PlanRun) -> None:
        result = "canceled" if run.result.outcome is Outcome.CANCELED else _reason(run.plan)
        self._plans.labels(str(self._scope.watch.gvk), result).inc()
        self._log.info(
            "Plan ended",
            result=result,
            seconds=round(run.result.duration, 3),
            changes=len(run.plan.changes),
            error=run.plan.message or None,
            **run.plan.resource.key._asdict(),
        )


def _why_effective(plan: ResourcePlan) -> str:
    """Return why a run would have an effect, as the end of a sentence; empty if it would have none."""
    if plan.changes:
        return "its plan has changes"
    return "" if plan.state == "complete" else f"its plan is {plan.state}"


def _stopped(approved: ApprovedPlan) -> str:
    """Return why an approved run ended early."""
    return f"Plan {approved.hash} was executed until the run sent another write, which was refused: {approved.refused}"


def _up_to_date(attempt: Attempt, plan: ResourcePlan) -> tuple[Condition, ...]:
    """Return the conditions of an object that needs no approval, because there is nothing to execute."""
    is_idle = plan.state == "complete" and not plan.changes and attempt.overrides.mode == "approve"
    return attempt.more.get(UP_TO_DATE)() if is_idle else ()


def _outdated(obj: Object, plan: Mapping[str, Any], overrides: AnnotationOverrides) -> str:
    """Return why the plan that a user approved last is not executed; empty if it is, or if the conditions have it."""
    approved = approved_hash(obj)
    is_known = approved in ("", plan.get("hash"), (plan.get("approval") or {}).get("hash"))  # these can be lists
    if overrides.mode != "approve" or is_known or plan_status.names_stale(obj, approved):
        return ""
    replaced = plan.get("replaces") or {}
    why = replaced.get("because") if replaced.get("hash") == approved else ""
    return f"Plan {approved} is not the current plan, so it was not executed" + (f": {why}" if why else "")


def _approval(approved: str, state: str) -> dict[str, str]:
    return {"hash": approved, "state": state, "time": _now()}


def _now() -> str:
    return timestamp(time.time())


def _as_cached(obj: Object) -> Object:
    """Return an object as the cache has it, so that a plan and its run get the same variables."""
    meta = {name: value for name, value in metadata(obj).items() if name != "managedFields"}
    return {**obj, "metadata": meta}


def _failed(before: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `status.plan` after a plan run that failed: what an approval needs to be used only once."""
    return {name: before[name] for name in ("approval",) if name in before}


def _reason(plan: ResourcePlan) -> str:
    if plan.state == "failed":
        return plan_status.PLAN_FAILED
    if plan.state == "partial":
        return plan_status.PARTIAL
    return plan_status.CHANGES if plan.changes else plan_status.NO_CHANGES


def _condition(plan: ResourcePlan, status: Mapping[str, Any], mode: RunMode) -> tuple[ConditionStatus, str, str]:
    """Return status, reason and message of `Planned`. `status` is the new `status.plan`."""
    reason = _reason(plan)
    if reason == plan_status.PLAN_FAILED:
        return "False", reason, plan.message
    approvable, notes = status.get("hash"), published.random_values(status)
    is_executable = mode == "approve" and not status.get("differing")
    advice = notes + (f". To execute it, set the annotation {APPROVE} to {approvable}" if is_executable else "")
    return (
        "True",
        reason,
        f"Plan {approvable}: {published.summary(plan)}" + (advice if plan.changes or plan.state == "partial" else ""),
    )


def _basis(obj: Object, run: PlanRun, content: str) -> PlanBasis:
    generation = metadata(obj).get("generation")
    if generation is None:
        rest = {name: value for name, value in obj.items() if name not in {"metadata", "status"}}
        generation = digest(rest)
    return PlanBasis(run.plan, uid_of(obj), generation, content, run.overlay.reads)
