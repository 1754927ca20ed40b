from __future__ import annotations

import pytest

from runner.engine import advice
from runner.engine.job import Outcome, RunResult, TaskFailure

BROKEN = (
    "Task failed: Conditional result (True) was derived from value of type 'str' at '/roles/a/tasks/main.yml:3:9'. "
    "Conditionals must have a boolean result."
)


def failed(*messages: str, message: str = "") -> RunResult:
    failures = tuple(TaskFailure("task", each, "main.yml:3") for each in messages)
    return RunResult(Outcome.FAILED, None, failures, message, None, 1.0)


@pytest.mark.parametrize("core", ["2.19.0", "2.21.5", "2.20.0rc1", "2.22.0.dev0"])
@pytest.mark.parametrize(
    "message",
    [
        BROKEN,
        "Task failed: Empty conditional expressions are not allowed.",
        "Task failed: Conditional expressions must be strings.",
        "One or more items failed: Conditional expressions must be strings.",
    ],
)
def test_the_error_of_a_broken_conditional_names_the_setting_that_helps(message: str, core: str) -> None:
    (found,) = advice.add(failed(message), core).failures

    assert found.message == f"{message} ({advice.ADVICE})"
    assert "allow_broken_conditionals" in found.message


@pytest.mark.parametrize("core", ["2.18.6", "2.23.0", "3.0", "unknown"])
def test_a_core_without_the_setting_gets_no_advice(core: str) -> None:
    assert advice.add(failed(BROKEN), core) == failed(BROKEN)


@pytest.mark.parametrize(
    "message", ["", "no space left", "the result must be a boolean", "Conditional result is unknown"]
)
def test_other_failures_are_left_as_they_are(message: str) -> None:
    assert advice.add(failed(message, message=message), "2.21.5") == failed(message, message=message)


def test_only_failures_of_conditionals_and_the_message_of_the_run_get_the_advice() -> None:
    advised = advice.add(failed("other", BROKEN, message=BROKEN), "2.21.5")

    assert [advice.ADVICE in failure.message for failure in advised.failures] == [False, True]
    assert advised.message.endswith(f"({advice.ADVICE})")
