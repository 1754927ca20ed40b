"""Plans and drift checks as part of an operator: runs that find out what a run would change."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from runner.core.kube.rights import Places, RequiredRights, Right, granting
from runner.core.queue import reasons
from runner.core.queue.reasons import Cause, Mark, RunReason
from runner.core.reconcile.feature import Feature, Part, PartBase, ProxyBase, ProxyParts
from runner.core.watches.watch import IS_REMOTE
from runner.features.plan import plan_status
from runner.features.plan.drift_fields import DRIFT_POLICY, FIELDS
from runner.features.plan.plan_status import APPROVE
from runner.values.objects import MODE, ObjectRef

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.core.kube.discovery import ApiResource
    from runner.core.reconcile.feature import Kind
    from runner.core.reconcile.hooks import Hooks
    from runner.core.watches.watch import Watch
    from runner.features.plan.runs import PlanRuns

DRIFT = RunReason("drift check", 1200.0, is_check=True)
MARKS = (Mark(MODE, reasons.CHANGED, on_removal=True), Mark(APPROVE, reasons.REQUESTED))
"""Annotations that set the mode of an object, and approve a plan."""


def schedule(kind: Kind) -> Hooks | None:
    """Return the times of the drift checks."""
    policy, gvk = kind.scope.watch.more.get(DRIFT_POLICY), kind.scope.watch.gvk
    if policy is None:
        return None
    from runner.features.plan.drift import DriftSchedule  # noqa: PLC0415 - see Feature

    wake = kind.operator.wake
    times = DriftSchedule(kind.queue, policy.period, lambda key: wake(ObjectRef(gvk, key), Cause.of(DRIFT, ())))
    kind.scope.registry.subscribe(times.forget)
    return times


def planner(kind: Kind) -> Hooks:
    """Return the plans of objects. An annotation can require them for each object."""
    from runner.features.plan.hooks import PlanReconciler  # noqa: PLC0415 - see Feature

    scope, executed = kind.scope, kind.executed
    finalized = kind.operator.executed(scope.watch.as_finalizer()) if scope.watch.finalizer else executed
    contents = (executed, finalized)
    return PlanReconciler(scope, kind.operator.client, kind.runs, _runs(kind), kind.status, contents, kind.hooks)


def checks(kind: Kind) -> Hooks:
    """Return the drift checks. Without them, runs end the reports of earlier ones."""
    from runner.features.plan.drift import DriftChecks  # noqa: PLC0415 - see Feature

    return DriftChecks(kind.scope, kind.scope.watch.more.get(DRIFT_POLICY), _runs(kind), kind.status)


def _runs(kind: Kind) -> PlanRuns:
    from runner.features.plan.page import LatestPlans  # noqa: PLC0415 - see Feature
    from runner.features.plan.runs import PlanRuns  # noqa: PLC0415 - see Feature

    clock = time.time if kind.scope.watch.more.get(IS_REMOTE) else None
    return PlanRuns(kind.runs, kind.scope.own, kind.operator.part(LatestPlans).add, clock=clock)


def _proxy(base: ProxyBase) -> ProxyParts:
    from runner.features.plan.requests.handler import Planning  # noqa: PLC0415 - see Feature

    return ProxyParts(trials=(Planning(base.served, base.clock),))


def _part(base: PartBase) -> Part:
    from runner.features.plan.page import LatestPlans  # noqa: PLC0415 - see Feature

    return LatestPlans({watch.gvk: watch.mode for watch in base.watches})


def _environments(watch: Watch, environment: Mapping[str, str]) -> Sequence[Mapping[str, str]]:
    if watch.mode == "apply":
        return [environment]
    from runner.features.plan.runs import plan_environment  # noqa: PLC0415 - see Feature

    plans = plan_environment(environment)
    return [plans] if watch.mode == "plan" else [environment, plans]


def _rights(watch: Watch, resource: ApiResource, places: Places) -> set[Right]:
    """Return the rights for the ConfigMaps of plans."""
    if watch.mode == "apply":
        return set()
    return granting(places.of(resource), "", "configmaps", "create", "delete", "get", "patch")


FEATURE = Feature(
    fields=(FIELDS,),
    status=plan_status.OWN,
    rights=RequiredRights(_rights),
    reasons=(DRIFT,),
    marks=MARKS,
    proxy=_proxy,
    part=_part,
    environments=_environments,
)
