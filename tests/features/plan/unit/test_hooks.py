"""When an approval of a plan counts, and what the conditions report otherwise."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.core.kube.client import Client
from runner.core.reconcile.attempt import AnnotationOverrides
from runner.core.watches.policy import RunMode
from runner.features.plan import hooks as planning
from runner.features.plan import published
from runner.features.plan.approved import Execute, PlanAgain, PlanDecision, Publish, Reject, decide, is_approved
from runner.features.plan.changes import DifferingValue, ObjectChange, ResourcePlan
from runner.features.plan.fields import FieldChange
from runner.features.plan.plan_status import APPROVE
from runner.features.plan.published import PlanBasis
from runner.features.plan.runs import PlanConfigMaps
from runner.features.plan.tasks import UnplannedTask
from runner.features.rollout import hooks as rollout
from runner.values.errors import ApiError, ConflictError, ForbiddenError, InvalidError, NotFoundError, ServerError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef
from tests.unit.controller.attempts import THINGS, attempt_value

REF = ObjectRef(GVK("example.com", "v1", "Web"), ObjectKey("shop", "w"), "u")
CHANGE = ObjectChange(
    "change", GVK("", "v1", "Secret"), ObjectKey("shop", "s"), (FieldChange("data.k", "<masked>", 2),)
)
PLAN = ResourcePlan(REF, "complete", (CHANGE,))
BASIS = PlanBasis(PLAN, "u", 3, "role", {})
STATUS = published.status(BASIS, "nonce", "now", "", {})
USED = {**STATUS, "approval": {"hash": STATUS["hash"], "state": "Running"}}


def overrides(mode: RunMode = "approve") -> AnnotationOverrides:
    return AnnotationOverrides(None, None, None, None, mode, (), ())


def obj(approved: str, *conditions: dict[str, Any]) -> Object:
    return {"metadata": {"annotations": {APPROVE: approved}}, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("approved", "plan", "mode", "counts"),
    [
        (STATUS["hash"], STATUS, "approve", True),
        (STATUS["hash"], STATUS, "plan", False),
        ("other", STATUS, "approve", False),
        ("", {}, "approve", False),
        ("", {**STATUS, "hash": ""}, "approve", False),
        (STATUS["hash"], USED, "approve", False),
        (STATUS["hash"], {**STATUS, "approval": {"hash": "earlier"}}, "approve", True),
    ],
)
def test_an_approval_counts_once_for_the_current_plan(
    approved: str, plan: dict[str, Any], mode: RunMode, *, counts: bool
) -> None:
    assert is_approved(obj(approved), plan, overrides(mode)) is counts


COVERED, UNCOVERED = (
    DifferingValue(GVK("", "v1", kind), ObjectKey("shop", "s"), "data.k", is_new=True)
    for kind in ("Secret", "ConfigMap")
)
SAME = replace(BASIS, plan=replace(PLAN, changes=()))


@pytest.mark.parametrize(
    ("plan", "basis", "withheld", "approved", "differing", "decision"),
    [
        pytest.param(PLAN, BASIS, "", None, None, Publish(), id="a plan without an approval"),
        pytest.param(replace(PLAN, state="failed"), BASIS, "", STATUS, (), Publish(), id="a plan that failed"),
        pytest.param(
            *(PLAN, BASIS, "withheld: why", STATUS, ()),
            Reject("the values of the plan are withheld: why"),
            id="a plan without values",
        ),
        pytest.param(PLAN, BASIS, "", STATUS, None, PlanAgain(), id="the approved plan, and no second one"),
        pytest.param(PLAN, BASIS, "", STATUS, (), Execute(()), id="the approved plan, and an equal second one"),
        pytest.param(PLAN, BASIS, "", STATUS, (COVERED,), Execute((COVERED,)), id="values that the approval covers"),
        pytest.param(
            *(PLAN, BASIS, "", STATUS, (COVERED, UNCOVERED)),
            Reject(published.random_values(published.named((COVERED, UNCOVERED))).removeprefix(". ")),
            id="values that the approval does not cover",
        ),
        pytest.param(
            *(SAME.plan, SAME, "", published.status(SAME, "nonce", "now", "", {}), None),
            Execute(()),
            id="a plan without changes needs no second one",
        ),
    ],
)
def test_the_verdict_about_a_plan(
    plan: ResourcePlan,
    basis: PlanBasis,
    withheld: str,
    approved: dict[str, Any] | None,
    differing: tuple[DifferingValue, ...] | None,
    decision: PlanDecision,
) -> None:
    assert decide(plan, basis, withheld, approved, differing) == decision


def test_an_approved_plan_that_differs_now_is_rejected_with_the_difference() -> None:
    decision = decide(PLAN, replace(BASIS, generation=4), "", STATUS, ())
    assert isinstance(decision, Reject)
    assert "generation 3 → 4" in decision.why


def test_an_approval_of_an_earlier_plan_is_reported_once_with_the_difference() -> None:
    assert planning._outdated(obj(""), STATUS, overrides()) == ""
    assert planning._outdated(obj(STATUS["hash"]), STATUS, overrides()) == ""
    assert planning._outdated(obj("earlier"), {**STATUS, "approval": {"hash": "earlier"}}, overrides()) == ""
    assert planning._outdated(obj("earlier"), STATUS, overrides("plan")) == ""
    replaced = {**STATUS, "replaces": {"hash": "earlier", "because": "the role changed"}}
    why = planning._outdated(obj("earlier"), replaced, overrides())
    assert why == "Plan earlier is not the current plan, so it was not executed: the role changed"
    reported = {"type": "PlanStale", "status": "True", "message": why}
    assert planning._outdated(obj("earlier", reported), replaced, overrides()) == ""


def test_the_condition_contains_the_command_only_if_the_plan_can_be_approved() -> None:
    made = {"hash": "h"}
    assert f"set the annotation {APPROVE} to h" in planning._condition(PLAN, made, "approve")[2]
    assert APPROVE not in planning._condition(PLAN, made, "plan")[2]
    assert planning._condition(replace(PLAN, changes=()), made, "approve") == (
        "True",
        "NoChanges",
        "Plan h: no changes",
    )
    task = UnplannedTask("Call it", "main.yml:3", "ansible.builtin.uri", "no check mode")
    partial = planning._condition(replace(PLAN, changes=(), state="partial", unplanned=(task,)), made, "approve")
    assert partial[1:] == (
        "Partial",
        f"Plan h: no changes; 1 task was not planned. To execute it, set the annotation {APPROVE} to h",
    )
    random = planning._condition(PLAN, {**made, "random": ["Secret shop/a data.password"]}, "approve")[2]
    assert "The approval covers random values of new Secrets: Secret shop/a data.password. To execute it" in random
    differing = planning._condition(PLAN, {**made, "differing": ["ConfigMap shop/b data.token"]}, "approve")[2]
    assert "so that the plan cannot be executed: ConfigMap shop/b data.token" in differing
    assert APPROVE not in differing
    failed = replace(PLAN, state="failed", message="why")
    assert planning._condition(failed, {}, "approve") == ("False", "PlanFailed", "why")


def test_a_rollout_does_not_wait_for_an_approval_of_a_plan_that_changes_nothing() -> None:
    plain = attempt_value({"metadata": {"name": "one"}}, overrides=overrides())
    attempt = rollout._executing(plain, "a" * 24)
    idle = replace(PLAN, changes=())
    (condition,) = planning._up_to_date(attempt, idle)
    assert (condition["type"], condition["status"]) == ("Updated", "True")
    assert "a" * 24 in condition["message"]
    assert planning._up_to_date(attempt, PLAN) == ()
    assert planning._up_to_date(attempt, replace(idle, state="partial")) == ()
    assert planning._up_to_date(attempt, replace(idle, state="failed")) == ()
    assert planning._up_to_date(plain, idle) == ()
    assert planning._up_to_date(replace(attempt, overrides=overrides("plan")), idle) == ()


OBJ = {"metadata": {"name": "one", "namespace": "ns", "uid": "u"}}


class _Server:
    """Has no ConfigMap, and answers each creation with an error."""

    credentials = SimpleNamespace(namespace="operator")

    def __init__(self, error: ApiError) -> None:
        self._error = error

    async def get(self, *_: Any) -> None:
        raise NotFoundError("none", status=404)

    async def create(self, *_: Any) -> None:
        raise self._error


@pytest.mark.parametrize(
    "error",
    [
        ForbiddenError("no right", status=403),
        ApiError("too large", status=413),
        InvalidError("no", status=422),
        ConflictError("exists", status=409),
        NotFoundError("no namespace", status=404),
    ],
    ids=lambda error: str(error.status),
)
async def test_a_refused_config_map_is_omitted_and_logged_once(
    error: ApiError, capsys: pytest.CaptureFixture[str]
) -> None:
    maps = PlanConfigMaps(THINGS, cast("Client", _Server(error)))
    made = ResourcePlan(ObjectRef.of(THINGS, OBJ), "complete")
    assert [await maps.write(attempt_value(OBJ), made) for _ in range(3)] == [""] * 3
    assert capsys.readouterr().out.count("Cannot write the ConfigMap of a plan") == 1


async def test_an_outage_repeats_the_plan() -> None:
    maps = PlanConfigMaps(THINGS, cast("Client", _Server(ServerError("down", status=500))))
    with pytest.raises(ServerError):
        await maps.write(attempt_value(OBJ), ResourcePlan(ObjectRef.of(THINGS, OBJ), "complete"))


async def test_the_yaml_of_a_plan_does_not_stop_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def data(_: ResourcePlan) -> dict[str, str]:
        threads.append(threading.current_thread())
        return {}

    monkeypatch.setattr(published, "data", data)
    maps = PlanConfigMaps(THINGS, cast("Client", _Server(ForbiddenError("no right", status=403))))
    await maps.write(attempt_value(OBJ), ResourcePlan(ObjectRef.of(THINGS, OBJ), "complete"))
    assert threads != [threading.main_thread()]
