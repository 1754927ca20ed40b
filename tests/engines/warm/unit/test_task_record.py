"""What forked runs record of their tasks."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest

from runner.engines.warm import messages, task_record
from runner.engines.warm.task_record import TaskExecution


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("ANSIBLE_LOCAL_TEMP", str(tmp_path))
    monkeypatch.delenv(task_record.RECORDED, raising=False)
    return {"ANSIBLE_LOCAL_TEMP": str(tmp_path)}


def test_executions_are_recorded_where_the_environment_requests_it(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task_record.add(task_record.PLAYBOOK, "debug")
    monkeypatch.setenv(task_record.RECORDED, "1")
    task_record.add(task_record.INTERPRETER, "ping", "become")

    notes = Path(messages.noted_in(environment)).read_text(encoding="utf-8")

    assert task_record.executions(notes) == (TaskExecution("new_interpreter", "ping", "become"),)


def test_a_defect_is_recorded_in_each_run_with_its_traceback(environment: dict[str, str]) -> None:
    try:
        memoryview("")  # type: ignore[arg-type]  # raises
    except TypeError:
        task_record.defect("modules")

    notes = Path(messages.noted_in(environment)).read_text(encoding="utf-8")

    (found,) = task_record.defects(notes + notes)
    assert found.startswith("shortcut modules: Traceback")
    assert "TypeError: memoryview" in found


@pytest.mark.parametrize("line", ['{"defect": "x', "5", "null", '"defect"', "[" * 100_000, '{"defect": 5}', ""])
def test_a_line_that_is_no_defect_does_not_count(line: str) -> None:
    assert task_record.defects(f'{line}\n{{"defect": "Traceback"}}\n') == ("Traceback",)


def test_texts_of_a_role_can_be_sent_and_are_short() -> None:
    found = task_record.defects(json.dumps({"defect": "\ud800" + "y" * 100_000}))

    assert [len(each) for each in found] == [16 * 1024]
    assert orjson.loads(orjson.dumps(found)) == list(found)
