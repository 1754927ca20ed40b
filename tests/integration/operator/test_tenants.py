"""A user who may only write custom resources in one namespace harms nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.integration.operator.conftest import Project, Things


def _nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


def test_objects_that_nest_too_deeply_are_reported_and_all_others_run(project: Project, things: Things) -> None:
    project.role("thing", "    - ansible.builtin.debug: {msg: hello}\n")
    project.watch("thing")
    operator = project.start()
    for levels in (300, 900, 1500):
        things.create(f"deep-{levels}", {"tree": _nested(levels)})
    things.create("neighbour", {"size": 1})

    things.await_success("neighbour")
    for levels in (300, 900, 1500):
        failure = things.await_condition(f"deep-{levels}", "Failure")
        assert failure["reason"] == "Unusable"
        assert "nests deeper than" in failure["message"]
    things.merge("neighbour", {"spec": {"size": 2}})
    things.await_success("neighbour")
    assert operator.is_ready()

    things.merge("deep-1500", {"spec": {"tree": None}})
    things.await_success("deep-1500")

    operator.stop()
    project.start()
    things.create("later")
    things.await_success("later")
