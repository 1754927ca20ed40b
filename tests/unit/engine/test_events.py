from __future__ import annotations

from functools import reduce
from typing import Any, ClassVar

import pytest

from runner.core.engine import causes, events
from runner.core.engine.job import Event, HostRecap, Outcome, Recap, RunResult, TaskFailure


def task_start(task: str, path: str = "/r/main.yml:1") -> Event:
    return {"event": "playbook_on_task_start", "event_data": {"task": task, "task_path": path}}


def failed(task: str, res: Any, **data: Any) -> Event:
    return {
        "event": "runner_on_failed",
        "event_data": {"task": task, "task_path": "/r/main.yml:1", "host": "localhost", "res": res, **data},
    }


def item_failed(message: str) -> Event:
    return {"event": "runner_item_on_failed", "event_data": {"host": "localhost", "res": {"msg": message}}}


def stats(**counts: Any) -> Event:
    return {"event": "playbook_on_stats", "created": "2026-11-21T11:00:12.067313+00:00", "event_data": counts}


def said(*lines: str) -> list[Event]:
    return [{"event": "verbose", "stdout": line} for line in lines]


def requeue(action: str = "requeue_after", **res: Any) -> Event:
    return {"event": "runner_on_ok", "event_data": {"task_action": action, "res": res}}


def result(*run: Event, **end: Any) -> RunResult:
    fields = {"stopped": None, "deadline": None, "code": 2, "signal": "", "fault": "", "duration": 1.5, **end}
    return events.conclude(reduce(events.fold, run, events.Progress()), events.End(**fields))


ONE_FAILED = stats(failures={"localhost": 1})
START = task_start("a")


class TestFailures:
    def test_arguments_that_the_spec_refuses_name_the_role_and_not_the_task_that_ansible_inserts(self) -> None:
        refused = {"msg": "missing", "validate_args_context": {"name": "shop", "path": "/p/roles/shop", "type": "role"}}
        (failure,) = result(START, failed("Validating arguments", refused), ONE_FAILED).failures
        assert failure.path == "/p/roles/shop/meta"

    @pytest.mark.parametrize(
        ("res", "message"),
        [
            (
                {
                    "msg": "The command failed.",
                    "stderr": "No user exists for uid 54321\r\n",
                },
                f"The command failed: No user exists for uid 54321 ({causes.NO_USER})",
            ),
            ({"msg": "non-zero", "stdout": "one\n", "stderr": "one\ntwo\n \n"}, "non-zero: two"),
            (
                {"msg": "non-zero return code", "stdout": "the result", "rc": 1},
                "exit code 1, without a message on stderr",
            ),
            (
                {
                    "msg": "non-zero",
                    "stdout": "cat: /x: No such file\r\n",
                    "stderr": "Shared connection to a closed.\r\n",
                },
                "non-zero: cat: /x: No such file",
            ),
            (
                {
                    "msg": "No start of json char found",
                    "module_stderr": "Traceback (most recent call last):\nMemoryError\n",
                    "module_stdout": "x",
                },
                "No start of json char found: MemoryError",
            ),
            (
                {
                    "msg": "MODULE FAILURE",
                    "module_stderr": "Shared connection to 10.0.0.1 closed.\r\n",
                    "module_stdout": "\x1b[31m/bin/sh: 1: python3: not found\x1b[0m\r\n",
                },
                "the module crashed: /bin/sh: 1: python3: not found",
            ),
            (
                {
                    "msg": "The following modules failed to execute: setup.",
                    "failed_modules": {
                        "setup": {"msg": "no json", "module_stderr": "python3.9: not found\n"},
                        "other": {"msg": "it is late"},
                    },
                },
                "The following modules failed to execute: setup: setup: python3.9: not found; other: it is late",
            ),
            (
                {
                    "msg": "modules failed: setup.",
                    "failed_modules": {"setup": {"module_stdout": "sh: python3: not found"}},
                },
                "modules failed: setup: sh: python3: not found",
            ),
            ({"msg": "it is said: no", "stderr": "no\n"}, "it is said: no"),
            ({"censored": "hidden", "stderr": ""}, "task 'a' (/r/main.yml:1) failed; no_log hides its result"),
            ({"msg": "failed", "stderr": "x" * 9000}, f"failed: {'x' * 191}…"),
            ({"msg": "failed", "stderr": ["no", "text"], "stdout": None}, "failed"),
        ],
    )
    def test_a_message_names_the_cause_that_only_the_output_has(self, res: Any, message: str) -> None:
        assert result(START, failed("a", res), ONE_FAILED).failures[0].message == message

    def test_a_run_that_the_check_of_names_ended_is_refused_with_its_sentence(self) -> None:
        ended = result(*said("PLAY [web]", "ERROR! host 'db' of the resource: the project uses this name"), code=78)
        assert (ended.refused, ended.outcome) == (True, Outcome.FAILED)
        assert ended.message == "host 'db' of the resource: the project uses this name"
        assert not result(START, failed("a", {"msg": "no"}), ONE_FAILED, code=78).refused

    def test_a_run_that_ends_well_succeeds_with_its_recap(self) -> None:
        counts = {"ok": {"localhost": 3, "other": 9}, "changed": {"localhost": 2}, "skipped": {"localhost": 1}}
        recap = Recap(3, 2, 1, 0, "2026-11-21T11:00:12.067313+00:00")
        ended = result(START, stats(**counts, failures={}), code=0)
        assert ended == RunResult(Outcome.SUCCEEDED, recap, (), "", None, 1.5)

    @pytest.mark.parametrize(
        ("res", "message"),
        [
            ({"msg": "no more"}, "no more"),
            ({"msg": "  two\nlines \n"}, "two lines"),
            ({"msg": ["a", {"b": "ü"}]}, '["a", {"b": "ü"}]'),
            ({"msg": {"a": 1}}, '{"a": 1}'),
            ({"msg": "no", "details": "it is late"}, "no: it is late"),
            ({"msg": "no: it is late", "details": "it is late"}, "no: it is late"),
            ({"msg": ""}, "unknown playbook failure"),
            ({"msg": None, "rc": 1}, "unknown playbook failure"),
            ({}, events._TOO_LARGE),
            ({"failed": True}, "unknown playbook failure"),
            ("odd", "unknown playbook failure"),
            ({"reason": "Could not find or access 'x.yml'"}, "Could not find or access 'x.yml'"),
            ({"censored": "hidden"}, "task 'a' (/r/main.yml:1) failed; no_log hides its result"),
            ({"censored": "hidden", "msg": "no"}, "no (task 'a' (/r/main.yml:1) failed; no_log hides its result)"),
        ],
    )
    def test_a_failed_task_is_named_with_its_message(self, res: Any, message: str) -> None:
        ended = result(START, failed("a", res), ONE_FAILED)
        assert (ended.outcome, ended.message) == (Outcome.FAILED, "")
        assert ended.failures == (TaskFailure("a", message, "/r/main.yml:1"),)

    @pytest.mark.parametrize(
        ("action", "extra", "terminal"),
        [
            ("operator_sdk.util.fail_terminal", {"terminal": True}, True),
            ("operator_sdk.util.fail_terminal", {"results": [{"skipped": True}, {"terminal": True}]}, True),
            ("operator_sdk.util.fail_terminal", {"results": [{"msg": "a 'when' expression failed"}]}, False),
            ("operator_sdk.util.fail_terminal", {}, False),
            ("ansible.builtin.fail", {"terminal": True}, False),
            ("operator_sdk.util.fail_terminal", {"censored": "hidden"}, True),
        ],
        ids=["ran", "ran for an item", "no item ran", "did not run", "another module", "hidden by no_log"],
    )
    def test_a_role_reports_a_terminal_failure_with_a_module(
        self, action: str, extra: dict[str, object], *, terminal: bool
    ) -> None:
        event = failed("a", {"msg": "never", **extra}, task_action=action)
        assert result(START, event, ONE_FAILED).is_terminal is terminal
        assert not result(START, event, stats(), code=0).is_terminal

    def test_a_terminal_failure_with_a_result_above_the_limit_of_ansible_runner_is_terminal(self) -> None:
        event = failed("a", {}, task_action="operator_sdk.util.fail_terminal")
        assert result(START, event, ONE_FAILED).is_terminal
        assert not result(START, failed("a", {}), ONE_FAILED).is_terminal

    def test_a_very_long_message_is_cut_and_contains_its_length(self) -> None:
        event = failed("a", {"msg": "x" * 100_000}, task_action="ansible.builtin.fail")
        (failure,) = result(event, ONE_FAILED).failures
        assert len(failure.message) < 5000
        assert failure.message.endswith("… (100000 characters in all)")

    def test_each_failed_item_is_reported_once_and_at_most_ten_are(self) -> None:
        items = [item_failed(f"item {number}") for number in (0, *range(12))]
        (failure,) = result(START, *items, failed("a", {"msg": "One or more items failed"}), ONE_FAILED).failures
        assert failure.message.startswith("One or more items failed: item 0; item 1; ")
        assert failure.message.endswith("item 9; and 2 more")

    def test_failed_items_of_an_ignored_task_are_not_reported_for_the_next_task(self) -> None:
        ignored = failed("first", {"msg": "One or more items failed"}, ignore_errors=True)
        ended = result(item_failed("of the first"), ignored, failed("second", {"msg": "second"}), ONE_FAILED)
        assert [failure.message for failure in ended.failures] == ["second"]

    @pytest.mark.parametrize(
        ("run", "reported"),
        [
            pytest.param(
                (failed("a", {}), failed("b", {}), stats(failures={"localhost": 1}, rescued={"localhost": 1})),
                ["b"],
                id="a rescued failure is not reported",
            ),
            pytest.param(
                (
                    failed("a", {}, host="one"),
                    failed("b", {}, host="two"),
                    failed("c", {}, host="one"),
                    stats(failures={"one": 1, "two": 1}, rescued={"one": 1}),
                ),
                ["b", "c"],
                id="failures are counted for each host",
            ),
            pytest.param(
                (failed("a", {}) | {"event": "runner_on_unreachable"}, stats(dark={"localhost": 1})),
                ["a"],
                id="an unreachable host is a failure",
            ),
            pytest.param(
                (failed("a", {}) | {"event": "runner_on_unreachable"}, failed("b", {}), ONE_FAILED),
                ["b"],
                id="an unreachable host was ignored",
            ),
            pytest.param(
                (START, failed("a", {}), task_start("b"), failed("b", {})),
                ["b"],
                id="without a recap only the last task can have failed the run",
            ),
        ],
    )
    def test_failures_that_the_recap_counts_are_reported(self, run: tuple[Event, ...], reported: list[str]) -> None:
        assert [failure.task for failure in result(*run, code=4).failures] == reported


class TestWithoutTasks:
    @pytest.mark.parametrize("first", ["ERROR! conflicting", "[ERROR]: conflicting", "ERROR: conflicting"])
    def test_the_error_that_ansible_printed_is_the_message(self, first: str) -> None:
        ended = result(*said("[WARNING]: before", first, "", "Origin: /r/main.yml:4:5"), code=4)
        assert (ended.outcome, ended.message) == (Outcome.FAILED, "conflicting\n/r/main.yml:4")

    def test_the_message_has_no_colours_and_no_usage_text(self) -> None:
        assert result(*said("\x1b[0;31mERROR! no\x1b[0m"), code=4).message == "no"
        unknown = "ansible-playbook: error: unrecognized arguments: -Z"
        assert result(*said(unknown, "usage: ansible-playbook")).message == unknown

    def test_an_end_without_any_error_names_code_task_and_last_line(self) -> None:
        ended = result(START, *said("odd"), code=250)
        assert (ended.outcome, ended.message) == (
            Outcome.DIED,
            "ansible-playbook ended with exit code 250 during task 'a' (/r/main.yml:1); its last output: odd",
        )


@pytest.mark.parametrize(
    ("run", "end", "outcome", "message"),
    [
        pytest.param(
            (START, failed("a", {"msg": "killed"})),
            {"stopped": Outcome.TIMED_OUT, "deadline": 90.0},
            Outcome.TIMED_OUT,
            "the run took longer than 1m30s and was ended during task 'a' (/r/main.yml:1)",
            id="timeout",
        ),
        pytest.param(
            (),
            {"stopped": Outcome.CANCELED},
            Outcome.CANCELED,
            "the run was ended by the operator before its first task",
            id="canceled",
        ),
        pytest.param(
            (task_start("a", ""),),
            {"signal": "SIGTERM"},
            Outcome.DIED,
            "ansible-playbook was killed by SIGTERM during task 'a'",
            id="signal",
        ),
        pytest.param(
            (),
            {"fault": "it ended"},
            Outcome.NOT_STARTED,
            "it ended before its first task",
            id="fault before any event",
        ),
        pytest.param(
            (START,),
            {"fault": "it was killed"},
            Outcome.DIED,
            "it was killed during task 'a' (/r/main.yml:1)",
            id="fault after an event",
        ),
    ],
)
def test_the_end_of_a_run_that_did_not_end_by_itself_is_explained(
    run: tuple[Event, ...], end: dict[str, Any], outcome: Outcome, message: str
) -> None:
    ended = result(*run, code=None, **end)
    assert (ended.outcome, ended.message, ended.failures) == (outcome, message, ())


def test_a_run_that_succeeded_just_before_it_was_to_be_ended_has_succeeded() -> None:
    assert result(stats(), stopped=Outcome.TIMED_OUT, deadline=1.0, code=0).outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize("res", [{}, {"censored": "hidden", "changed": False}], ids=["too large", "no_log"])
def test_a_request_of_the_next_run_whose_period_is_missing_is_kept(res: dict[str, Any]) -> None:
    event = requeue()
    event["event_data"]["res"] = res
    found = result(event, stats(), code=0)
    assert (found.requeue_after, found.unfinished) == (60.0, True)


@pytest.mark.parametrize(
    ("action", "period", "seconds"),
    [
        ("operator_sdk.util.requeue_after", "1m30s", 90.0),
        ("requeue_after", "500ms", 0.5),
        ("requeue_after", "nonsense", None),
        ("requeue_after", None, None),
        ("debug", "1m", None),
    ],
)
def test_a_module_requests_the_next_run(action: str, period: Any, seconds: float | None) -> None:
    found = result(requeue(action, period=period), stats(), code=0)
    assert (found.requeue_after, found.unfinished) == (seconds, seconds is not None)


@pytest.mark.parametrize(("done", "unfinished"), [(True, False), (False, True), (None, True), ("yes", True)])
def test_a_role_reports_whether_the_object_is_done(done: Any, unfinished: bool) -> None:  # noqa: FBT001 - a table's column
    assert result(requeue(period="1h", done=done), stats(), code=0).unfinished is unfinished


def test_a_completion_on_the_full_second_has_microseconds_too() -> None:
    event = stats() | {"created": "2026-11-21T11:00:12+00:00"}
    assert events.recap(event).completion == "2026-11-21T11:00:12.000000+00:00"
    assert events.recap(event | {"created": "odd"}).completion == "odd"


class TestHosts:
    COUNTS: ClassVar[dict[str, Any]] = {
        "ok": {"one": 2, "localhost": 1},
        "changed": {"one": 1},
        "dark": {"two": 1},
        "processed": {"one": 1, "two": 1, "localhost": 1},
    }
    LOST: ClassVar[Event] = {
        "event": "runner_on_unreachable",
        "event_data": {"host": "two", "task": "a", "res": {"msg": "no route"}},
    }
    NAMED: ClassVar[dict[str, Any]] = {"hosts": True, "unmatched": "no host"}
    UNMATCHED: ClassVar[Event] = {"event": "playbook_on_no_hosts_matched", "event_data": {}}

    def test_each_host_has_a_recap_and_localhost_counts_in_the_sum(self) -> None:
        ended = result(self.LOST, stats(**self.COUNTS), code=4, hosts=True)
        assert ended.hosts == (HostRecap("one", 2, 1, 0, 0), HostRecap("two", 0, 0, 0, 1))
        assert ended.recap is not None
        assert (ended.recap.ok, ended.recap.changed) == (3, 1)
        assert ended.unreachable == ("two",)
        assert result(self.LOST, stats(**self.COUNTS), code=4).unreachable == ()

    def test_a_failed_task_beside_an_unreachable_host_is_the_failure_of_the_run(self) -> None:
        on_one = failed("b", {"msg": "no"}, host="one")
        ended = result(self.LOST, on_one, stats(**self.COUNTS, failures={"one": 1}), code=2, hosts=True)
        assert ended.unreachable == ()
        assert [(each.host, each.unreachable) for each in ended.failures] == [("two", True), ("one", False)]

    def test_a_host_that_a_role_may_not_reach_has_not_been_reached(self) -> None:
        # With `ignore_unreachable`.
        ended = result(self.LOST, stats(ok={"one": 1, "two": 1}, ignored={"two": 1}), code=0, hosts=True)
        assert ended.hosts == (HostRecap("one", 1, 0, 0, 0), HostRecap("two", 1, 0, 0, 1))
        assert (ended.outcome, ended.unreachable, ended.failures) == (Outcome.SUCCEEDED, (), ())

    @pytest.mark.parametrize("counts", [{}, {"ok": {"localhost": 1}}])
    def test_a_run_whose_plays_match_no_host_has_failed(self, counts: dict[str, Any]) -> None:
        ended = result(self.UNMATCHED, stats(**counts), code=0, **self.NAMED)
        assert ended.outcome is Outcome.FAILED
        assert ended.message == "no host"
        assert result(self.UNMATCHED, stats(**self.COUNTS), code=0, **self.NAMED).outcome is Outcome.SUCCEEDED
        # The user removed all hosts: nothing is left to do.
        assert result(self.UNMATCHED, stats(**counts), code=0, hosts=True).outcome is Outcome.SUCCEEDED
        assert result(stats(**counts), code=0, **self.NAMED).outcome is Outcome.SUCCEEDED
        assert result(self.UNMATCHED, stats(**counts), code=0).outcome is Outcome.SUCCEEDED
