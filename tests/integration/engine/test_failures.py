"""How runs fail, and what the result says about it."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from runner.core.engine import causes
from runner.core.engine.job import Outcome, TaskFailure
from tests.integration.engine.runs import ENGINE

if TYPE_CHECKING:
    from tests.integration.engine.runs import Runs

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_only_failures_that_were_not_rescued_or_ignored_are_reported(runs: Runs) -> None:
    playbook = runs.tasks("""
- name: block
  block:
  - {name: rescued, fail: {msg: rescued}}
  rescue:
  - {name: rescue, debug: {msg: rescuing}}
- {name: ignored, fail: {msg: ignored}, ignore_errors: true}
- name: ignored items
  fail: {msg: "{{ item }}"}
  loop: [1, 2]
  ignore_errors: true
- {name: hidden but ignored, command: "sh -c 'echo secret; exit 1'", no_log: true, ignore_errors: true}
- name: all at the end
  block:
  - {name: in the block, command: "sh -c 'exit 3'"}
  always:
  - name: items
    fail: {msg: "{{ item }}"}
    loop: [first, second, second]
""")

    ran = await runs.run(playbook)

    assert ran.result.outcome is Outcome.FAILED
    assert [failure.task for failure in ran.result.failures] == ["in the block", "items"]
    assert ran.result.failures[0].message == "exit code 3, without a message on stderr"
    assert ran.result.failures[1].message == "One or more items failed: first; second"
    assert ran.result.failures[1].path == f"{playbook.path}:19"
    assert ran.result.message == ""
    assert ran.result.recap is not None
    assert (ran.result.recap.ok, ran.result.recap.failures, ran.result.recap.skipped) == (4, 2, 0)
    assert "." in ran.result.recap.completion


async def test_failures_that_are_all_rescued_or_ignored_make_a_success(runs: Runs) -> None:
    playbook = runs.tasks("""
- block:
  - {name: rescued, fail: {msg: rescued}}
  rescue:
  - {debug: {msg: rescuing}}
- {name: ignored, fail: {msg: ignored}, ignore_errors: true}
- name: ignored unreachable
  ping: {}
  delegate_to: nowhere
  vars: {ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1}
  ignore_unreachable: true
""")

    ran = await runs.run(playbook)

    assert ran.result.outcome is Outcome.SUCCEEDED, ran.result
    assert ran.result.failures == ()


async def test_a_hidden_failure_keeps_its_task_and_place_and_odd_messages_are_text(runs: Runs) -> None:
    playbook = runs.playbook("""
- hosts: localhost
  gather_facts: false
  tasks:
  - add_host: {name: "host{{ item }}", ansible_connection: local}
    loop: [1, 2]
- hosts: host1:host2
  gather_facts: false
  tasks:
  - {name: hidden, command: "sh -c 'echo se$(echo cret); exit 1'", no_log: true, when: inventory_hostname == 'host1'}
  - {name: list, fail: {msg: [a, {b: 1}]}}
""")

    ran = await runs.run(playbook)

    hidden, odd = ran.result.failures
    assert hidden.task == "hidden"
    assert hidden.path == f"{playbook.path}:10"
    assert "no_log" in hidden.message
    assert "secret" not in str(ran.events)
    assert odd == TaskFailure("list", '["a", {"b": 1}]', f"{playbook.path}:11", host="host2")


async def test_an_unreachable_host_is_a_failure(runs: Runs) -> None:
    playbook = runs.playbook("""
- hosts: localhost
  gather_facts: false
  tasks:
  - add_host: {name: nowhere, ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1}
- hosts: nowhere
  gather_facts: false
  tasks:
  - {name: reach, ping: {}}
""")

    ran = await runs.run(playbook)

    assert ran.result.outcome is Outcome.FAILED
    assert [(failure.task, failure.path) for failure in ran.result.failures] == [("reach", f"{playbook.path}:9")]
    assert "Connection refused" in ran.result.failures[0].message


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ("- {name: two, debug: {msg: 1}, command: 'true'}", "conflicting action statements"),
        ("- {no.such.module: {a: 1}}", "couldn't resolve module/action 'no.such.module'"),
        ("- {import_tasks: missing.yml}", "missing.yml"),
        ('- {name: "unclosed}', "scanning a quoted scalar"),
    ],
)
async def test_a_playbook_that_ansible_refuses_to_start_fails_with_the_message_of_ansible(
    runs: Runs,
    tasks: str,
    expected: str,
) -> None:
    ran = await runs.run(runs.tasks(tasks))

    assert ran.result.outcome is Outcome.FAILED
    assert ran.result.failures == ()
    assert expected in ran.result.message.replace("\n", " ")


async def test_a_task_file_that_is_missing_when_it_is_included_fails_its_task(runs: Runs) -> None:
    ran = await runs.run(runs.tasks("- {name: include, include_tasks: missing.yml}"))

    assert ran.result.outcome is Outcome.FAILED
    assert "missing.yml" in ran.result.failures[0].message


async def test_arguments_that_cannot_be_split_and_folders_that_cannot_be_written_start_nothing(runs: Runs) -> None:
    playbook = runs.tasks("- debug: {msg: hi}")

    quoted = await runs.run(playbook, ansible_args='-e "open')
    runs.run_dir.parent.mkdir(parents=True)
    runs.run_dir.write_text("a file")
    blocked = await runs.run(playbook)

    assert quoted.result.outcome is blocked.result.outcome is Outcome.NOT_STARTED
    assert "--ansible-args" in quoted.result.message
    assert f"{runs.run_dir} is not a folder of our own" in blocked.result.message


async def test_unknown_arguments_are_reported_with_the_message_of_ansible(runs: Runs) -> None:
    ran = await runs.run(runs.tasks("- debug: {msg: hi}"), ansible_args="--no-such-flag")

    assert ran.result.outcome is Outcome.FAILED
    assert ran.result.message == "ansible-playbook: error: unrecognized arguments: --no-such-flag"


STRICT = pytest.mark.skipif(
    version("ansible-core") < "2.19" or ENGINE != "warm",
    reason="ansible-core 2.18 takes any value for a boolean, and the advice is the same for each engine",
)


@STRICT
@pytest.mark.parametrize(
    "task",
    [
        "{name: broken, debug: {msg: hi}, when: words}",
        "{name: broken, debug: {msg: hi}, when: 1}",
        "{name: broken, debug: {msg: hi}, when: ''}",
        pytest.param(
            "{name: broken, command: 'true', failed_when: words}",
            marks=pytest.mark.xfail(
                version("ansible-core").startswith(("2.19.", "2.20.")), reason="these give no message there"
            ),
        ),
        "{name: broken, assert: {that: words}}",
    ],
)
async def test_a_conditional_that_has_been_broken_since_2_19_fails_with_the_setting_that_helps(
    runs: Runs, task: str
) -> None:
    playbook = runs.tasks(f"- set_fact: {{words: [a, b]}}\n- {task}")

    failed = await runs.run(playbook)
    helped = await runs.run(playbook, environment={"ANSIBLE_ALLOW_BROKEN_CONDITIONALS": "true"})

    (failure,) = failed.result.failures
    assert failure.task == "broken"
    assert failure.message.endswith(f"({causes.BROKEN})"), failure.message
    assert not any(causes.BROKEN in failure.message for failure in helped.result.failures)


@STRICT
async def test_a_fail_message_of_a_task_about_conditionals_gets_no_advice(runs: Runs) -> None:
    ran = await runs.run(runs.tasks("- {name: own, assert: {that: 1 == 2, fail_msg: Conditionals must be true.}}"))

    assert [failure.message for failure in ran.result.failures] == ["Conditionals must be true."]


@pytest.mark.parametrize(
    ("template", "message", "line"),
    [
        ("# nmae\nfirst: 1\nsecond: {{ user.nmae }}\n", "has no attribute 'nmae'", 3),
        ("first: {{ replicaz }}\n", "'replicaz' is undefined", 1),
        ("first: 1\n{% for one in [1] %}\n{% endfr %}\n", "Encountered unknown tag 'endfr'", 3),
    ],
    ids=["attribute", "variable", "syntax"],
)
@pytest.mark.parametrize(
    "task",
    ["ansible.builtin.template: {src: one.j2, dest: /dev/null}", "kubernetes.core.k8s: {template: [two.j2, one.j2]}"],
)
async def test_the_place_of_a_failure_in_a_template_is_its_line(
    runs: Runs, task: str, template: str, message: str, line: int
) -> None:
    playbook = runs.tasks(f"- {{name: write, vars: {{user: {{name: anna}}}}, {task}}}\n")
    folder = playbook.path.parent / "templates"
    folder.mkdir()
    (folder / "one.j2").write_text(template)
    (folder / "two.j2").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: replicas}\n")

    ran = await runs.run(playbook)

    assert message in ran.result.failures[0].message
    assert ran.result.failures[0].path == f"{folder}/one.j2:{line}"


async def test_the_place_of_a_failure_in_a_task_stays_if_a_template_has_the_same_word(runs: Runs) -> None:
    playbook = runs.tasks('- {name: say, debug: {msg: "{{ replicaz }}"}}\n')
    (playbook.path.parent / "templates").mkdir()
    (playbook.path.parent / "templates" / "one.j2").write_text("{{ replicaz }}")

    ran = await runs.run(playbook)

    assert ran.result.failures[0].path.rpartition(":")[0] == str(playbook.path)
