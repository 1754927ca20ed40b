"""Failures that Ansible, its modules and Kubernetes really reported, and what people read about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.core.engine import causes
from runner.core.engine.events import Progress, fold

OUTPUTS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("failures.json").read_text(encoding="utf-8"))
"""Results of failed tasks, and output outside of tasks, of ansible-core 2.18 to 2.22 on real servers."""


def _readable(output: dict[str, Any]) -> tuple[str, str]:
    """Return what is said about an output, and the place."""
    if "lines" in output:
        cause, place = causes.of_output(output["lines"])
        return str(cause), place
    (suspect,) = fold(Progress(), {"event": "runner_on_failed", **output["failed"]}).suspects
    return suspect.failure.message, suspect.failure.path


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: f"{output['case']}, {output['cores'][0]}")
def test_a_failure_is_its_cause_in_a_sentence_with_the_remedy_and_the_place(output: dict[str, Any]) -> None:
    assert _readable(output) == (output["text"], output["path"])


@pytest.mark.parametrize("action", ["debug", "ansible.builtin.assert"])
@pytest.mark.parametrize(
    "message",
    [
        "Conditional result (True) was derived from value of type 'str' at '/roles/a/tasks/main.yml:3:9'",
        "Empty conditional expressions are not allowed.",
        "Conditional expressions must be strings.",
        "One or more items failed: Conditional expressions must be strings.",
    ],
)
def test_the_error_of_a_broken_conditional_names_the_setting_that_helps(message: str, action: str) -> None:
    cause = causes.of_task({"task_action": action}, f"Task failed: {message}", ())

    assert str(cause) == f"{message.rstrip('.')} ({causes.BROKEN})"
    assert "allow_broken_conditionals" in causes.BROKEN


@pytest.mark.parametrize("text", ["no space", "the result must be a boolean", "Conditional result is x"])
def test_other_causes_do_not_name_the_setting_of_conditionals(text: str) -> None:
    assert str(causes.of_task({}, text, ())) == text


def test_a_cause_has_two_hundred_characters_at_most_and_what_an_author_wrote_is_whole() -> None:
    for action, length in (("uri", causes.MOST), ("ansible.builtin.fail", 5000)):
        assert len(causes.of_task({"task_action": action}, "x" * 5000, ()).text) == length


@pytest.mark.parametrize(
    "text",
    [
        '{"kind":"Status"',
        '{"kind":"Status","message":3}',
        '{"kind":"Status","message":"m","details":{"causes":[null]}}',
        "Task failed: ",
        ": " * 200_000,
        "An unhandled exception occurred while " * 20_000,
        "The conditional check 'a' failed. The error was" * 20_000,
        "host='a', port=1" * 50_000,
    ],
)
def test_any_text_has_a_cause_within_its_bounds(text: str) -> None:
    result = {"result": {"metadata": 3, "status": []}, "invocation": [], "cmd": [], "url": 5, "rc": "x"}
    assert len(causes.of_task({"res": result}, text, ()).text) <= causes.MOST
