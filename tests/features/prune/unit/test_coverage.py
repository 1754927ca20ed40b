"""Tasks because of which other tasks may not run, and the condition about unused objects."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.engine.job import Event
from runner.features.prune.coverage import Coverage, CoverageRecorder
from runner.features.prune.feature import PRUNABLE
from runner.features.prune.sharing import OtherUsers
from runner.features.prune.status import PruneReport, prunable
from runner.values.objects import GVK, ObjectKey, ObjectRef

STATS: Event = {"event": "playbook_on_stats", "created": "1970-01-01T00:00:09+00:00", "event_data": {}}


def event(kind: str, task: str, action: str, line: int = 1, **data: Any) -> Event:
    about = {"task": task, "task_action": action, "task_path": f"/r/main.yml:{line}", "play_uuid": "p", **data}
    return {"event": kind, "created": f"1970-01-01T00:00:{line:02}+00:00", "event_data": about}


def start(task: str, action: str, line: int = 1, **data: Any) -> Event:
    return event("playbook_on_task_start", task, action, line, **data)


def coverage(*run: Event) -> Coverage:
    recorder = CoverageRecorder()
    for each in (*run, STATS):
        recorder.event(each)
    return recorder.result()


@pytest.mark.parametrize("action", ["include_tasks", "ansible.builtin.include_role", "ansible.legacy.include_tasks"])
@pytest.mark.parametrize("kind", ["runner_on_skipped", "runner_item_on_skipped"])
def test_a_skipped_include_may_omit_tasks_wherever_its_line_moves(kind: str, action: str) -> None:
    (first,) = coverage(start("a", action), event(kind, "a", action)).omitting
    assert coverage(start("a", action, 7), event(kind, "a", action, 7)).omitting == (first,)
    assert coverage(start("b", action), event(kind, "b", action)).omitting != (first,)


def test_an_executed_meta_task_counts_if_no_task_of_its_play_and_role_follows() -> None:
    meta = start("meta", "ansible.builtin.meta", role="shop")
    assert len(coverage(meta).omitting) == 1
    assert len(coverage(meta, start("a", "k8s", 2, role="other")).omitting) == 1
    assert len(coverage(meta, start("a", "k8s", 2, role="shop", play_uuid="q")).omitting) == 1
    assert coverage(meta, start("a", "k8s", 2, role="shop")).omitting == ()
    assert coverage(meta, event("runner_on_skipped", "meta", "meta")).omitting == ()


def test_a_host_that_ends_before_others_may_omit_tasks() -> None:
    def play(*last: str) -> Coverage:
        hosts = [event("runner_on_ok", "first", "k8s", host=host) for host in "ab"]
        after = [event("runner_on_ok", "next", "k8s", 3, host=host) for host in last]
        meta = start("end", "ansible.builtin.meta", 2, role="shop")
        return coverage(start("first", "k8s"), *hosts, meta, start("next", "k8s", 3, role="shop"), *after)

    assert play("a", "b").omitting == ()
    (ended,) = play("a").omissions
    assert ended.what == "the task 'end' ended the play of a host (/r/main.yml:2)"
    assert play("b").omitting != play("a").omitting


@pytest.mark.parametrize(
    "other",
    [
        event("runner_on_skipped", "a", "k8s"),
        {},
        {"event": "playbook_on_task_start", "event_data": None, "created": "soon"},
    ],
    ids=["a skipped task", "no fields", "unusual fields"],
)
def test_other_events_omit_nothing(other: Event) -> None:
    assert coverage(other).omissions == ()


def test_ignored_failures_and_plays_without_hosts_count_and_other_failures_are_reported() -> None:
    ignored = event("runner_on_failed", "a", "k8s", ignore_errors=True)
    found = coverage(ignored, {"event": "playbook_on_no_hosts_matched"})
    assert (len(found.omitting), found.rescued, found.omissions[0].failed) == (2, None, True)
    for kind in ("runner_on_failed", "runner_on_unreachable"):
        rescued = coverage(start("z", "k8s"), event(kind, "a", "k8s", 7), start("b", "k8s", 8)).rescued
        assert rescued is not None
        assert (rescued.what, rescued.started) == ("a failure of the task 'a' was rescued (/r/main.yml:7)", 1)
        assert rescued.task not in found.omitting


@pytest.mark.parametrize(
    ("result", "what"),
    [
        ({"failed_when_result": False, "rc": 1}, "failed_when hid a failure of the task 'a'"),
        ({"failed_when_result": False, "rc": 0, "msg": ""}, ""),
        ({"failed_when_result": False, "status": -1, "msg": "refused"}, "failed_when hid a failure of the task 'a'"),
        ({"failed_when_result": False, "status": 200, "msg": "OK (5 bytes)"}, ""),
        ({"failed_when_result": False, "msg": "no such host"}, "failed_when hid a failure of the task 'a'"),
        ({"failed_when_result": False, "rc": 0, "exception": "Traceback"}, "failed_when hid a failure of the task 'a'"),
        ({"rc": 1, "msg": "the module says so"}, ""),
        ({"resources": [], "api_found": False}, "the API server did not serve the kind that the task 'a' reads"),
        ({"resources": [], "api_found": True}, ""),
    ],
)
@pytest.mark.parametrize("kind", ["runner_on_ok", "runner_item_on_ok"])
def test_a_result_that_hides_a_failure_counts_and_later_tasks_can_depend_on_it(
    kind: str, result: dict[str, Any], what: str
) -> None:
    found = coverage(start("z", "k8s"), start("a", "uri"), event(kind, "a", "uri", res=result), start("b", "k8s"))
    assert [each.what.partition(" (")[0] for each in found.omissions] == ([what] if what else [])
    assert len(found.reached(found.omitting)) == (2 if what else 3)


def test_what_was_omitted_names_the_task_with_file_and_line() -> None:
    skipped = coverage(event("runner_on_skipped", "More", "include_tasks", 3))
    ended = coverage(start("end", "meta", 5))
    assert [each.what for each in (*skipped.omissions, *ended.omissions)] == [
        "the include 'More' was skipped (/r/main.yml:3)",
        "the task 'end' ended its play or role (/r/main.yml:5)",
    ]


def test_requests_belong_to_the_task_that_had_started_last() -> None:
    run = start("a", "k8s", 3), start("b", "k8s", 5), start("b", "k8s", 7)
    found = coverage(*run)
    a, b, _ = found.tasks
    assert found.tasks_at([3.0, 4.9]) == {a}
    assert found.tasks_at([4.9, 5.0, 9.0]) == {a, b}
    assert found.tasks_at([]) == found.tasks_at([2.9, 4.0]) == frozenset()


@pytest.mark.parametrize(
    "more",
    [
        event("runner_on_ok", "a", "k8s", 4, res={"ansible_job_id": "1"}),
        event("runner_on_ok", "a", "k8s", 4, host="other"),
        start("b", "k8s", 2),
    ],
)
def test_requests_of_parallel_tasks_belong_to_no_certain_task(more: Event) -> None:
    run = start("a", "k8s", 3), event("runner_on_ok", "a", "k8s", 3, host="localhost")
    assert coverage(*run).tasks_at([3.0])
    assert coverage(*run, more).tasks_at([3.0]) == frozenset()


def test_handlers_are_reported_with_their_times() -> None:
    run = (
        start("h", "k8s", 3, is_conditional=True),
        start("a", "k8s", 5),
        start("h", "k8s", 7, is_conditional=True),
    )
    assert coverage(*run).handlers == ((3.0, 5.0), (7.0, 9.0))


TWO = ObjectRef(GVK("example.com", "v1", "Thing"), ObjectKey("ns", "two"))


@pytest.mark.parametrize(
    ("found", "status", "reason", "message"),
    [
        (PruneReport(unused=["ConfigMap ns/a"]), "True", "Unused", "ConfigMap ns/a: no longer used by the runs."),
        (
            PruneReport(unused=["a"], deletable=False),
            "True",
            "Unused",
            "a: no longer used by the runs. Delete them; to",
        ),
        (PruneReport(problems=["ConfigMap ns/a: no"]), "True", "NotDeleted", "Cannot delete ConfigMap ns/a: no"),
        (PruneReport(deleted=["ConfigMap ns/a"]), "False", "Pruned", "Deleted: ConfigMap ns/a."),
        (
            PruneReport(held=[("ConfigMap ns/a", "the include 'More' was skipped (main.yml:3)")]),
            "Unknown",
            "TasksOmitted",
            "ConfigMap ns/a: not used by the last run, but kept, because the include 'More' was skipped (main.yml:3)",
        ),
        (
            PruneReport(shared=[("ConfigMap ns/a", OtherUsers(users=(TWO,))), ("b", OtherUsers(users=(TWO,)))]),
            "False",
            "InUse",
            "ConfigMap ns/a, b: no longer used by this resource; in use by Thing ns/two.",
        ),
        (
            PruneReport(shared=[("ConfigMap ns/a", OtherUsers(unknown=((TWO, ""),)))]),
            "Unknown",
            "Waiting",
            "ConfigMap ns/a: no longer used by this resource; kept until these resources complete a run: Thing ns/two.",
        ),
        (PruneReport(unrecorded="full"), "Unknown", "NotRecorded", "Further objects cannot be pruned: full"),
        (PruneReport(deleted=["a"], problems=["b: no"]), "True", "NotDeleted", "Cannot delete b: no\nDeleted: a."),
    ],
)
def test_the_condition_names_what_a_user_can_do(found: PruneReport, status: str, reason: str, message: str) -> None:
    (condition,) = prunable({}, found)
    assert (condition["type"], condition["status"], condition["reason"]) == (PRUNABLE, status, reason)
    assert condition["message"].startswith(message)


def test_the_number_of_named_objects_is_bounded() -> None:
    names = [f"ConfigMap ns/{'x' * 250}{number}" for number in range(1000)]
    for found in (PruneReport(unused=names), PruneReport(deleted=names), PruneReport(problems=names)):
        (condition,) = prunable({}, found)
        assert len(condition["message"]) < 8000


@pytest.mark.parametrize(
    ("status", "counts", "written"),
    [("True", True, 1), ("Unknown", True, 1), ("True", False, 0), ("False", True, 0), (None, True, 0)],
)
def test_without_anything_to_report_only_an_outdated_condition_is_written(
    status: str | None,
    written: int,
    *,
    counts: bool,
) -> None:
    conditions = [{"type": PRUNABLE, "status": status}] if status else []
    found = prunable({"status": {"conditions": conditions}}, PruneReport(counts=counts))
    assert [each["reason"] for each in found] == ["NoneUnused"] * written
