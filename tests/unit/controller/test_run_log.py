"""The log of a run: its tasks, its end, and the rights that it lacked."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from runner.base import log
from runner.base.config.settings import TaskFormat
from runner.core.engine.blocks import BlockWriter
from runner.core.engine.job import Event, Job, Outcome, RunResult, TaskFailure, canceled
from runner.core.kube.rights import Right
from runner.core.proxy.identity import RunStats
from runner.core.queue import reasons
from runner.core.queue.reasons import ReconcileRequest
from runner.core.reconcile.run_log import RunLog, block_writer, form_of


@pytest.fixture
def ended(make_job: Callable[..., Job]) -> Callable[..., list[str]]:
    """Have a run end that lacked the right to read some kinds; return what was said of that."""
    run_log = RunLog("nothing", BlockWriter(io.StringIO()), whole_output=False)
    job = make_job()

    def end(outcome: Outcome, *kinds: str) -> list[str]:
        stats = RunStats()
        for kind in kinds:
            stats.lacks(Right("me", "ns", "", kind, "get"))
        with capture_logs() as logs:
            record = run_log.start(job, ReconcileRequest(job.key, reasons.CREATED, (), 0, 0, 0.0))
            record.end(RunResult(outcome, None, (), "", None, 1.0), stats)
        said = [line for line in logs if "add the rule" in line["event"]]
        return [f"{line['log_level']} {line.get('error') or line['problem']}".split(" in ")[0] for line in said]

    return end


def test_each_failure_logs_the_missing_rights(ended: Callable[..., list[str]]) -> None:
    for _ in range(2):
        assert ended(Outcome.FAILED, "pods", "secrets") == [
            "error forbidden: get pods",
            "error forbidden: get secrets",
        ]


def test_missing_rights_of_successful_runs_are_logged_once(ended: Callable[..., list[str]]) -> None:
    assert ended(Outcome.SUCCEEDED, "pods") == ["warning forbidden: get pods"]
    assert ended(Outcome.SUCCEEDED, "pods", "secrets") == ["warning forbidden: get secrets"]
    assert ended(Outcome.SUCCEEDED, "pods", "secrets") == []
    assert ended(Outcome.FAILED, "pods") == ["error forbidden: get pods"]


def test_a_run_that_waits_for_its_place_is_logged_once_until_it_begins(make_job: Callable[..., Job]) -> None:
    run_log, job = RunLog("nothing", BlockWriter(io.StringIO()), whole_output=False), make_job()

    def run(result: RunResult, *events: Event) -> list[str]:
        with capture_logs() as logs:
            record = run_log.start(job, ReconcileRequest(job.key, reasons.RETRY, (), 0, 0, 0.0))
            for event in events:
                record.event(event)
            record.end(result, RunStats())
        return [line["event"] for line in logs]

    waits, succeeds = canceled("no pod", 1.0, waits=True), RunResult(Outcome.SUCCEEDED, None, (), "", None, 1.0)
    assert run(waits) == ["Run started", "Run ended"]
    assert [run(waits), run(waits)] == [[], []]
    assert run(succeeds, {"event": "playbook_on_start"}) == ["Run started", "Run ended"]
    assert run(succeeds) == ["Run started", "Run ended"]
    assert run(waits) == ["Run started", "Run ended"]
    assert run(RunResult(Outcome.NOT_STARTED, None, (), "no pod", None, 1.0)) == ["Run started", "Run ended"]


@pytest.fixture
def output_of_a_run(make_job: Callable[..., Job], log_as_it_was: None) -> Callable[[int, log.Format], str]:
    """Have a run show one task, with a log of some level and form; return what is on standard output."""

    def say(level: int, encoder: log.Format) -> str:
        log.configure(level=level, encoder=encoder, stream=io.StringIO())
        out = io.StringIO()
        writer = BlockWriter(out)
        job = make_job()
        record = RunLog("tasks", writer, whole_output=False).start(
            job, ReconcileRequest(job.key, reasons.CREATED, (), 0, 0, 0.0)
        )
        data = {"task": "Deploy", "task_action": "k8s"}
        record.event({"event": "playbook_on_task_start", "stdout": "TASK [Deploy] ***", "event_data": data})
        writer.close()
        return out.getvalue()

    return say


def test_a_line_before_each_block_names_its_run_and_task(output_of_a_run: Callable[[int, log.Format], str]) -> None:
    line, _, block = output_of_a_run(logging.INFO, "json").partition("\n\n")
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


START = {"event": "playbook_on_task_start", "stdout": "\r\nTASK [Deploy] ***"}
FAILED = {"event": "runner_on_failed", "stdout": 'fatal: [localhost]: FAILED! => {\n    "msg": "no"\n}'}
RECAP = {"event": "playbook_on_stats", "stdout": "PLAY RECAP ***"}


@pytest.fixture
def formatted(make_job: Callable[..., Job], log_as_it_was: None) -> Callable[[TaskFormat, log.Format], str]:
    """Have a run fail at its only task, with the output in a format and lines of an encoder; return all text."""

    def show(form: TaskFormat, encoder: log.Format) -> str:
        out = io.StringIO()
        log.configure(level=logging.INFO, encoder=encoder, stream=out)
        writer = block_writer(out, form_of(form))
        job = make_job()
        settings = RunLog("tasks", writer, whole_output=True, form=form_of(form))
        record = settings.start(job, ReconcileRequest(job.key, reasons.CREATED, (), 0, 0, 0.0))
        data = {"task": "Deploy", "task_action": "k8s", "task_path": "main.yml:3"}
        for event in (START, FAILED, RECAP):
            record.event({**event, "event_data": data if event is not RECAP else {}})
        failure = TaskFailure("Deploy", "no", "main.yml:3")
        record.end(RunResult(Outcome.FAILED, None, (failure,), "", None, 1.0), RunStats())
        writer.close()
        return out.getvalue()

    return show


def test_in_json_each_line_is_an_object_and_the_end_of_a_failed_run_has_its_error(
    formatted: Callable[[TaskFormat, log.Format], str],
) -> None:
    lines = [json.loads(line) for line in formatted("json", "json").splitlines()]
    outputs = [line for line in lines if line["msg"] == "Task output"]
    assert [
        (line["task"], line["action"], line["ansible_event"], line.get("path"), line["output"]) for line in outputs
    ] == [
        ("Deploy", "k8s", "playbook_on_task_start", None, "TASK [Deploy] ***"),
        ("Deploy", "k8s", "runner_on_failed", "main.yml:3", FAILED["stdout"]),
    ]
    assert [line["number"] for line in outputs] == [1, 1]
    assert all(line["gvk"].endswith("Memcached") and line["name"] == "sample" for line in lines)
    (ended,) = (line for line in lines if line["msg"] == "Run ended")
    assert ended["error"] == "no (task 'Deploy', main.yml:3)"
    (whole,) = (line for line in lines if line["msg"] == "Run output")
    assert "PLAY RECAP" in whole["output"]


def test_a_console_shows_the_time_and_the_object_first_and_a_line_for_each_task(
    formatted: Callable[[TaskFormat, log.Format], str],
) -> None:
    lines = formatted("auto", "console").splitlines()
    plain = [line for line in lines if not line.startswith("    ")]
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in plain), plain
    assert sorted(line[9:] for line in plain) == [
        "Memcached default/sample: failed in 1.0 s",
        "Memcached default/sample: run started, created",
        "Memcached default/sample: task 'Deploy' failed: no (main.yml:3)",
        "Memcached default/sample: task 1: Deploy",
    ]
    whole = [line for line in lines if line.startswith("    ")]
    assert "    PLAY RECAP ***" in whole


def test_a_console_shows_the_output_of_tasks_if_it_is_wanted(
    formatted: Callable[[TaskFormat, log.Format], str],
) -> None:
    lines = formatted("lines", "console").splitlines()
    below = next(n for n, line in enumerate(lines) if "Task output" in line) + 1
    assert lines[below : below + 3] == [f"    {line}" for line in FAILED["stdout"].splitlines()]


def test_blocks_stay_the_format_of_a_log_for_programs(formatted: Callable[[TaskFormat, log.Format], str]) -> None:
    text = formatted("auto", "json")
    assert text.count("Ansible Task StdOut") == 2
    assert "Ansible Task Status Event StdOut" in text
