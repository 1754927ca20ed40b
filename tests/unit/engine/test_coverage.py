"""Tasks because of which other tasks may not run, from the events of a run."""

from __future__ import annotations

from typing import Any

import pytest

from runner.engine.coverage import Coverage, CoverageRecorder
from runner.engine.job import Event

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


def test_a_skipped_task_omits_nothing_else() -> None:
    assert coverage(start("a", "k8s"), event("runner_on_skipped", "a", "k8s")) == Coverage()


def test_an_executed_meta_task_counts_if_no_task_of_its_play_and_role_follows() -> None:
    meta = start("meta", "ansible.builtin.meta", role="shop")
    assert len(coverage(meta).omitting) == 1
    assert len(coverage(meta, start("a", "k8s", 2, role="other")).omitting) == 1
    assert len(coverage(meta, start("a", "k8s", 2, role="shop", play_uuid="q")).omitting) == 1
    assert coverage(meta, start("a", "k8s", 2, role="shop")).omitting == ()
    assert coverage(meta, event("runner_on_skipped", "meta", "meta")).omitting == ()


def test_ignored_failures_and_plays_without_hosts_count_and_other_failures_are_reported() -> None:
    ignored = event("runner_on_failed", "a", "k8s", ignore_errors=True)
    found = coverage(ignored, {"event": "playbook_on_no_hosts_matched"})
    assert (len(found.omitting), found.failed) == (2, False)
    for kind in ("runner_on_failed", "runner_on_unreachable"):
        assert coverage(event(kind, "a", "k8s")) == Coverage(failed=True)


def test_handlers_are_reported_with_their_times() -> None:
    run = (
        start("h", "k8s", 3, is_conditional=True),
        start("a", "k8s", 5),
        start("h", "k8s", 7, is_conditional=True),
    )
    assert coverage(*run).handlers == ((3.0, 5.0), (7.0, 9.0))


@pytest.mark.parametrize("broken", [{}, {"event": "playbook_on_task_start", "event_data": None, "created": "soon"}])
def test_an_event_without_its_usual_fields_is_accepted(broken: Event) -> None:
    assert coverage(broken) == Coverage()
