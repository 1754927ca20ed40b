"""What Argo CD reads of an object: the snippet of docs/status.md, run by a Lua of the version that Argo CD has."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from lupa import lua51

from runner.core.status import report
from runner.values.objects import Object
from tests.kit.status_world import CANCELED, FAILURE, SUCCESS, TIMEOUT, World

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
