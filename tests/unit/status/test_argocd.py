"""What Argo CD reads of an object: the snippet of docs/status.md, run by a Lua of the version that Argo CD has."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from lupa import lua51

from runner.objects import Object
from runner.status import report
from tests.kit.status_world import CANCELED, FAILURE, SUCCESS, TIMEOUT, World

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "status.md"
HEALTH = "resource.customizations.health."
FAILED = (
    'elseif ready ~= nil and ready.status == "False" then\n  hs = { status = "Degraded", message = ready.message }\n'
)

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


def test_an_object_is_healthy_from_its_success_to_its_next_change(argocd: Judge) -> None:
    world = World()
    world.begin()
    assert argocd(world.obj)[0] == "Progressing"
    world.end(SUCCESS)
    assert argocd(world.obj) == ("Healthy", "Last reconciliation succeeded")
    world.change()
    assert argocd(world.obj) == ("Progressing", "Its latest change has not been run yet")
    world.begin()
    assert argocd(world.obj)[0] == "Progressing"


def test_a_failure_is_shown_with_the_tasks_message_also_while_it_is_tried_again(argocd: Judge) -> None:
    world = World()
    world.end(FAILURE)
    assert argocd(world.obj) == ("Degraded", "no such image (task 'Deploy', t.yml:3)")
    world.begin()
    assert argocd(world.obj)[0] == "Degraded"
    world.end(TIMEOUT, final=True)
    assert argocd(world.obj) == ("Degraded", "the run took longer than 1s and was ended")
    world.change()
    world.begin()
    assert argocd(world.obj)[0] == "Progressing"


def test_without_the_documented_branch_only_a_terminal_failure_is_shown(snippet: str) -> None:
    assert FAILED in snippet
    argocd = judge(snippet.replace(FAILED, ""))
    world = World()
    world.end(FAILURE)
    assert argocd(world.obj) == ("Progressing", "no such image (task 'Deploy', t.yml:3)")
    world.end(FAILURE, final=True)
    assert argocd(world.obj)[0] == "Degraded"


def test_an_object_that_cannot_be_run_is_degraded(argocd: Judge) -> None:
    world = World()
    world.write(report.unusable("annotation x: write a duration"))
    assert argocd(world.obj) == ("Degraded", "annotation x: write a duration")


def test_a_paused_object_is_suspended_unless_it_is_as_it_should_be(argocd: Judge) -> None:
    world = World()
    world.write(report.paused())
    assert argocd(world.obj)[0] == "Suspended"
    world.end(SUCCESS)
    world.write(report.paused())
    assert argocd(world.obj)[0] == "Healthy"
    world.change()
    world.write(report.paused())
    assert argocd(world.obj)[0] == "Suspended"


def test_an_object_whose_run_was_canceled_is_progressing(argocd: Judge) -> None:
    world = World()
    world.end(CANCELED)
    assert argocd(world.obj)[0] == "Progressing"


@pytest.mark.parametrize(("value", "wanted"), [("False", "Degraded"), ("True", "Healthy")])
def test_a_roles_own_ready_counts(argocd: Judge, value: str, wanted: str) -> None:
    world = World()
    own = {"type": "Ready", "status": value, "reason": "ClusterForming", "message": "2 of 3"}
    world.obj["status"] = {"conditions": [own]}
    world.end(SUCCESS)
    assert argocd(world.obj) == (wanted, "2 of 3")
