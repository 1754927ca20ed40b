"""What the log says of the rights that runs lacked."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from runner import log
from runner.controller.run_log import RunLog
from runner.engine.blocks import BlockWriter
from runner.engine.job import Job, Outcome, RunResult
from runner.kube.forbidden import MissingRight
from runner.proxy.identity import RunStats
from runner.workqueue.request import ReconcileRequest, RunReason


@pytest.fixture
def ended(make_job: Callable[..., Job]) -> Callable[..., list[str]]:
    """Have a run end that lacked the right to read some kinds; return what was said of that."""
    run_log = RunLog("nothing", BlockWriter(io.StringIO()), whole_output=False)
    job = make_job()

    def end(outcome: Outcome, *kinds: str) -> list[str]:
        stats = RunStats()
        for kind in kinds:
            stats.lacks(MissingRight("me", "get", "", kind, "ns", "", ""))
        with capture_logs() as logs:
            record = run_log.start(job, ReconcileRequest(job.key, RunReason.CREATED, (), 0, 0, 0.0))
            record.end(RunResult(outcome, None, (), "", None, 1.0), stats)
        said = [line for line in logs if "add the rule" in line["event"]]
        return [f"{line['log_level']} {line.get('error') or line['problem']}".split(" in ")[0] for line in said]

    return end


def test_each_failure_says_what_it_lacked(ended: Callable[..., list[str]]) -> None:
    for _ in range(2):
        assert ended(Outcome.FAILED, "pods", "secrets") == [
            "error forbidden: get pods",
            "error forbidden: get secrets",
        ]


def test_what_runs_can_do_without_is_said_once(ended: Callable[..., list[str]]) -> None:
    assert ended(Outcome.SUCCEEDED, "pods") == ["warning forbidden: get pods"]
    assert ended(Outcome.SUCCEEDED, "pods", "secrets") == ["warning forbidden: get secrets"]
    assert ended(Outcome.SUCCEEDED, "pods", "secrets") == []
    assert ended(Outcome.FAILED, "pods") == ["error forbidden: get pods"]


@pytest.fixture
def said_by_a_run(make_job: Callable[..., Job], log_as_it_was: None) -> Callable[[int, log.Format], str]:
    """Have a run show one task, with a log of some level and form; return what is on standard output."""

    def say(level: int, encoder: log.Format) -> str:
        log.configure(level=level, encoder=encoder, stream=io.StringIO())
        out = io.StringIO()
        writer = BlockWriter(out)
        job = make_job()
        record = RunLog("tasks", writer, whole_output=False).start(
            job, ReconcileRequest(job.key, RunReason.CREATED, (), 0, 0, 0.0)
        )
        data = {"task": "Deploy", "task_action": "k8s"}
        record.event({"event": "playbook_on_task_start", "stdout": "TASK [Deploy] ***", "event_data": data})
        writer.close()
        return out.getvalue()

    return say


def test_a_line_before_each_block_says_whose_it_is(said_by_a_run: Callable[[int, log.Format], str]) -> None:
    line, _, block = said_by_a_run(logging.INFO, "json").partition("\n\n")
    fields = json.loads(line)
    assert {name: fields[name] for name in ("msg", "level", "job", "gvk", "namespace", "name", "task")} == {
        "msg": "Task output",
        "level": "info",
        "job": "run-1",
        "gvk": "cache.example.com/v1alpha1, Kind=Memcached",
        "namespace": "default",
        "name": "sample",
        "task": "Deploy",
    }
    assert block.startswith("--------------------------- Ansible Task StdOut ---")


def test_for_people_the_line_has_no_colours_where_there_is_no_terminal(
    said_by_a_run: Callable[[int, log.Format], str],
) -> None:
    line = said_by_a_run(logging.INFO, "console").partition("\n")[0]
    assert "Task output" in line
    assert "job=run-1" in line
    assert "\x1b" not in line


def test_a_log_of_warnings_alone_has_blocks_alone(said_by_a_run: Callable[[int, log.Format], str]) -> None:
    assert said_by_a_run(logging.WARNING, "json").startswith("\n----")
