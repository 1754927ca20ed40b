"""The sum of how a run's tasks were executed, and what is logged of it."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest
from structlog.testing import capture_logs

from runner.engine import executions
from runner.engine.execution_log import ExecutionLog
from runner.engine.executions import Execution, Executions, Reason, Way

PING = Execution(Way.INTERPRETER, Reason.BECOME, 2, "ping")


def test_executions_of_a_run_are_counted_by_way_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "executions"
    for name in ("ping", "stat"):
        executions.note(str(path), {"way": "new_interpreter", "reason": "become", "name": name})
    executions.note(str(path), {"way": "playbook_process", "reason": "none", "name": "debug"})

    with path.open(encoding="utf-8") as lines:
        found = executions.parse(json.loads(json.dumps(executions.add_up(lines))))

    assert found == Executions((PING, Execution(Way.PLAYBOOK, Reason.NONE, 1, "debug")))
    assert found.totals == {"new_interpreter: become": 2, "playbook_process": 1}


@pytest.mark.parametrize(
    "line",
    [
        *('{"way": "new_inter', "{}", "5", "null", '"defect"', "[" * 100_000, '{"defect": 5}', ""),
        '{"way": "other", "reason": "none", "name": "x"}',
        '{"way": "new_interpreter", "reason": "other", "name": "x"}',
        '{"way": ["new_interpreter"], "reason": {}, "name": "x"}',
        '{"way": "new_interpreter", "reason": "become", "name": {}}',
    ],
)
def test_a_line_that_no_forked_run_wrote_is_counted_and_skipped(line: str) -> None:
    right = json.dumps({"way": "new_interpreter", "reason": "become", "name": "ping"})

    found = executions.parse(json.loads(json.dumps(executions.add_up([line, right, right]))))

    assert found == Executions((PING,), malformed=1)


def test_texts_of_a_role_in_the_record_can_be_sent_and_are_short() -> None:
    lines = [
        json.dumps({"way": "new_interpreter", "reason": "become", "name": "\ud800" + "x" * 1000}),
        json.dumps({"defect": "\ud800" + "y" * 100_000}),
    ]

    found = executions.parse(executions.add_up(lines))

    assert (len(found.each[0].name), len(found.defects[0])) == (200, 16 * 1024)
    assert orjson.loads(orjson.dumps([found.each[0].name, *found.defects]))
    assert found.malformed == 0


def test_lines_that_do_not_count_are_logged_once() -> None:
    with capture_logs() as lines:
        log = ExecutionLog()
        log.add("first", Executions(malformed=2))
        log.add("second", Executions(malformed=3))

    assert [(line["log_level"], line["job"], line["lines"]) for line in lines] == [("warning", "first", 2)]


def test_a_defect_is_reported_once_however_often_it_happens() -> None:
    line = json.dumps({"defect": "Traceback"})

    assert executions.parse(executions.add_up([line] * 3)).defects == ("Traceback",)


def test_each_reason_and_each_defect_is_logged_once_with_the_first_module() -> None:
    ran = Executions((PING, Execution(Way.PLAYBOOK, Reason.NONE, 1, "debug")), ("Traceback",))

    with capture_logs() as lines:
        log = ExecutionLog()
        log.add("first", ran)
        log.add("second", ran)

    assert [(line["log_level"], line["job"]) for line in lines] == [("info", "first"), ("error", "first")]
    assert (lines[0]["way"], lines[0]["reason"], lines[0]["module"]) == ("new_interpreter", "become", "ping")
    assert lines[1]["traceback"] == "Traceback"


def test_a_run_whose_file_cannot_be_written_continues(tmp_path: Path) -> None:
    executions.note(str(tmp_path / "missing" / "executions"), {})
