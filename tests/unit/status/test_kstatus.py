"""How kstatus and Argo CD judge an object by its status."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from lupa import lua51

from runner.app.features import OWN_STATUS
from runner.core.engine.job import Outcome, RunResult, TaskFailure
from runner.core.status import report
from runner.core.status.conditions import find
from runner.core.status.patch import dropped_fields
from runner.features.loopguard.reports import contended
from runner.features.plan import plan_status
from runner.values.objects import Object
from tests.kit.kstatus import kstatus
from tests.kit.status_world import CANCELED, FAILURE, SUCCESS, TIMEOUT, World


def test_a_new_object_is_in_progress_until_its_run_has_succeeded() -> None:
    world = World()
    assert world.begin() == "InProgress"
    assert world.health == {"Ready": ("Unknown", "RunStarted"), "Reconciling": ("True", "RunStarted")}
    assert world.end(SUCCESS) == "Current"
    assert world.health == {"Ready": ("True", "RunSucceeded")}
    assert world.obj["status"]["observedGeneration"] == 1


def test_a_changed_object_is_in_progress_from_its_change_on() -> None:
    world = World()
    world.end(SUCCESS)
    world.change()
    assert kstatus(world.obj) == "InProgress"
    assert world.begin() == "InProgress"
    assert world.health["Ready"] == ("Unknown", "RunStarted")
    assert world.end(SUCCESS) == "Current"
    assert world.obj["status"]["observedGeneration"] == 2


def test_a_failure_that_is_tried_again_is_in_progress_and_one_that_is_not_has_failed() -> None:
    world = World()
    assert world.end(FAILURE) == "InProgress"
    assert world.health == {"Ready": ("False", "RunFailed"), "Reconciling": ("True", "RunFailed")}
    assert world.begin() == "InProgress"
    assert world.health["Ready"] == ("False", "RunFailed"), "what is known of this generation still holds"
    assert world.end(TIMEOUT, final=True) == "Failed"
    assert world.health == {"Ready": ("False", "RunTimedOut"), "Stalled": ("True", "RunTimedOut")}
    world.change()
    assert world.begin() == "InProgress"
    assert world.end(SUCCESS) == "Current"


def test_a_long_message_leaves_room_for_the_place_of_its_task() -> None:
    long = RunResult(Outcome.FAILED, None, (TaskFailure("Deploy", "ü" * 9000, "t.yml:3"),), "", None, 1.0)
    said = report.first_failure(long)
    assert said.endswith("ü… (task 'Deploy', t.yml:3)")
    assert len(said.encode()) < 700


def test_a_run_after_a_restart_keeps_the_object_ready() -> None:
    world = World()
    world.end(SUCCESS)
    assert world.begin() == "InProgress"
    assert world.health["Ready"] == ("True", "RunSucceeded")
    assert world.end(CANCELED) == "InProgress"
    assert world.health == {"Ready": ("True", "RunSucceeded"), "Reconciling": ("True", "RunCanceled")}


def test_a_pause_is_current_only_where_the_generation_has_been_run() -> None:
    world = World()
    assert world.write(report.paused()) == "InProgress"
    assert world.health == {"Ready": ("Unknown", "RunsPaused")}
    world.end(SUCCESS)
    assert world.write(report.paused()) == "Current"
    world.change()
    assert world.write(report.paused()) == "InProgress"


def test_an_object_being_deleted_is_terminating() -> None:
    world = World(deletionTimestamp="2027-01-15T08:00:00Z")
    assert world.end(FAILURE) == "Terminating"


def test_a_contention_does_not_change_the_observed_generation() -> None:
    world = World()
    world.end(SUCCESS)
    world.change()
    assert world.write(contended("DependentChangedAgain", "spec.replicas is changed")) == "InProgress"
    assert world.obj["status"]["observedGeneration"] == 1


def test_an_unchanged_status_is_not_written() -> None:
    world = World()
    for _ in range(3):
        world.end(SUCCESS)
    assert world.writes == 1
    for _ in range(3):
        world.end(FAILURE)
    assert world.writes == 2


def test_a_roles_own_ready_wins() -> None:
    world = World()
    own = {"type": "Ready", "status": "False", "reason": "ClusterForming", "message": "1 of 3"}
    world.obj["status"] = {"conditions": [own]}
    world.begin()
    for said in (report.run_began(world.obj), report.run_ended(SUCCESS, report.FailureDetails())):
        # What waits for the end of the run is not what the schema drops.
        assert dropped_fields(world.obj, report.observed(world.obj, said), OWN_STATUS) == []
        world.end(SUCCESS)
    assert find(world.obj["status"]["conditions"], "Ready") == own


def test_a_roles_own_ready_is_about_the_generation_that_was_run_to_its_end() -> None:
    world = World()
    world.obj["status"] = {"conditions": [{"type": "Ready", "status": "True", "reason": "AllServersUp"}]}
    assert world.end(SUCCESS) == "Current"
    world.change()
    world.begin()
    assert world.obj["status"]["observedGeneration"] == 1, "or else kubectl wait would take the old answer for the new"
    assert world.end(SUCCESS) == "Current"
    assert world.obj["status"]["observedGeneration"] == 2


@pytest.mark.parametrize("mine", [{"type": "Ready", "status": "True"}, {"type": "Stalled", "status": "True"}], ids=str)
def test_a_condition_without_a_reason_is_not_changed(mine: dict[str, str]) -> None:
    world = World()
    world.obj["status"] = {"conditions": [mine]}
    world.end(SUCCESS)
    assert mine in world.obj["status"]["conditions"]


def test_disabled_health_conditions_are_not_written_and_existing_ones_removed() -> None:
    world = World()
    world.write(report.run_ended(SUCCESS, report.FailureDetails()), health=False)
    assert world.health == {}
    assert "observedGeneration" not in world.obj["status"]
    world.end(FAILURE)
    world.write(report.run_began(world.obj), health=False)
    assert world.health == {}
    assert "observedGeneration" not in world.obj["status"]


def test_a_kind_without_generations_is_read_by_its_conditions() -> None:
    world = World()
    del world.obj["metadata"]["generation"]
    assert world.begin() == "InProgress"
    assert world.end(SUCCESS) == "Current"


def test_a_plan_that_succeeds_ends_the_failure_of_the_one_before_and_not_that_of_a_run() -> None:
    world = World()
    failed = plan_status.made("False", plan_status.PLAN_FAILED, "no such role", {})
    assert world.write(failed) == "InProgress"
    assert world.health == {"Ready": ("False", "PlanFailed"), "Reconciling": ("True", "PlanFailed")}
    made = plan_status.made("True", plan_status.CHANGES, "Plan 1: 1 to create", {"hash": "1"})
    world.write(made)
    assert world.health == {"Ready": ("Unknown", "PlanNotExecuted")}
    world.end(FAILURE)
    world.write(made)
    assert world.health["Ready"] == ("False", "RunFailed")


DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "status.md"
HEALTH = "resource.customizations.health."

Judge: TypeAlias = Callable[[Object], tuple[str, str]]
"""Returns status and message for an object."""


def judge(snippet: str) -> Judge:
    """As Argo CD does it: the object is the global `obj`, and the script returns a table."""

    def run(obj: Object) -> tuple[str, str]:
        lua = lua51.LuaRuntime(register_eval=False, register_builtins=False)
        lua.globals().obj = lua.table_from(obj, recursive=True)
        found = lua.execute(snippet)
        return found.status, found.message

    return run


@pytest.fixture(scope="session")
def snippet() -> str:
    blocks = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (data,) = (yaml.safe_load(block)["data"] for block in blocks if HEALTH in block)
    ((key, script),) = data.items()
    assert key == f"{HEALTH}cache.example.com_Memcached", "GROUP_KIND is what Argo CD looks for"
    assert isinstance(script, str)
    return script


@pytest.fixture
def argocd(snippet: str) -> Judge:
    return judge(snippet)


@pytest.mark.parametrize(
    "found", [{}, {"status": {}}, {"status": {"conditions": []}}, {"status": {"size": 3}}], ids=str
)
def test_an_object_without_conditions_has_not_been_run(argocd: Judge, found: dict[str, Any]) -> None:
    assert argocd({"metadata": {"name": "a", "generation": 1}, **found}) == ("Progressing", "Not run yet")


def succeed(world: World) -> None:
    world.end(SUCCESS)


def fail(world: World) -> None:
    world.end(FAILURE)


def fail_finally(world: World) -> None:
    world.end(TIMEOUT, final=True)


def pause(world: World) -> None:
    world.write(report.paused())


def of_role(ready: str) -> Callable[[World], object]:
    own = {"type": "Ready", "status": ready, "reason": "ClusterForming", "message": "2 of 3"}
    return lambda world: world.obj.update(status={"conditions": [own]})


UNUSABLE = report.unusable("annotation x: write a duration")
CASES: dict[str, tuple[list[Callable[[World], object]], str, str]] = {
    "begun": ([World.begin], "Progressing", ""),
    "succeeded": ([succeed], "Healthy", "Last reconciliation succeeded"),
    "changed": ([succeed, World.change], "Progressing", "Its latest change has not been run yet"),
    "changed and begun": ([succeed, World.change, World.begin], "Progressing", ""),
    "failed": ([fail], "Degraded", "no such image (task 'Deploy', t.yml:3)"),
    "tried again": ([fail, World.begin], "Degraded", ""),
    "failed finally": ([fail, fail_finally], "Degraded", "the run took longer than 1s and was ended"),
    "changed after a failure": ([fail_finally, World.change, World.begin], "Progressing", ""),
    "unusable": ([lambda world: world.write(UNUSABLE)], "Degraded", "annotation x: write a duration"),
    "paused": ([pause], "Suspended", ""),
    "paused after a success": ([succeed, pause], "Healthy", ""),
    "paused after a change": ([succeed, World.change, pause], "Suspended", ""),
    "canceled": ([lambda world: world.end(CANCELED)], "Progressing", ""),
    "not ready by its role": ([of_role("False"), succeed], "Degraded", "2 of 3"),
    "ready by its role": ([of_role("True"), succeed], "Healthy", "2 of 3"),
}


@pytest.mark.parametrize(("steps", "status", "message"), CASES.values(), ids=CASES)
def test_the_health_of_an_object_is_the_result_of_its_generation(
    argocd: Judge, steps: list[Callable[[World], object]], status: str, message: str
) -> None:
    world = World()
    for step in steps:
        step(world)
    found = argocd(world.obj)
    assert found == (status, message or found[1])
