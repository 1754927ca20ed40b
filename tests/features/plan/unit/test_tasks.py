"""Tasks that check mode leaves out, as ansible-core 2.18 to 2.21 report them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.features.plan import changes
from runner.features.plan.tasks import UnplannedTasks
from runner.features.plan.trial.overlay import Overlay, Refusal
from runner.values.objects import ObjectKey


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


def test_a_result_that_nests_too_deeply_is_none_and_does_not_end_the_run() -> None:
    output = "skipping: [localhost] => " + '{"a":' * 100_000 + "1" + "}" * 100_000
    assert reasons({**event(), "stdout": output}) == ["it was skipped, and its output does not contain the reason"]


def test_output_without_a_result_is_read_once_and_not_for_minutes() -> None:
    assert reasons({**event(), "stdout": "skipping: " * 50_000}) == [
        "it was skipped, and its output does not contain the reason"
    ]


def test_a_task_is_listed_once_for_all_its_items_with_place_and_action_up_to_a_limit() -> None:
    found = UnplannedTasks()
    for number in (42, *range(150)):
        found.event(event("runner_item_on_skipped", "script", f"{number}", skipped=True, msg=UNSUPPORTED))
    assert (len(found.tasks), found.more) == (100, 50)
    task = found.tasks[0]
    assert (task.task, task.path, task.action) == ("42", "/roles/r/tasks/main.yml:2", "script")


def test_tasks_beyond_those_that_a_plan_lists_for_a_host_are_unplanned() -> None:
    found = UnplannedTasks()
    for number in (*range(102), 5):
        data = {"host": "one", "task": str(number), "resolved_action": "x", "task_path": "m.yml:1"}
        found.event({"event": "runner_on_ok", "event_data": {**data, "res": {"changed": True}}})
    assert len(found.hosts["one"]) == 100
    assert [task.task for task in found.tasks] == ["100", "101"]


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
    assert [each.reason for each in found.tasks] == ["it reports a change outside the cluster"] * 2
    assert found.hosts == {
        "two": {"Copy it": "ansible.builtin.copy"},
        "one": {"Copy it": "ansible.builtin.copy", "Restart it": "ansible.builtin.service"},
    }
    first, second = changes.of_hosts(found.hosts)
    assert (first.gvk.kind, first.key.name, second.key.name) == ("Host", "one", "two")
    assert [each.path for each in first.fields] == ["task 'Copy it'", "task 'Restart it'"]


OUTSIDE = "it reports a change outside the cluster"
NO_REQUEST = "it reports a change, but sends no request in check mode"
BACKGROUND = "it runs in the background, so that the plan can lack its changes"


def ran(action: str, host: str = "localhost", kind: str = "runner_on_ok", **result: Any) -> dict[str, Any]:
    made = event(kind, action, changed=True, **result)
    made["event_data"]["host"] = host
    return made


@pytest.mark.parametrize("kind", ["runner_on_ok", "runner_item_on_ok"])
@pytest.mark.parametrize(
    ("action", "result", "reason"),
    [
        ("community.mysql.mysql_db", {}, OUTSIDE),
        ("fake_db", {"censored": "hidden by no_log"}, OUTSIDE),
        ("ansible.builtin.copy", {"_ansible_delegated_vars": {"ansible_delegated_host": "localhost"}}, OUTSIDE),
        ("kubernetes.core.k8s_scale", {"result": {"kind": "Deployment"}}, NO_REQUEST),
        ("kubernetes.core.k8s_drain", {}, NO_REQUEST),
        ("kubernetes.core.k8s_taint", {}, NO_REQUEST),
        ("kubernetes.core.k8s_rollback", {}, NO_REQUEST),
        ("kubernetes.core.helm", {}, NO_REQUEST),
        ("ansible.builtin.shell", {"ansible_job_id": "j1.2", "started": 1, "finished": 0}, BACKGROUND),
        ("kubernetes.core.k8s", {"ansible_job_id": "j1.2", "started": True, "finished": False}, BACKGROUND),
    ],
)
def test_a_change_that_no_planned_write_shows_is_an_unplanned_task_with_file_and_line(
    kind: str, action: str, result: dict[str, Any], reason: str
) -> None:
    found = UnplannedTasks()
    found.event(ran(action, kind=kind, **result))
    assert [(each.reason, each.action, each.path) for each in found.tasks] == [
        (reason, action, "/roles/r/tasks/main.yml:5")
    ]
    assert found.hosts == {}


@pytest.mark.parametrize(
    "given",
    [
        ran("kubernetes.core.k8s", result={}),
        ran("kubernetes.core.k8s", ansible_job_id="j1.2", finished=1),
        ran("kubernetes.core.k8s_json_patch"),
        ran("operator_sdk.util.k8s_status"),
        ran("ansible.builtin.debug"),
        ran("set_fact"),
        ran("ansible.builtin.copy") | {"event": "runner_on_start"},
        event("runner_on_ok", "fake_db", changed=False),
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
def test_planned_writes_tasks_that_change_nothing_and_tasks_that_a_condition_skips_are_no_gap(
    given: dict[str, Any],
) -> None:
    assert reasons(given) == []


def test_a_scaled_object_on_a_host_is_not_planned_and_a_change_in_the_background_is_no_change_of_the_host() -> None:
    found = UnplannedTasks()
    found.event(ran("kubernetes.core.k8s_scale", "one"))
    found.event(ran("ansible.builtin.service", "one", ansible_job_id="j1.2", finished=0) | {"uuid": "2"})
    assert (len(found.tasks), found.hosts) == (1, {}), "both events have one task"


def test_a_refused_request_has_the_task_that_sent_it() -> None:
    overlay = Overlay()
    overlay.refuse(Refusal("create", "pods/exec", ObjectKey("ns", "a"), "it opens a session"))
    found = UnplannedTasks(overlay)
    found.event(ran("kubernetes.core.k8s"))
    assert (found.tasks, found.named) == ((), 0), "a request of a later task can be recorded before this event"
    found.event(ran("kubernetes.core.k8s_exec", kind="runner_on_failed"))
    for name in "bc":
        overlay.refuse(Refusal("create", "pods/exec", ObjectKey("ns", name), "it opens a session"))
    found.event(ran("kubernetes.core.k8s_exec", kind="runner_item_on_failed"))
    found.event(ran("kubernetes.core.k8s_exec", kind="runner_on_failed"))
    assert [(each.task, each.path, each.reason) for each in found.tasks] == [
        ("Do it", "/roles/r/tasks/main.yml:5", f"refused create pods/exec ns/{name}: it opens a session")
        for name in "abc"
    ]
    assert found.named == 3


@pytest.mark.parametrize("action", ["our_module", "ansible.builtin.command", "kubernetes.core.helm"])
@pytest.mark.parametrize(("wrote_at", "is_planned"), [(5.0, False), (11.0, True), (12.5, True), (21.0, False)])
def test_a_change_of_any_module_that_wrote_to_the_cluster_during_its_task_is_planned(
    action: str, wrote_at: float, *, is_planned: bool
) -> None:
    overlay = Overlay()
    overlay.times.append(wrote_at)
    found = UnplannedTasks(overlay)
    found.event({"event": "playbook_on_task_start", "event_data": {}, "created": "1970-01-01T00:00:10+00:00"})
    found.event(ran(action) | {"created": "1970-01-01T00:00:20+00:00"})
    assert (found.tasks == ()) is is_planned
    assert found.hosts == {}


@pytest.mark.parametrize("hour", [9, 11])
@pytest.mark.parametrize(("wrote_at", "is_planned"), [(36005.0, False), (36012.5, True), (36021.0, False)])
def test_the_clock_of_the_node_of_a_pod_does_not_matter_for_its_planned_writes(
    hour: int, wrote_at: float, *, is_planned: bool
) -> None:
    overlay = Overlay()
    overlay.times.append(wrote_at)
    times = iter([36000.001, 36013.0, 36020.001])  # the second event arrives late
    found = UnplannedTasks(overlay, clock=lambda: next(times))
    day = f"1970-01-01T{hour:02}"
    found.event({"event": "playbook_on_start", "event_data": {}, "created": f"{day}:00:00+00:00"})
    found.event({"event": "playbook_on_task_start", "event_data": {}, "created": f"{day}:00:10+00:00"})
    found.event(ran("our_module") | {"created": f"{day}:00:20+00:00"})
    assert (found.tasks == ()) is is_planned


@pytest.mark.parametrize(("action", "is_named"), [("community.general.xml", True), ("kubernetes.core.k8s_info", False)])
def test_a_task_whose_result_exceeds_the_limit_of_ansible_runner_is_not_planned(action: str, *, is_named: bool) -> None:
    found = UnplannedTasks(Overlay())
    data = {"host": "localhost", "task": "Large", "resolved_action": action, "res": {}}
    found.event({"event": "runner_on_ok", "event_data": data})
    assert [each.task for each in found.tasks] == (["Large"] if is_named else [])
