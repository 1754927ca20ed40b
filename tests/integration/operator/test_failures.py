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
FAILS = {
    "each-item": (EACH_ITEM, "no bread today"),
    "escaped": ("- ansible.builtin.fail: {msg: \"<size> {{ size }} & 'more' \u2028 \\u2029 ü\"}\n", "<size> 1 &"),
    "no-task-file": ("- ansible.builtin.include_tasks: nowhere.yml\n", "nowhere.yml"),
    "syntax-error": ("- ansible.builtin.debug: {msg: 'x'\n  oops: [\n", "syntax-error/tasks/main.yml"),
    "no-collection": ("- name: Use what is not installed\n  no.such.module:\n    a: 1\n", "no.such.module"),
    "unreachable": (
        """
        - name: Ask it
          ansible.builtin.command: "true"
          delegate_to: away
          vars: {ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1}
        """,
        "127.0.0.1",
    ),
    "killed": (
        """
        - name: Kill whoever runs this
          ansible.builtin.shell: |
            p=$$
            while [ "$p" -gt 1 ]; do
              if tr '\\0' ' ' < /proc/$p/cmdline | grep -q ansible-playbook; then last=$p; fi
              p=$(awk '/^PPid:/ {print $2}' /proc/$p/status)
            done
            kill -9 "$last"
        """,
        "was killed by SIGKILL",
    ),
}
"""Tasks of a role, and what the failure contains."""
RESCUED = """
- block:
    - name: Fail and be rescued
      ansible.builtin.fail: {msg: rescued}
  rescue:
    - name: Mend it
      ansible.builtin.debug: {msg: mended}
- name: Fail and be ignored
  ansible.builtin.fail: {msg: ignored}
  ignore_errors: true
"""


def test_each_failure_of_ansible_is_in_the_condition_and_one_that_was_rescued_or_ignored_is_not(
    project: Project, things: Things
) -> None:
    for name, (tasks, _) in FAILS.items():
        project.role(name, tasks)
    project.role("rescued", RESCUED)
    project.role("thing", "- ansible.builtin.include_role: {name: '{{ how }}'}\n")
    project.watch("thing", retry={"attempts": 1})
    operator = project.start(environment={"ANSIBLE_SSH_RETRIES": "0"})
    for name, (_, said) in FAILS.items():
        things.create(name, {"how": name, "size": 1})
        assert said in things.await_condition(name, "Failure")["message"], name
    things.create("rescued", {"how": "rescued"})
    assert things.await_success("rescued")["ansibleResult"]["failures"] == 0
    assert operator.runs("rescued")[0]["outcome"] == "succeeded"

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
    assert "<size> 2 &" in things.await_condition("escaped", "Failure")["message"]
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
