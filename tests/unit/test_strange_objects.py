"""Objects that other clients wrote: each reader accepts values of any shape in the spec and in the status."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runner.app.features import OWN_STATUS
from runner.core.engine import params
from runner.core.engine.job import Outcome, RunResult
from runner.core.kube.discovery import ApiResource
from runner.core.kube.object_state import ObjectState
from runner.core.masking import public
from runner.core.proxy.handlers import owners
from runner.core.reconcile.attempt import NO_OVERRIDES
from runner.core.status import report
from runner.core.status.conditions import ignored
from runner.core.status.patch import patch, without_health
from runner.features.hosts import record
from runner.features.loopguard import reports as contention
from runner.features.plan import hooks as planning
from runner.features.plan import plan_status, published
from runner.features.plan.approved import decide
from runner.features.plan.changes import ResourcePlan
from runner.features.plan.page import LatestPlans
from runner.features.plan.published import PlanBasis
from runner.features.prune import status as prune_status
from runner.features.rollout.member import Member
from runner.features.ui import views
from runner.features.ui.objects import display_status
from runner.values import objects
from runner.values.objects import GVK, ObjectKey, ObjectRef, Owner, claims_of
from tests.kit.watch_values import watch_value

pytestmark = pytest.mark.lengthy

_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "True", "False", "Ready", "words", "x"])
)
_NAMES = st.sampled_from(
    """
    type status reason message lastTransitionTime observedGeneration hash changes approval name address failures
    conditions plan drift hosts fields hostKey random reads nonce replaces because moreChanges unplanned
    """.split()  # noqa: SIM905 - a list of words
)
ANYTHING = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=4)),
    max_leaves=8,
)
_OWN_TYPES = """Ready Running Successful Failure Planned PlanStale Drifted Updated Prunable Stalled""".split()  # noqa: SIM905 - a list of words
CONDITIONS = st.lists(
    st.one_of(
        ANYTHING,
        st.fixed_dictionaries(
            {"type": st.sampled_from(_OWN_TYPES)},
            optional=dict.fromkeys(
                ["status", "reason", "message", "lastTransitionTime", "observedGeneration", "ansibleResult"], ANYTHING
            ),
        ),
    ),
    max_size=4,
)
STATUS = st.one_of(
    ANYTHING,
    st.fixed_dictionaries(
        {},
        optional={
            "conditions": st.one_of(CONDITIONS, ANYTHING),
            "observedGeneration": ANYTHING,
            **dict.fromkeys(
                ("plan", "drift", "hosts"), st.one_of(ANYTHING, st.lists(ANYTHING), st.dictionaries(_NAMES, ANYTHING))
            ),
        },
    ),
)
CONFIG_MAP = ApiResource(
    GVK("", "v1", "ConfigMap"),
    "configmaps",
    namespaced=True,
    verbs=frozenset({"list", "watch"}),
    subresources=frozenset(),
)
CR = Owner(ObjectRef(GVK("e.com", "v1", "Thing"), ObjectKey("shop", "a"), "u1"), namespaced=True)
PLAN = ResourcePlan(CR.ref, "complete")
OVERRIDES = replace(NO_OVERRIDES, mode="approve")
RESULT = RunResult(Outcome.SUCCEEDED, None, (), "", None, 1.0)


def _object(status: Any, spec: Any = None) -> dict[str, Any]:
    meta = {"name": "a", "namespace": "ns", "uid": "u1", "generation": 4, "resourceVersion": "7"}
    return {"apiVersion": "e.com/v1", "kind": "Thing", "metadata": meta, "spec": spec, "status": status}


@given(STATUS)
@example({"conditions": [{"type": "Updated", "status": "False", "reason": []}]})
@example({"plan": {"approval": {"hash": []}}})
@example({"plan": {"replaces": ["x"]}})
@example({"plan": {"replaces": {"hash": "x"}}})
@example({"plan": {"hash": "x", "moreChanges": "x"}})
@example({"drift": {"hash": "x", "approval": ["x"]}})
def test_each_reader_accepts_any_status(status: Any) -> None:
    obj = _object(status)
    before = json.dumps(obj)
    objects.last_result(obj)
    display_status(obj)
    views._contents(obj)
    watch = watch_value()
    LatestPlans({watch.gvk: watch.mode}).section(watch.gvk, obj)
    Member.of(obj, {}, "apply")
    record.entries(obj)
    plan = plan_status.of_status(obj)
    published.random_values(plan)
    planning._outdated({"metadata": {"annotations": {plan_status.APPROVE: "x"}}}, plan, OVERRIDES)
    decide(PLAN, PlanBasis(PLAN, "u1", 4, "digest", {}), "", {**plan, "hash": "x"}, None)
    report.finalizer_has_run(obj)
    plan_status.names_stale(obj, "x")
    plan_status.is_stale(obj)
    ObjectState.of(obj, (), whole=True, suspect=True)
    ignored(obj)
    reports = [
        report.run_began(obj),
        report.run_ended(RESULT, report.FailureDetails()),
        report.unusable("why"),
        report.paused(),
        report.request_accepted(obj),
        plan_status.drift_ended(obj),
        contention.contention_ended(obj),
        plan_status.ended(obj, removes=True),
        report.StatusReport(prune_status.prunable(obj, prune_status.PruneReport(counts=True))),
    ]
    for each in reports:
        patch(obj, report.observed(obj, each), OWN_STATUS, 0.0)
        patch(obj, without_health(obj, each, OWN_STATUS), OWN_STATUS, 0.0)
    if isinstance(status, dict):
        OWN_STATUS.removed_from(status)
    assert json.dumps(obj) == before


@given(ANYTHING)
def test_each_reader_accepts_any_spec(spec: Any) -> None:
    obj = _object({}, spec)
    params.build(obj, watch_value(), cause={}, finalizing=False)
    params.has_template(spec)
    list(public.of_spec(spec))
    ObjectState.of(obj, (), whole=True, suspect=True)


METADATA = st.one_of(
    ANYTHING,
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ("annotations", "labels", "ownerReferences", "managedFields", "finalizers", "name"), ANYTHING
        ),
    ),
)


@given(METADATA, METADATA)
def test_each_reader_of_owners_accepts_any_metadata(sent: Any, stored: Any) -> None:
    definition, current = {"kind": "ConfigMap", "metadata": sent}, {"kind": "ConfigMap", "metadata": stored}
    for manager in (None, "x"):
        owners.own(definition, CR, CONFIG_MAP, "shop", current=current, manager=manager)
    owners.own(definition, CR, CONFIG_MAP, "shop")
    owners.adopt(definition, CR, CONFIG_MAP, "shop", current)
    for strategic in (False, True):
        owners.give_up(definition, CR, current, strategic=strategic)
    owners.without_annotations(definition)
    owners.is_about_owners(definition)
    claims_of(current)
