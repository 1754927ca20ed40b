"""Events and results are shown without secrets, and stay what they were otherwise."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from runner.core.engine import events, redaction
from runner.core.engine.job import Event, Outcome, RunResult, TaskFailure
from runner.core.engine.run_secrets import NOT_REPORTED, WITHHELD, RunSecrets
from runner.core.masking.masker import MASK, TOO_SLOW, Budget, Masker

CENSORED = "the output has been hidden due to the fact that 'no_log: true' was specified for this result"
END = events.End(stopped=None, deadline=None, code=2, signal="", fault="", duration=1.0)
STATS: Event = {
    "event": "playbook_on_stats",
    "stdout": "PLAY RECAP",
    "created": "2026-01-01T00:00:00.000001+00:00",
    "event_data": {"ok": {"localhost": 1}, "failures": {"localhost": 1}, "artifact_data": {"pw": "hunter2hunter2"}},
}


def failed(*, stdout: str = "", host: str = "localhost", name: str = "runner_on_failed", **res: Any) -> Event:
    return {
        "event": name,
        "uuid": "u",
        "counter": 3,
        "stdout": stdout,
        "event_data": {
            "host": host,
            "task": "Do it",
            "task_uuid": "t-1",
            "task_path": "/roles/r/tasks/main.yml:7",
            "task_action": "k8s",
            "res": res,
        },
    }


def knowing(*values: str) -> RunSecrets:
    secrets = RunSecrets()
    secrets.add_initial(values)
    return secrets


async def shown(secrets: RunSecrets, *given: Event) -> list[Event]:
    async def stream() -> AsyncIterator[Event]:
        for event in given:
            yield event

    return [event async for event in redaction.events(stream(), secrets)]


def conclude(passed: Sequence[Event]) -> RunResult:
    progress = events.Progress()
    for event in passed:
        progress = events.fold(progress, event)
    return events.conclude(progress, END)


async def test_events_that_show_nothing_are_passed_on_as_they_are() -> None:
    event = failed(msg="no", stdout="fatal: no")
    for secrets in (RunSecrets(), knowing("hunter2hunter2")):
        (passed,) = await shown(secrets, event)
        assert passed is event
        assert not secrets.has_learned


async def test_a_value_is_masked_in_an_event_and_its_failure_stays_readable() -> None:
    event = failed(msg="login hunter2hunter2 refused", stdout='fatal: {"msg": "login hunter2hunter2 refused"}')
    before = copy.deepcopy(event)
    secrets = knowing("hunter2hunter2")
    passed = await shown(secrets, event, STATS)
    assert event == before
    assert "hunter2" not in json.dumps(passed)
    assert conclude(passed).failures == (TaskFailure("Do it", f"login {MASK} refused", "/roles/r/tasks/main.yml:7"),)


async def test_names_that_the_result_is_made_from_are_not_masked_whatever_they_equal() -> None:
    event = failed(msg="x", host="localhost-1")
    stats = {**STATS, "event_data": {"ok": {}, "failures": {"localhost-1": 1}}}
    passed = await shown(knowing("localhost-1", "k8s-action"), event, stats)
    assert [failure.message for failure in conclude(passed).failures] == ["x"]


@pytest.mark.parametrize("size", [10, 1 << 20])
async def test_large_events_are_masked_too(size: int) -> None:
    text = f"{'word ' * (size // 5)} hunter2hunter2"
    (passed,) = await shown(knowing("hunter2hunter2"), failed(msg=text, stdout=text))
    assert passed["stdout"].endswith(MASK)
    assert passed["event_data"]["res"]["msg"].endswith(MASK)


async def test_a_result_that_nests_too_deeply_to_be_masked_is_withheld() -> None:
    deep: Any = "hunter2hunter2"
    for _ in range(2000):
        deep = [deep]
    (passed,) = await shown(knowing("hunter2hunter2"), failed(msg="no", deep=deep))
    assert passed["event_data"]["res"] == {"msg": WITHHELD}
    assert passed["event_data"]["task"] == "Do it"


async def test_a_failure_hidden_by_no_log_keeps_its_task_and_place() -> None:
    passed = await shown(RunSecrets(), failed(censored=CENSORED, stdout="fatal: censored"), STATS)
    (failure,) = conclude(passed).failures
    assert "Do it" in failure.message
    assert "/roles/r/tasks/main.yml:7" in failure.message
    assert "no_log" in failure.message


async def test_the_message_that_ansible_shows_beside_no_log_is_kept_when_the_arguments_are_known() -> None:
    error = "[ERROR]: Task failed: Action failed: no login with hunter2hunter2\nOrigin: /x.yml:1:1\n\nfatal: censored"
    event = failed(censored=CENSORED, stdout=error)
    secrets = RunSecrets()
    # As the run's callback does before the event.
    secrets.learn(["hunter2hunter2"])
    secrets.clear("t-1")
    passed = await shown(secrets, event, STATS)
    assert "hunter2" not in json.dumps(passed)
    (failure,) = conclude(passed).failures
    assert failure.message.startswith(f"no login with {MASK}")
    assert "no_log" in failure.message


async def test_the_message_beside_no_log_is_masked_when_the_arguments_are_unknown() -> None:
    error = (
        "[WARNING]: beware\n[ERROR]: Task failed: no login with hunter2hunter2\nOrigin: /x.yml:1:1\n\n"
        "<<< caused by >>>\n\nno hunter2hunter2 here\nfatal: censored"
    )
    secrets = RunSecrets()
    passed = await shown(secrets, failed(censored=CENSORED, stdout=error), STATS)
    assert "hunter2" not in json.dumps(passed[0])
    assert passed[0]["stdout"].startswith("[WARNING]: beware\n[ERROR]: ")
    assert passed[0]["stdout"].endswith("\nfatal: censored")
    assert "Do it" in conclude(passed).failures[0].message


async def test_without_all_secrets_output_is_withheld_except_task_and_place() -> None:
    secrets = knowing("something")
    assert not secrets.is_exhausted_first()
    secrets.exhaust()
    assert secrets.is_exhausted_first()
    assert not secrets.is_exhausted_first()
    requeue = failed(period="1m30s", done=True, msg="later")
    requeue |= {"event": "runner_on_ok", "event_data": {**requeue["event_data"], "task_action": "requeue_after"}}
    end = failed(msg="hunter2hunter2", stdout="fatal: hunter2hunter2", terminal=True)
    end["event_data"]["task_action"] = "operator_sdk.util.fail_terminal"
    passed = await shown(secrets, requeue, end, STATS)
    assert "hunter2" not in json.dumps(passed)
    result = conclude(passed)
    assert result.failures == (TaskFailure("Do it", WITHHELD, "/roles/r/tasks/main.yml:7", terminal=True),)
    assert (result.requeue_after, result.unfinished) == (90.0, False)
    assert passed[2]["stdout"] == "PLAY RECAP"


async def test_a_result_is_masked_with_all_that_became_known_since() -> None:
    failures = (TaskFailure("Log in as hunter2hunter2", "no hunter2hunter2", "a:1"),)
    result = RunResult(Outcome.FAILED, None, failures, "said hunter2hunter2", None, 1.0)
    assert await redaction.result(result, RunSecrets()) is result
    masked = await redaction.result(result, knowing("hunter2hunter2"))
    assert masked.message == f"said {MASK}"
    assert masked.failures == (TaskFailure(f"Log in as {MASK}", f"no {MASK}", "a:1"),)


async def test_a_search_that_takes_longer_than_a_moment_continues_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_BRIEF", -1.0)
    finds, threads = Masker.finds, []

    def observed(masker: Masker, data: bytes, budget: Budget) -> bool:
        threads.append(threading.current_thread() is threading.main_thread())
        return finds(masker, data, budget)

    monkeypatch.setattr(Masker, "finds", observed)
    (passed,) = await shown(knowing("hunter2hunter2"), failed(msg="no hunter2hunter2"))
    assert passed["event_data"]["res"]["msg"] == f"no {MASK}"
    assert threads == [True, False]
    result = RunResult(Outcome.FAILED, None, (TaskFailure("Log in", "no hunter2hunter2", ""),), "", None, 1.0)
    assert (await redaction.result(result, knowing("hunter2hunter2"))).failures[0].message == f"no {MASK}"


async def test_output_that_cannot_be_searched_in_time_is_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_BRIEF", -1.0)
    monkeypatch.setattr(redaction, "_LONG", -1.0)
    secrets = knowing("hunter2hunter2")
    requeue = failed(period="1m30s", msg="hunter2hunter2", stdout="hunter2hunter2", name="runner_on_ok")
    requeue["event_data"]["task_action"] = "requeue_after"
    passed = await shown(secrets, requeue, failed(msg="no hunter2hunter2", stdout="fatal: hunter2hunter2"))
    assert "hunter2" not in json.dumps(passed)
    assert passed[1]["stdout"] == TOO_SLOW
    found = conclude(passed)
    assert found.failures == (TaskFailure("Do it", TOO_SLOW, "/roles/r/tasks/main.yml:7"),)
    assert found.requeue_after == 90.0
    result = RunResult(Outcome.FAILED, None, (TaskFailure("Log in", "no hunter2hunter2", ""),), "no", None, 1.0)
    masked = await redaction.result(result, secrets)
    assert (masked.message, masked.failures[0].message) == (TOO_SLOW, TOO_SLOW)


async def test_output_is_withheld_after_a_run_could_not_report_its_arguments() -> None:
    secrets = RunSecrets()
    warning: Event = {"event": "verbose", "stdout": f"[WARNING]: {redaction.UNREPORTED} cannot report: refused"}
    passed = await shown(secrets, failed(msg="before"), warning, failed(msg="hunter2hunter2"))
    assert passed[0]["event_data"]["res"]["msg"] == "before"
    assert passed[2]["event_data"]["res"]["msg"] == NOT_REPORTED
    assert "hunter2" not in json.dumps(passed)
