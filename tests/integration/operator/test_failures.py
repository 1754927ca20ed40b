"""What a resource says of a run that went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Things
    from tests.kit.operator import Project


EACH_ITEM = """
- name: Go on with whoever is left
  ansible.builtin.set_fact:
    a_fact: 1
- name: The first one fails for every item
  ansible.builtin.fail:
    msg: "no {{ item }} today"
  loop: [bread, milk]
"""
ESCAPED = "- ansible.builtin.fail: {msg: \"<size> {{ size }} & 'more' \u2028 \\u2029 ü\"}\n"


def test_a_failure_of_ansible_with_all_its_items_and_any_text_is_in_the_condition(
    project: Project, things: Things
) -> None:
    project.role("each-item", EACH_ITEM)
    project.role("escaped", ESCAPED)
    project.role("thing", "- ansible.builtin.include_role: {name: '{{ how }}'}\n")
    project.watch("thing", retry={"attempts": 1})
    operator = project.start()
    for name, text in (("each-item", "no bread today"), ("escaped", "<size> 1 &")):
        things.create(name, {"how": name, "size": 1})
        things.await_condition(name, "Failure", saying=text)

    failure = things.conditions("each-item")["Failure"]
    assert failure["reason"] == "Failed"
    assert "no milk today" in failure["message"]
    assert failure["ansibleResult"]["failures"] == 1
    assert things.conditions("each-item")["Running"]["status"] == "False"
    assert things.conditions("each-item")["Successful"]["status"] == "False"
    assert operator.await_line("Task failed", name="each-item")["path"].endswith("roles/each-item/tasks/main.yml:5")
    # A thread of the operator writes the output, perhaps after the status.
    wait_until(lambda: "Ansible Task StdOut" in operator.log, "the output of the task")

    things.merge("escaped", {"spec": {"size": 2}})
    things.await_condition("escaped", "Failure", saying="<size> 2 &")
    assert not [line for line in operator.lines(level="warning") if "Status is not written" in line["msg"]]


FAILS_AT_FIRST = """
- name: Wait for the world to change
  ansible.builtin.stat:
    path: "{{ lookup('env', 'NOTES') }}"
  register: world
- name: Fail until then
  ansible.builtin.assert:
    that: world.stat.exists
    fail_msg: not yet
"""


def test_a_failed_run_is_tried_again_with_growing_delays_and_an_invalid_annotation_prevents_runs_until_it_is_corrected(
    project: Project, things: Things
) -> None:
    project.role("thing", FAILS_AT_FIRST)
    project.watch("thing")
    operator = project.start(environment={"NOTES": str(project.folder / "notes")})
    things.create("one", {})
    assert things.await_condition("one", "Failure")["message"].splitlines()[0] == "not yet"
    operator.await_line("Retrying the object with backoff", name="one", failures=2)
    (project.folder / "notes").touch()
    things.await_success("one")
    delays = [line["seconds"] for line in operator.lines(msg="Retrying the object with backoff", name="one")]
    assert delays[:2] == [1.0, 2.0]
    assert things.conditions("one")["Failure"]["status"] == "False"

    name = "ansible.sdk.operatorframework.io/reconcile-period"
    things.create("two", {}, annotations={name: "often"})
    failure = things.await_condition("two", "Failure")
    assert name in failure["message"]
    assert "often" in failure["message"]
    assert operator.runs("two") == []
    things.merge("two", {"metadata": {"annotations": {name: "1h"}}})
    things.await_success("two")
