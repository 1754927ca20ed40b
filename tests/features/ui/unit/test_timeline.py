"""What is kept of a run's tasks."""

from __future__ import annotations

import pytest

from runner.core.engine.job import Event, TaskFailure
from runner.features.ui.timeline import MOST_ITEMS, MOST_TASKS, Timeline
from tests.kit.page_values import at, ended, start


def timeline(*events: Event) -> Timeline:
    made = Timeline(lambda text: text.replace("hunter2", "***"))
    for event in events:
        made.add(event)
    return made


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (ended("on_ok", res={"changed": False}), "ok"),
        (ended("on_ok", res={"changed": True}), "changed"),
        (ended("on_skipped"), "skipped"),
        (ended("on_failed", res={"msg": "no"}), "failed"),
        (ended("on_failed", res={"msg": "no"}, ignore_errors=True), "ignored"),
        (ended("on_unreachable", res={"msg": "no"}), "unreachable"),
    ],
)
def test_a_task_has_the_state_of_its_last_event(event: Event, state: str) -> None:
    made = timeline(start("a", 1), event | {"created": at(3.5)})
    (task,) = made.tasks
    assert (task.name, task.path, task.state) == ("a", "/r/main.yml:1", state)
    assert task.ended is not None
    assert task.ended - task.began == 2.5
    assert task.message == ("no" if state in {"failed", "ignored", "unreachable"} else "")


def test_nothing_of_arguments_and_results_is_kept_and_known_secrets_are_masked() -> None:
    res = {"msg": "hunter2 is wrong", "stdout": "mine", "invocation": {"module_args": {"token": "mine"}}}
    made = timeline(start("Log in with hunter2"), ended("on_failed", res=res))
    assert "hunter2" not in repr(made.tasks)
    assert "mine" not in repr(made.tasks)
    assert made.tasks[0].message == "*** is wrong"


def test_the_items_of_a_loop_have_labels_and_results() -> None:
    made = timeline(
        start("Loop"),
        ended("item_on_ok", res={"changed": True, "_ansible_item_label": "hunter2", "item": {"x": 1}}),
        ended("item_on_ok", res={"changed": False, "item": {"name": "b"}}),
        ended("item_on_skipped", res={"item": 3}),
        ended("item_on_failed", res={"item": "d", "msg": "no hunter2"}),
        ended("item_on_ok", res={"censored": "hidden"}),
        ended("on_failed", res={"msg": "One or more items failed"}),
    )
    (task,) = made.tasks
    assert [(item.label, item.state, item.message) for item in task.items] == [
        ("***", "changed", ""),
        ('{"name":"b"}', "ok", ""),
        ("3", "skipped", ""),
        ("d", "failed", "no ***"),
        ("", "ok", ""),
    ]
    assert (task.state, task.item_count) == ("failed", 5)
    assert "no ***" in task.message


def test_a_long_loop_keeps_its_first_items_and_failures() -> None:
    made = timeline(
        start("Loop"),
        *(ended("item_on_ok", res={"item": str(number)}) for number in range(MOST_ITEMS + 20)),
        *(ended("item_on_failed", res={"item": f"bad {number}", "msg": "no"}) for number in range(20)),
    )
    (task,) = made.tasks
    assert task.item_count == MOST_ITEMS + 40
    assert [item.label for item in task.items[:MOST_ITEMS]] == [str(number) for number in range(MOST_ITEMS)]
    assert [item.label for item in task.items[MOST_ITEMS:]] == [f"bad {number}" for number in range(10)]


def test_labels_of_items_that_become_known_as_secret_are_masked_at_the_end() -> None:
    known: set[str] = set()
    made = Timeline(lambda text: "***" if text in known else text)
    for event in (start("Loop"), ended("item_on_ok", res={"item": "sesame"}), ended("on_ok", res={})):
        made.add(event)
    known.add("sesame")
    made.end(0, (), whole=True)
    assert [item.label for item in made.tasks[0].items] == ["***"]


def test_values_that_become_known_as_secret_later_are_masked_at_the_end() -> None:
    known: set[str] = set()
    made = Timeline(lambda text: "***" if text in known else text)
    made.add(start("a"))
    made.add(ended("on_failed", res={"msg": "sesame"}))
    known.add("sesame")
    made.end(0, (TaskFailure("a", "sesame", "/r/main.yml:1"),), whole=True)
    assert made.tasks[0].message == "***"


def test_the_message_of_a_hidden_result_has_only_task_and_place() -> None:
    made = timeline(start("a"), ended("on_failed", task="a", task_path="/r/main.yml:1", res={"censored": "hidden"}))
    assert made.tasks[0].message == "task 'a' (/r/main.yml:1) failed; no_log hides its result"


def test_a_failed_task_that_is_not_a_failure_of_the_run_was_rescued() -> None:
    made = timeline(
        start("try", path="/r/main.yml:1"),
        ended("on_failed", res={"msg": "no"}),
        start("last", path="/r/main.yml:9"),
        ended("on_failed", res={"msg": "no"}),
    )
    made.end(9, (TaskFailure("last", "no", "/r/main.yml:9"),), whole=True)
    assert [task.state for task in made.tasks] == ["rescued", "failed"]


@pytest.mark.parametrize(("whole", "state"), [(True, "ok"), (False, "cut short")])
def test_a_task_without_an_end_ends_with_the_run(*, whole: bool, state: str) -> None:
    made = timeline(start("a", 0))
    made.end(1_800_000_004, (), whole=whole)
    assert (made.tasks[0].state, made.tasks[0].ended) == (state, 1_800_000_004)


def test_the_message_of_a_loop_contains_the_messages_of_its_failed_items() -> None:
    made = timeline(
        start("a"),
        ended("item_on_failed", res={"msg": "bread is out"}),
        ended("item_on_failed", res={"msg": "milk is out"}),
        ended("on_failed", res={"msg": "One or more items failed"}),
    )
    assert made.tasks[0].message == "One or more items failed: bread is out; milk is out"


def test_a_task_on_several_hosts_has_the_worst_state() -> None:
    made = timeline(start("a"), ended("on_failed", res={"msg": "no"}), ended("on_ok", 5))
    assert made.tasks[0].state == "failed"


def test_the_latest_tasks_are_kept_and_all_are_counted() -> None:
    made = timeline(*(start(str(number)) for number in range(MOST_TASKS + 7)))
    assert (len(made.tasks), made.tasks[0].name, made.count) == (MOST_TASKS, "7", MOST_TASKS + 7)


def test_long_texts_are_cut() -> None:
    made = timeline(start("n" * 9999), ended("on_failed", res={"msg": "m" * 9999}, task_action="fail"))
    assert len(made.tasks[0].name) == 300
    assert len(made.tasks[0].message) == 2000


def test_handlers_are_tasks_and_other_events_are_ignored() -> None:
    made = Timeline(str)
    assert not made.add(ended("on_ok"))
    assert not made.add({"event": "verbose", "stdout": "x"})
    assert made.add(start("h", kind="playbook_on_handler_task_start"))
    assert not made.add({"event": "playbook_on_stats", "event_data": None})
