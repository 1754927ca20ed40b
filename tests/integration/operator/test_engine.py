"""Which engine runs take, and what the operator says where no run can be forked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Things
    from tests.kit.operator import Operator, Project

ASTRAY = {"ANSIBLE_FILTER_PLUGINS": "../relative"}
WHY = "DEFAULT_FILTER_PLUGIN_PATH depend on the working folder"
HELLO = "- name: Say hello\n  ansible.builtin.debug: {msg: hello}\n"
READY, STARTED = "Fork server is ready", "Run's process started"


def test_an_operator_that_requires_the_warm_engine_is_not_ready_without_it(project: Project) -> None:
    project.role("thing", "- debug: {msg: hi}")
    project.watch("thing")
    operator = project.start("--engine=warm", environment=ASTRAY)

    wait_until(lambda: not operator.is_ready(), "the operator not to be ready any more")

    assert "[-]engine failed: " in operator.get("/readyz")
    assert WHY in operator.get("/readyz")
    assert operator.get("/healthz") == "ok"


def test_an_operator_that_prefers_the_warm_engine_runs_objects_without_it_and_counts_it(
    project: Project, things: Things
) -> None:
    project.role("thing", "- debug: {msg: hi}")
    project.watch("thing")
    operator = project.start("--engine=auto", environment=ASTRAY)

    def reasons() -> list[str]:
        message = "Runs are not forked from a fork server; they start new interpreters and take longer"
        return [line["reason"] for line in operator.lines(msg=message)]

    # On a busy machine, the first reason is that the server loads for long.
    wait_until(lambda: any(WHY in reason for reason in reasons()), "the reason why runs are not forked")
    assert operator.is_ready()
    assert "ansible_operator_warm_engine_problem 1.0" in operator.get("/metrics")
    things.create("one")
    things.await_success("one")


def servers_before_first_run(operator: Operator) -> int:
    messages = [line["msg"] for line in operator.lines() if line["msg"] in {READY, STARTED}]
    return messages.index(STARTED)


def test_the_first_run_is_forked_from_the_server_started_with_the_operator(project: Project, things: Things) -> None:
    project.role("thing", HELLO)
    project.watch("thing")
    operator = project.start("--log-level=debug")
    operator.await_line(READY)

    things.create("one")
    things.await_success("one")

    assert servers_before_first_run(operator) == 1
    assert "Runs are not forked" not in operator.log
