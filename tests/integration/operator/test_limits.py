"""Runs that take too long, are superseded, or must not be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Things
    from tests.kit.operator import Project

HANGS_UNLESS_QUICK = """
- name: Say when it begins
  ansible.builtin.debug: {msg: "begun with {{ size }}"}
- name: Hang
  ansible.builtin.command: sleep 600
  when: size == 1
"""


REFUSES = """
- name: Refuse for good
  operator_sdk.util.fail_terminal: {msg: this can never work}
  when: size == 2 or (size == 4 and a_misspelt_name.is_set)
- name: Refuse for now
  ansible.builtin.fail: {msg: not today}
  when: size == 3
"""


@pytest.mark.full
def test_a_run_that_hangs_or_is_pointless_ends_and_none_follows_a_pause_the_last_attempt_or_a_final_failure(
    project: Project, things: Things
) -> None:
    project.role("thing", HANGS_UNLESS_QUICK + REFUSES)
    project.role("cleanup", "- name: Clean up\n  ansible.builtin.debug: {msg: clean}\n")
    project.watch(
        "thing",
        onChange="cancel",
        onDelete="cancel",
        finalizer={"name": "test.example.com/cleanup", "role": "cleanup"},
        retry={"delay": "100ms", "attempts": 2},
    )
    operator = project.start("--run-timeout=18s")
    things.create("one", {"size": 1}, annotations={"ansible.sdk.operatorframework.io/run-timeout": "15s"})
    things.create("two", {"size": 1})
    for name in ("changed", "deleted"):
        things.create(name, {"size": 1})
        wait_until(lambda name=name: operator.lines(msg="Run started", name=name), f"{name}'s first run")  # type: ignore[misc]
    things.merge("changed", {"spec": {"size": 5}})
    things.await_success("changed")
    assert [run["outcome"] for run in operator.runs("changed")] == ["canceled", "succeeded"]
    assert "was changed meanwhile" in operator.runs("changed")[0]["error"]
    things.delete("deleted")
    things.await_gone("deleted")
    assert [run["outcome"] for run in operator.runs("deleted")] == ["canceled", "succeeded"]
    for name in ("changed", "deleted"):
        assert operator.lines(msg="Retrying the object with backoff", name=name) == []

    assert "took longer than 18s" in things.await_condition("two", "Failure")["message"]
    failure = things.await_condition("one", "Failure")
    assert failure["reason"] == "TimedOut"
    for text in ("took longer than 15s", "task 'Hang'", "roles/thing/tasks/main.yml:4"):
        assert text in failure["message"]

    (event,) = wait_until(lambda: things.events("one", "RunTimedOut"), "an Event")
    assert "took longer than 15s" in event["note"]
    things.merge("one", {"spec": {"size": 5}})
    things.await_success("one")

    for name, size, runs, said in (
        ("final", 2, 1, "terminal failure"),
        ("tired", 3, 2, "2 runs failed in a row"),
        ("broken", 4, 2, "2 runs failed in a row"),
    ):
        things.create(name, {"size": size})
        logged = operator.await_line("No further run", name=name)
        assert said in logged["why"]
        things.await_condition(name, "Failure", saying=said)
        assert len(operator.runs(name)) == runs
        things.merge(name, {"spec": {"size": 5}})
        things.await_success(name)
        assert len(operator.runs(name)) == runs + 1

    annotation = "ansible.sdk.operatorframework.io/paused"
    things.create("paused", {"size": 5}, annotations={annotation: "true"})
    assert things.await_condition("paused", "Running", "False")["reason"] == "Paused"
    things.merge("paused", {"spec": {"size": 6}})
    things.await_condition("paused", "Running", "False")
    assert operator.runs("paused") == []
    assert "finalizers" not in things.get("paused")["metadata"]
    things.merge("paused", {"metadata": {"annotations": {annotation: None}}})
    things.await_success("paused")
    things.merge("paused", {"metadata": {"annotations": {annotation: "true"}}})
    things.await_condition("paused", "Running", "False")
    things.delete("paused")
    wait_until(lambda: things.get("paused")["metadata"].get("deletionTimestamp"), "the deletion to be asked for")
    assert len(operator.runs("paused")) == 1
    things.merge("paused", {"metadata": {"annotations": {annotation: None}}})
    things.await_gone("paused")
    assert len(operator.runs("paused")) == 2
