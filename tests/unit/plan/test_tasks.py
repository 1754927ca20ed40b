"""Tasks that check mode leaves out, as ansible-core 2.18 to 2.21 report them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.plan import changes
from runner.plan.tasks import UnplannedTasks


def event(kind: str = "runner_on_skipped", action: str = "x", task: str = "Do it", **result: Any) -> dict[str, Any]:
    """Return an event. A skipped task has its result in the output only, but an item of one has it in the data."""
    data = {"task": task, "task_path": f"/roles/r/tasks/main.yml:{len(task)}", "task_action": action}
    if kind == "runner_on_skipped":
        return {"event": kind, "event_data": data, "stdout": f"skipping: [localhost] => {json.dumps(result)}"}
    return {"event": kind, "event_data": {**data, "res": result}}


def reasons(*events: dict[str, Any]) -> list[str]:
    found = UnplannedTasks()
    for each in events:
        found.event(each)
    return [each.reason for each in found.tasks]


@pytest.mark.parametrize(
    "message",
    [
        "remote module (x) does not support check mode",
        "This action (x) does not support check mode.",
        "Check mode is not supported for this task.",
        "check mode not (yet) supported for this module",
        "Command would have run if not in check mode",
    ],
)
def test_a_task_that_does_not_support_check_mode_is_found(message: str) -> None:
    assert reasons(event(skipped=True, msg=message)) == [message]


def test_raw_is_skipped_without_a_reason() -> None:
    assert reasons(event(action="ansible.builtin.raw", skipped=True)) == [
        "ansible.builtin.raw does not run in check mode"
    ]


@pytest.mark.parametrize(
    "result",
    [
        {"skip_reason": "Conditional result was False", "false_condition": "size > 3"},
        {"skipped_reason": "No items in the list"},
        {"skipped_reason": "Verbosity threshold not met."},
        {"msg": "All items skipped"},
    ],
)
def test_other_reasons_to_skip_a_task_are_no_gap(result: dict[str, Any]) -> None:
    for action in ("x", "raw"):
        assert reasons(event(action=action, **{"skipped": True, **result})) == []


def test_a_condition_of_the_role_on_check_mode_is_found() -> None:
    found = reasons(event(skip_reason="Conditional result was False", false_condition="not ansible_check_mode"))
    assert found == ["the role skips it in check mode: not ansible_check_mode"]


def test_a_command_with_creates_reports_a_change_that_it_did_not_make() -> None:
    message = "Command would have run if not in check mode"
    assert reasons(event("runner_on_ok", changed=True, msg=message)) == [message]
    assert reasons(event("runner_on_ok", changed=True, msg="other text about check mode")) == []


def test_a_task_is_listed_once_for_all_its_items() -> None:
    skipped = event("runner_item_on_skipped", skipped=True, msg="remote module (x) does not support check mode")
    assert len(reasons(skipped, skipped)) == 1


def test_the_number_of_tasks_is_limited_and_the_rest_counted() -> None:
    found = UnplannedTasks()
    for number in range(150):
        found.event(event(task=f"{number}", skipped=True, msg="x does not support check mode"))
    assert (len(found.tasks), found.more) == (100, 50)


def test_the_place_and_the_action_are_known() -> None:
    found = UnplannedTasks()
    found.event(event(action="script", task="Run", skipped=True, msg="Check mode is not supported for this task."))
    (task,) = found.tasks
    assert (task.task, task.path, task.action) == ("Run", "/roles/r/tasks/main.yml:3", "script")


@pytest.mark.parametrize("broken", [{}, {"event": "runner_on_skipped"}, event("runner_on_ok") | {"event_data": {}}])
def test_an_event_without_data_is_ignored(broken: dict[str, Any]) -> None:
    assert reasons(broken) == []


@pytest.mark.parametrize("output", ["skipping: [localhost]", "skipping: [localhost] => {broken", ""])
def test_a_skipped_task_whose_reason_is_unknown_is_listed(output: str) -> None:
    assert reasons(event() | {"stdout": output}) == ["it was skipped, and its output does not contain the reason"]


def test_a_skipped_task_whose_result_is_hidden_is_listed() -> None:
    assert reasons(event(censored="the output has been hidden", changed=False)) == [
        "it was skipped, and no_log hides the reason"
    ]


@pytest.mark.parametrize("action", ["kubernetes.core.k8s", "operator_sdk.util.k8s_status", "ansible.builtin.set_fact"])
def test_a_hidden_task_whose_action_supports_check_mode_was_skipped_by_a_condition(action: str) -> None:
    assert reasons(event(action=action, censored="the output has been hidden", changed=False)) == []


def test_a_result_is_read_from_output_of_several_lines_with_more_text() -> None:
    output = 'skipping: [localhost] => {\n    "msg": "remote module (x) does not support check mode"\n}\nmore {text}'
    assert reasons(event() | {"stdout": output}) == ["remote module (x) does not support check mode"]


def test_a_task_that_would_change_a_host_is_a_change_of_this_host() -> None:
    found = UnplannedTasks()

    def ok(host: str, task: str, action: str, **result: Any) -> None:
        data = {"host": host, "task": task, "resolved_action": action, "res": {"changed": True, **result}}
        found.event({"event": "runner_on_ok", "event_data": data})

    ok("two", "Copy it", "ansible.builtin.copy")
    ok("one", "Copy it", "ansible.builtin.copy")
    ok("one", "Restart it", "ansible.builtin.service")
    ok("one", "Look", "ansible.builtin.stat", changed=False)
    ok("localhost", "Copy it here", "ansible.builtin.copy")
    ok("one", "Create it", "kubernetes.core.k8s")
    ok("one", "Write here", "ansible.builtin.copy", _ansible_delegated_vars={"ansible_delegated_host": "localhost"})
    assert found.hosts == {
        "two": {"Copy it": "ansible.builtin.copy"},
        "one": {"Copy it": "ansible.builtin.copy", "Restart it": "ansible.builtin.service"},
    }
    first, second = changes.of_hosts(found.hosts)
    assert (first.gvk.kind, first.key.name, second.key.name) == ("Host", "one", "two")
    assert [each.path for each in first.fields] == ["task 'Copy it'", "task 'Restart it'"]
