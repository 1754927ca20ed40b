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


UNSUPPORTED = "remote module (x) does not support check mode"
IN_CHECK_MODE = "Command would have run if not in check mode"
HIDDEN: dict[str, Any] = {"censored": "the output has been hidden", "changed": False}
OTHER_REASONS: tuple[dict[str, Any], ...] = (
    {"skipped": True, "skip_reason": "Conditional result was False", "false_condition": "size > 3"},
    {"skipped": True, "skipped_reason": "No items in the list"},
    {"skipped": True, "skipped_reason": "Verbosity threshold not met."},
    {"skipped": True, "msg": "All items skipped"},
)
SEVERAL_LINES = f'skipping: [localhost] => {{\n    "msg": "{UNSUPPORTED}"\n}}\nmore {{text}}'


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        *(
            pytest.param(event(skipped=True, msg=message), message, id=message)
            for message in (
                UNSUPPORTED,
                "This action (x) does not support check mode.",
                "Check mode is not supported for this task.",
                "check mode not (yet) supported for this module",
                IN_CHECK_MODE,
            )
        ),
        pytest.param(
            event(action="ansible.builtin.raw", skipped=True),
            "ansible.builtin.raw does not run in check mode",
            id="raw is skipped without a reason",
        ),
        pytest.param(
            event(skip_reason="Conditional result was False", false_condition="not ansible_check_mode"),
            "the role skips it in check mode: not ansible_check_mode",
            id="a condition of the role",
        ),
        pytest.param(
            event("runner_on_ok", changed=True, msg=IN_CHECK_MODE), IN_CHECK_MODE, id="a command with creates"
        ),
        *(
            pytest.param(
                event() | {"stdout": output}, "it was skipped, and its output does not contain the reason", id=output
            )
            for output in ("skipping: [localhost]", "skipping: [localhost] => {broken", "")
        ),
        pytest.param(event(**HIDDEN), "it was skipped, and no_log hides the reason", id="the result is hidden"),
        pytest.param(event() | {"stdout": SEVERAL_LINES}, UNSUPPORTED, id="output of several lines"),
    ],
)
def test_a_task_that_check_mode_leaves_out_is_listed_with_the_reason(given: dict[str, Any], reason: str) -> None:
    assert reasons(given) == [reason]


@pytest.mark.parametrize(
    "given",
    [
        *(event(action=action, **result) for action in ("x", "raw") for result in OTHER_REASONS),
        event("runner_on_ok", changed=True, msg="other text about check mode"),
        *(
            event(action=action, **HIDDEN)  # it supports check mode, so a condition skipped it
            for action in ("kubernetes.core.k8s", "operator_sdk.util.k8s_status", "ansible.builtin.set_fact")
        ),
        {},
        {"event": "runner_on_skipped"},
        event("runner_on_ok") | {"event_data": {}},
    ],
)
def test_other_tasks_are_no_gap_of_a_plan(given: dict[str, Any]) -> None:
    assert reasons(given) == []


def test_a_task_is_listed_once_for_all_its_items_with_place_and_action_up_to_a_limit() -> None:
    found = UnplannedTasks()
    for number in (42, *range(150)):
        found.event(event("runner_item_on_skipped", "script", f"{number}", skipped=True, msg=UNSUPPORTED))
    assert (len(found.tasks), found.more) == (100, 50)
    task = found.tasks[0]
    assert (task.task, task.path, task.action) == ("42", "/roles/r/tasks/main.yml:2", "script")


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
