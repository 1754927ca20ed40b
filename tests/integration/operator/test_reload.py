"""Edits of a running operator's files: taken up without a restart, and never half."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Things
    from tests.kit.operator import Operator, Project

SAY = """
- name: Say it
  ansible.builtin.debug:
    msg: {}
"""
WAIT = """
- name: Say it
  ansible.builtin.debug:
    msg: begun
- name: Wait for the file
  ansible.builtin.wait_for:
    path: "{{ gate }}"
    sleep: 1
"""


def _save(project: Project) -> None:
    project.write("watches.yaml", yaml.safe_dump(project.watches))


def _ended(operator: Operator, name: str) -> list[tuple[str, str]]:
    return [(run["reason"], run["outcome"]) for run in operator.runs(name)]


def test_an_edited_role_runs_again_and_an_invalid_edit_is_ignored_until_it_is_corrected(
    project: Project, things: Things
) -> None:
    project.role("thing", SAY.format("first"))
    project.watch("thing")
    operator = project.start("--reload")
    things.create("a")
    operator.await_line("Run ended", name="a")

    project.role("thing", SAY.format("second"))
    operator.await_line("Run ended", name="a", reason="role edited")
    wait_until(lambda: "second" in operator.log, "the edited task's output")

    project.role("thing", "- name: [broken\n")
    problem = operator.await_line("The edit is invalid and not applied; fix it")["problem"]
    assert "roles/thing/tasks/main.yml" in problem
    project.role("thing", SAY.format("third"))
    operator.await_line("The project is valid again")
    wait_until(lambda: len(operator.runs("a")) == 3, "the run after mending")
    wait_until(lambda: "third" in operator.log, "the mended task's output")
    assert _ended(operator, "a") == [("created", "succeeded")] + 2 * [("role edited", "succeeded")]
    assert len(operator.lines(msg="Starting")) == 1
    assert operator.stop() == 0


def test_changed_watches_apply_after_active_runs_have_ended(project: Project, things: Things) -> None:
    gate = project.folder / "gate"
    project.role("waiting", WAIT)
    project.role("other", SAY.format("by the other role"))
    project.watch("waiting", vars={"gate": str(gate)})
    operator = project.start("--reload")
    pid = operator.process.pid
    things.create("a")
    operator.await_line("Run started", name="a")

    project.write("watches.yaml", "- version: v1\n  kind: Thing\n  role: nowhere\n")
    logged = operator.await_line("The edit is invalid and not applied; fix it")
    assert logged["problem"].startswith("watches.yaml:3: ")

    project.watches[0] |= {"role": "other", "vars": {}}
    _save(project)
    operator.await_line("The watches were edited; applying them once the runs in progress have ended")
    assert operator.runs("a") == []
    gate.touch()
    wait_until(lambda: len(operator.runs("a")) == 2, "a run by the other role")
    assert [run["content"] for run in operator.lines(msg="Run started", name="a")] == ["waiting", "other"]
    assert _ended(operator, "a") == [("created", "succeeded"), ("present at start", "succeeded")]
    things.create("b")
    operator.await_line("Run ended", name="b", outcome="succeeded")
    assert operator.process.pid == pid
    assert operator.stop() == 0


def test_a_mistyped_kind_costs_no_output_of_runs_and_the_page_keeps_its_address(
    project: Project, things: Things
) -> None:
    project.role("thing", SAY.format("said"))
    project.watch("thing")
    operator = project.start("--reload")
    things.create("a")
    operator.await_line("Run ended", name="a")
    (run,) = (project.folder / "runs").glob("test.example.com/v1/Thing/*/a/artifacts/2*/stdout")

    for kind, runs in (("Thingg", 1), ("Thing", 2)):
        project.watches[0]["kind"] = kind
        _save(project)
        wait_until(lambda kind=kind: operator.lines(msg="Watching")[-1]["gvk"].endswith(kind), kind)  # type: ignore[misc]
        wait_until(lambda runs=runs: len(operator.lines(msg="Run ended", name="a")) == runs, f"{runs} runs")  # type: ignore[misc]
    wait_until(lambda: len(operator.lines(msg="Serving the status page")) == 3, "the page after each edit")
    assert len({line["url"] for line in operator.lines(msg="Serving the status page")}) == 1
    assert operator.stop() == 0
    assert "said" in run.read_text()
