"""Runs that take too long, are superseded, or must not be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

HANGS_UNLESS_QUICK = """
- name: Say when it begins
  ansible.builtin.debug: {msg: "begun with {{ size }}"}
- name: Hang
  ansible.builtin.command: sleep 600
  when: size == 1
"""


def test_a_hung_run_is_ended_at_its_deadline_and_the_object_runs_again(
    project: Project, things: Things, api: Api
) -> None:
    project.role("thing", HANGS_UNLESS_QUICK)
    project.watch("thing")
    project.start("--run-timeout=18s")
    things.create("one", {"size": 1}, annotations={"ansible.sdk.operatorframework.io/run-timeout": "15s"})
    things.create("two", {"size": 1})
    failure = things.await_condition("two", "Failure")
    assert "took longer than 18s" in failure["message"]
    failure = things.await_condition("one", "Failure")
    assert failure["reason"] == "TimedOut"
    assert "took longer than 15s" in failure["message"]
    assert "task 'Hang'" in failure["message"]
    assert "roles/thing/tasks/main.yml:4" in failure["message"]

    def logged() -> list[str]:
        found = api.call("GET", f"/apis/events.k8s.io/v1/namespaces/{things.namespace}/events")["items"]
        return [
            each["note"] for each in found if each["reason"] == "RunTimedOut" and each["regarding"]["name"] == "one"
        ]

    (note,) = wait_until(logged, "an Event")
    assert "took longer than 15s" in note
    things.merge("one", {"spec": {"size": 2}})
    things.await_success("one")


def test_a_newer_spec_and_a_deletion_end_a_run_that_is_pointless_now(project: Project, things: Things) -> None:
    project.role("thing", HANGS_UNLESS_QUICK)
    project.role("cleanup", "- name: Clean up\n  ansible.builtin.debug: {msg: clean}\n")
    project.watch(
        "thing",
        onChange="cancel",
        onDelete="cancel",
        finalizer={"name": "test.example.com/cleanup", "role": "cleanup"},
    )
    operator = project.start()
    for name in ("changed", "deleted"):
        things.create(name, {"size": 1})
        wait_until(lambda name=name: operator.lines(msg="Run started", name=name), f"{name}'s first run")  # type: ignore[misc]
    things.merge("changed", {"spec": {"size": 2}})
    things.await_success("changed")
    assert [run["outcome"] for run in operator.runs("changed")] == ["canceled", "succeeded"]
    assert "was changed meanwhile" in operator.runs("changed")[0]["error"]
    things.delete("deleted")
    things.await_gone("deleted")
    assert [run["outcome"] for run in operator.runs("deleted")] == ["canceled", "succeeded"]
    assert operator.lines(msg="Retrying the object with backoff") == []


def test_an_object_is_not_run_after_its_last_attempt_or_a_final_failure_until_it_changes(
    project: Project, things: Things
) -> None:
    project.role(
        "thing",
        """
        - name: Refuse for good
          operator_sdk.util.fail_terminal: {msg: this can never work}
          when: size == 1 or (size == 4 and a_misspelt_name.is_set)
        - name: Refuse for now
          ansible.builtin.fail: {msg: not today}
          when: size == 2
        """,
    )
    project.watch("thing", retry={"delay": "100ms", "attempts": 2})
    operator = project.start()
    for name, size, runs, said in (
        ("final", 1, 1, "terminal failure"),
        ("tired", 2, 2, "2 runs failed in a row"),
        ("broken", 4, 2, "2 runs failed in a row"),
    ):
        things.create(name, {"size": size})
        logged = operator.await_line("No further run", name=name)
        assert said in logged["why"]
        wait_until(
            lambda name=name, said=said: said in things.conditions(name).get("Failure", {}).get("message", ""),  # type: ignore[misc]
            f"{name} to say so",
        )
        assert len(operator.runs(name)) == runs
        things.merge(name, {"spec": {"size": 3}})
        things.await_success(name)
        assert len(operator.runs(name)) == runs + 1


def test_a_paused_object_does_not_run_until_it_is_resumed(project: Project, things: Things) -> None:
    annotation = "ansible.sdk.operatorframework.io/paused"
    project.role("thing", "- name: Do nothing\n  ansible.builtin.debug: {msg: fine}\n")
    project.watch("thing", finalizer={"name": "test.example.com/cleanup", "role": "thing"})
    operator = project.start()
    things.create("one", {"size": 1}, annotations={annotation: "true"})
    assert things.await_condition("one", "Running", "False")["reason"] == "Paused"
    things.merge("one", {"spec": {"size": 2}})
    things.await_condition("one", "Running", "False")
    assert operator.runs("one") == []
    assert "finalizers" not in (things.get("one") or {})["metadata"]
    things.merge("one", {"metadata": {"annotations": {annotation: None}}})
    things.await_success("one")
    things.merge("one", {"metadata": {"annotations": {annotation: "true"}}})
    things.await_condition("one", "Running", "False")
    things.delete("one")
    wait_until(lambda: (things.get("one") or {})["metadata"].get("deletionTimestamp"), "the deletion to be asked for")
    assert len(operator.runs("one")) == 1
    things.merge("one", {"metadata": {"annotations": {annotation: None}}})
    things.await_gone("one")
    assert len(operator.runs("one")) == 2
