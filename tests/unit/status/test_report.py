"""Behaviours of the conditions, against the contract's table."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from runner.app.features import OWN_STATUS
from runner.core.engine.job import HostRecap, Outcome, Recap, RunResult, TaskFailure
from runner.core.status import conditions, report
from runner.core.status.conditions import ignored
from runner.core.status.patch import dropped_fields, patch, without
from runner.features.plan import plan_status
from runner.features.references.hooks import ignored_references
from runner.values.objects import LastResult, last_result

NOW = 1_800_000_000.0
STAMP = "2027-01-15T08:00:00Z"
NO_MORE = report.FailureDetails()
RECAP = Recap(ok=3, changed=1, skipped=2, failures=0, completion="2027-01-15T08:00:00.123456")


def _object(conditions: list[dict[str, Any]] | None = None, **extra: Any) -> dict[str, Any]:
    obj: dict[str, Any] = {"metadata": {"name": "a", "namespace": "ns", "uid": "u1", "generation": 4}}
    if conditions is not None:
        obj["status"] = {"conditions": conditions, **extra}
    return obj


def _result(outcome: Outcome, *failures: TaskFailure, message: str = "", recap: Recap | None = RECAP) -> RunResult:
    return RunResult(outcome, recap, failures, message, None, 1.0)


def _write(obj: dict[str, Any], wanted: report.StatusReport, now: float = NOW) -> dict[str, Any]:
    """Apply the patch as the API server would."""
    operations = patch(obj, report.observed(obj, wanted), OWN_STATUS, now)
    if operations is None:
        return obj
    written = copy.deepcopy(obj)
    for operation in operations:
        *parents, last = operation["path"].strip("/").split("/")
        place = written[parents[0]] if parents else written
        if operation["op"] == "test":
            assert place.get(last) == operation["value"]
        elif operation["op"] == "remove":
            del place[last]
        else:
            place[last] = operation["value"]
    return written


def _by_type(obj: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {condition["type"]: condition for condition in obj["status"]["conditions"]}


def _after(outcome: Outcome, *failures: TaskFailure, details: report.FailureDetails = NO_MORE, **more: Any) -> Any:
    """Return the conditions of a new object after its first run, by type."""
    return _by_type(_write(_object(), report.run_ended(_result(outcome, *failures, **more), details)))


def _failure(details: report.FailureDetails, *failures: TaskFailure) -> str:
    """Return the message of the condition `Failure` after a failed run."""
    return str(report.run_ended(_result(Outcome.FAILED, *failures), details).conditions[2]["message"])


SUCCESS = report.run_ended(_result(Outcome.SUCCEEDED), NO_MORE)


REQUEUED = replace(_result(Outcome.SUCCEEDED), requeue_after=30.0, unfinished=True)


@pytest.mark.parametrize("earlier", [None, Outcome.SUCCEEDED, Outcome.FAILED])
def test_contract_after_requeue_after_the_object_is_as_during_the_run(earlier: Outcome | None) -> None:
    """The Go operator ends its reconcile at this module: `Running` stays, and `Successful` is not true."""
    before = _object()
    if earlier is not None:
        before = _write(before, report.run_ended(_result(earlier), NO_MORE))
    began = _write(before, report.run_began(before))
    after = _by_type(_write(began, report.run_ended(REQUEUED, NO_MORE), NOW + 60))
    assert after["Running"] == _by_type(began)["Running"]
    assert {
        kind: (each["status"], each["reason"]) for kind, each in after.items() if kind not in {"Failure", "Ready"}
    } == {
        "Running": ("True", "Running"),
        "Successful": ("False", "Requeued"),
        "Reconciling": ("True", "RunRequeued"),
    }
    assert after["Failure"]["status"] == "False"
    assert after["Ready"]["status"] == ("True" if earlier is Outcome.SUCCEEDED else "Unknown")
    done = replace(REQUEUED, unfinished=False)
    assert _by_type(_write(began, report.run_ended(done, NO_MORE)))["Successful"]["status"] == "True"


def test_a_role_that_polls_writes_once() -> None:
    ended = report.run_ended(REQUEUED, NO_MORE)
    first = _write(_object(), ended)
    again = _write(first, report.run_began(first), NOW + 30)
    for obj in (again, _write(again, ended, NOW + 60)):
        assert _by_type(obj)["Running"] == _by_type(first)["Running"]
    assert _write(first, ended, NOW + 90) is first


def test_a_first_run_announces_itself_and_nothing_else() -> None:
    conditions = _by_type(_write(_object(), report.run_began(_object())))
    running = {"type": "Running", "status": "True", "reason": "Running", "message": "Running reconciliation"}
    assert conditions["Running"] == {**running, "observedGeneration": 4, "lastTransitionTime": STAMP}
    statuses = {kind: each["status"] for kind, each in conditions.items()}
    assert statuses == {"Running": "True", "Ready": "Unknown", "Reconciling": "True"}


def test_a_success_sets_all_three_conditions_with_the_recap() -> None:
    after = _after(Outcome.SUCCEEDED)
    recap = {"ok": 3, "changed": 1, "skipped": 2, "failures": 0, "completion": RECAP.completion}
    running = {"status": "True", "reason": "Successful", "message": "Awaiting next reconciliation"}
    assert after["Running"].items() >= {**running, "ansibleResult": recap}.items()
    assert after["Successful"].items() >= {"status": "True", "message": "Last reconciliation succeeded"}.items()
    assert after["Failure"]["status"] == "False"
    assert all(condition["reason"] for condition in after.values())


def test_failure_lists_each_failed_tasks_message_on_its_own_line() -> None:
    after = _after(Outcome.FAILED, TaskFailure("one", "no such image", "t.yml:3"), TaskFailure("two", "", "t.yml:9"))
    message = "no such image\nunknown playbook failure\ntask 'one', t.yml:3\ntask 'two', t.yml:9"
    assert after["Failure"].items() >= {"status": "True", "reason": "Failed", "message": message}.items()
    assert after["Failure"]["ansibleResult"]["ok"] == 3
    assert (after["Running"]["status"], after["Successful"]["status"]) == ("False", "False")


@pytest.mark.parametrize(
    ("runs", "deletes", "message"),
    [
        (1, False, "1 run failed: see the condition Failure"),
        (3, False, "3 runs failed in a row: see the condition Failure"),
        (1, True, "1 run of the finalizer failed, and the deletion waits for it: see the condition Failure"),
        (2, True, "2 runs of the finalizer failed in a row, and the deletion waits for it: see the condition Failure"),
    ],
)
def test_running_counts_the_failed_runs_and_refers_to_their_cause(runs: int, message: str, *, deletes: bool) -> None:
    failed = report.FailureDetails(runs=runs, deletes=deletes)
    assert _after(Outcome.FAILED, details=failed)["Running"]["message"] == message


def test_an_object_that_is_being_deleted_waits_for_the_run_of_the_finalizer() -> None:
    obj = _object()
    obj["metadata"]["deletionTimestamp"] = STAMP
    began = _by_type(_write(obj, report.run_began(obj)))
    assert began["Running"]["message"] == "Running the finalizer; the deletion waits for it"
    refused = _by_type(_write(obj, report.unusable("why")))
    assert refused["Running"]["message"] == "The operator cannot run the object: see the condition Failure"


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [(Outcome.TIMED_OUT, "TimedOut"), (Outcome.DIED, "Failed"), (Outcome.NOT_STARTED, "Failed")],
)
def test_a_run_without_a_recap_is_a_failure_with_the_cause(outcome: Outcome, reason: str) -> None:
    failure = _after(outcome, message="why it ended", recap=None)["Failure"]
    assert (failure["reason"], failure["message"], "ansibleResult" in failure) == (reason, "why it ended", False)


def test_transition_times_move_only_with_the_status() -> None:
    first = _write(_object(), SUCCESS)
    other = Recap(ok=9, changed=0, skipped=0, failures=0, completion="2027-01-15T09:00:00.000000")
    second = _by_type(_write(first, report.run_ended(_result(Outcome.SUCCEEDED, recap=other), NO_MORE), NOW + 3600))
    assert second["Running"]["lastTransitionTime"] == STAMP
    assert second["Running"]["ansibleResult"]["ok"] == 9
    third = _by_type(_write(first, report.run_ended(_result(Outcome.FAILED), NO_MORE), NOW + 3600))
    assert third["Failure"]["lastTransitionTime"] != STAMP


def test_nothing_is_written_when_only_the_completion_differs() -> None:
    obj = _write(_object(), SUCCESS)
    later = _result(Outcome.SUCCEEDED, recap=replace(RECAP, completion="2027-01-16T08:00:00.000000"))
    assert _write(obj, report.run_ended(later, NO_MORE), NOW + 86_400) is obj


def test_conditions_and_fields_of_other_writers_are_not_changed() -> None:
    healthy = {"type": "Healthy", "status": "True", "custom": [1, 2]}
    written = _write(_object([healthy], nodes=["a", "b"]), SUCCESS)
    assert written["status"]["nodes"] == ["a", "b"]
    assert written["status"]["conditions"][0] == healthy


STRANGE = [
    ([None], []),
    ([{"type": "Ready", "status": "True"}, None, "words", 7, ["Ready"]], ["Ready"]),
    ([{"type": "Foo", "status": "True"}] * 2, ["Foo"]),
    ([{"type": kind, "status": "True"} for kind in ("Running", "Ready", "Running", "Failure", "Failure")], ["Ready"]),
    ([{"type": ["Ready"]}, {"type": None}, {}], [["Ready"], None, None]),
    ([{"type": "Ready", "reason": ["RunFailed"], "message": {}, "lastTransitionTime": {"a": 1}}], ["Ready"]),
    ({"ready": True}, []),
    ("words", []),
    (7, []),
    (None, []),
]


@pytest.mark.parametrize(("conditions", "kept"), STRANGE, ids=lambda value: str(value)[:40])
def test_conditions_of_any_shape_are_repaired_with_one_of_each_type(conditions: Any, kept: list[Any]) -> None:
    obj = {**_object(), "status": {"conditions": conditions, "nodes": ["a"]}}
    for change in (report.run_began(obj), SUCCESS):
        obj = _write(obj, change)
    types = [each.get("type") for each in obj["status"]["conditions"]]
    own = ("Running", "Successful", "Failure", "Ready")
    assert all(types.count(kind) == 1 for kind in own)
    assert [kind for kind in types if kind not in own] == [kind for kind in kept if kind != "Ready"]
    assert obj["status"]["nodes"] == ["a"]
    assert last_result(obj) is LastResult.SUCCEEDED
    assert _write(obj, SUCCESS) is obj


@pytest.mark.parametrize("conditions", [each for each, _ in STRANGE], ids=lambda value: str(value)[:40])
def test_a_patch_tests_no_value_of_another_client(conditions: Any) -> None:
    obj = {**_object(), "status": {"conditions": conditions}}
    obj["metadata"]["resourceVersion"] = "7"
    for odd in (obj, {**obj, "status": conditions}):
        operations = patch(odd, report.run_began(odd), OWN_STATUS, NOW)
        assert [(each["path"], each["value"]) for each in operations or () if each["op"] == "test"] == [
            ("/metadata/uid", "u1"),
            ("/metadata/resourceVersion", "7"),
        ]


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (None, ""),
        ({}, ""),
        ({"conditions": None}, ""),
        ({"conditions": [{"type": "A"}, {"type": "B"}, {}]}, ""),
        ("words", "the status is not a map"),
        ({"conditions": {"A": True}}, "the conditions are not a list"),
        (
            {"conditions": [None, {"type": "A"}, {"type": "A"}]},
            "2 entries of the conditions are not maps, or repeat a ",
        ),
    ],
)
def test_the_parts_of_a_status_that_are_replaced_are_named(status: Any, sentence: str) -> None:
    assert ignored({"status": status}).startswith(sentence)
    assert bool(ignored({"status": status})) == bool(sentence)


def test_a_long_failure_message_is_cut_with_a_remark() -> None:
    message = _failure(report.FailureDetails(more="All of it: there"), *[TaskFailure("t", "x" * 1000, "")] * 100)
    assert len(message) == conditions.MAX_MESSAGE
    assert message.endswith("\n(cut here)\nAll of it: there")


def test_missing_rights_come_first_and_advice_last_also_when_messages_are_cut() -> None:
    missing = ("forbidden: get pods; add a rule", "forbidden: list pods; add a rule")
    details = report.FailureDetails(missing, ("run it again",))
    short = _failure(details, TaskFailure("t", "no", ""))
    assert short.splitlines() == [*missing, "no", "task 't'", "run it again"]
    long = _failure(details, TaskFailure("t", "\n".join(["Traceback", *["  File x"] * 20_000, "403 Forbidden"]), ""))
    lines = long.splitlines()
    assert len(long) == conditions.MAX_MESSAGE
    assert (*lines[:3], *lines[-2:]) == (*missing, "Traceback", "(cut here)", "run it again")
    success = report.run_ended(_result(Outcome.SUCCEEDED), details)
    assert not any("forbidden" in condition["message"] for condition in success.conditions)


def test_ready_begins_with_the_whole_rule_to_add() -> None:
    rule = f"forbidden: create pods; add to its Role: {{resources: [{'x' * 700}], verbs: [create]}}"
    for failure in (TaskFailure("t", "Traceback\n" * 500, "t.yml:3"), TaskFailure("t", "no", "t.yml:3")):
        ended = report.run_ended(_result(Outcome.FAILED, failure), report.FailureDetails((rule,)))
        ready = ended.health["Ready"]
        assert ready is not None
        assert ready["message"].startswith(rule)
        assert ready["message"].endswith("(task 't', t.yml:3)")
    timeout = report.run_ended(_result(Outcome.TIMED_OUT, message="took long"), report.FailureDetails((rule,)))
    assert (timeout.health["Ready"] or {})["message"] == f"{rule}; took long"


def test_fields_that_the_schema_dropped_are_named() -> None:
    wanted = report.observed(_object(), SUCCESS)
    whole = _write(_object(), wanted)
    assert dropped_fields(whole, wanted, OWN_STATUS) == []
    assert dropped_fields(_object(), wanted, OWN_STATUS) == ["status.conditions"]
    kept = copy.deepcopy(whole["status"]["conditions"])
    for condition in kept:
        condition.pop("ansibleResult", None)
    dropped = ["status.conditions[].ansibleResult", "status.observedGeneration"]
    assert dropped_fields(_object(kept), wanted, OWN_STATUS) == dropped
    again = without(wanted, frozenset(dropped))
    assert dropped_fields(_object(kept), again, OWN_STATUS) == []
    assert patch(_object(kept), again, OWN_STATUS, NOW) is None


def test_ignored_references_are_named_until_there_are_none() -> None:
    foreign, excess = [f"Secret vault/{number}" for number in range(22)], ["Secret shop/z"]
    (condition,) = ignored_references(_object(), foreign, excess)
    assert (condition["status"], condition["reason"]) == ("True", "NamespaceNotAllowed")
    assert "Secret vault/19 and 2 more: not watched, because the watch does not allow" in condition["message"]
    assert "Secret shop/z: not watched, because the spec names too many" in condition["message"]
    written = _write(_object(), report.StatusReport((condition,)))
    (after,) = ignored_references(written, (), ())
    assert (after["type"], after["status"]) == ("IgnoredReferences", "False")
    assert ignored_references(_object(), (), ()) == ()


PLAN = {"hash": "h", "changes": []}


def test_a_plan_is_set_kept_and_removed() -> None:
    made = plan_status.made("True", plan_status.CHANGES, "1 to create", PLAN)
    planned = _write(_object([], own=1), made)
    assert planned["status"]["plan"] == PLAN
    assert planned["status"]["own"] == 1
    assert _by_type(planned)["Ready"]["status"] == "Unknown"
    assert patch(planned, report.observed(planned, made), OWN_STATUS, NOW) is None
    assert _write({"metadata": {"uid": "u1"}}, made)["status"]["plan"] == PLAN
    assert _write(planned, report.paused())["status"]["plan"] == PLAN
    ended = plan_status.ended(planned, removes=True)
    applied = _write(planned, ended)
    assert "plan" not in applied["status"]
    assert _by_type(applied)["Planned"]["status"] == "False"
    assert plan_status.ended(_object([]), removes=False) == report.StatusReport(())


def test_the_operators_part_of_a_status_is_known() -> None:
    made = plan_status.made("True", plan_status.CHANGES, "1 to create", PLAN)
    own = _write(_object([{"type": "Up", "status": "True"}], size=1), made)["status"]
    assert OWN_STATUS.removed_from(own) == {"conditions": [{"type": "Up", "status": "True"}], "size": 1}
    assert OWN_STATUS.removed_from(_write(_object([]), made)["status"]) == {}
    theirs = {"conditions": [{"type": "Ready", "status": "True", "reason": "TheirOwn"}]}
    assert OWN_STATUS.removed_from(theirs) == theirs


def test_a_stale_approval_is_reported_for_its_generation() -> None:
    stale = _write(_object([]), plan_status.stale("Plan h was not executed: why", PLAN))
    assert plan_status.is_stale(stale)
    assert plan_status.names_stale(stale, "h")
    assert not plan_status.names_stale(stale, "other")
    stale["metadata"]["generation"] += 1
    assert not plan_status.is_stale(stale)
    executed = _write(stale, plan_status.executed(stale, "h2", {}))
    assert _by_type(executed)["PlanStale"]["status"] == "False"
    assert _by_type(executed)["Planned"]["reason"] == "Executed"


def test_drift_is_written_once_and_taken_back_once() -> None:
    drift = {"hash": "a", "time": STAMP, "changes": []}
    before = _object([])
    assert _write(before, plan_status.drift_ended(before)) is before
    drifted = _write(before, plan_status.drift_found("change Deployment shop/web: spec", drift))
    assert _by_type(drifted)["Drifted"]["status"] == "True"
    assert plan_status.drift_of(drifted) == drift
    assert _write(drifted, plan_status.drift_found("change Deployment shop/web: spec", drift), NOW + 60) is drifted
    ended = _write(drifted, plan_status.drift_ended(drifted))
    assert _by_type(ended)["Drifted"]["status"] == "False"
    assert "drift" not in ended["status"]
    assert _write(ended, plan_status.drift_ended(ended), NOW + 60) is ended


def test_hosts_are_written_with_the_conditions_and_only_if_they_differ() -> None:
    hosts = [{"name": "web", "address": "10.0.0.1", "ok": 1}]
    wanted = replace(SUCCESS, fields={"hosts": hosts})
    first, later = _write(_object(), wanted), _write(_object([]), wanted)
    assert first["status"]["hosts"] == later["status"]["hosts"] == hosts
    assert _write(first, wanted) is first
    assert "hosts" not in _write(later, report.StatusReport((), fields={"hosts": []}))["status"]
    assert OWN_STATUS.removed_from(later["status"]) == {}


def test_unreachable_hosts_are_named_and_have_their_own_reason() -> None:
    failures = tuple(TaskFailure("Ping", "no route", "", host=each, unreachable=True) for each in ("a", "b"))
    lost = replace(_result(Outcome.FAILED, *failures), hosts=(HostRecap("a", 0, 0, 0, 1),))
    condition = _by_type(_write(_object(), report.run_ended(lost, NO_MORE)))["Failure"]
    assert condition["reason"] == "Unreachable"
    assert condition["message"].startswith("Unreachable: a, b. The operator tries again.\na: no route\nb: no route\n")


@pytest.mark.parametrize(
    ("reached", "missed", "sentence"),
    [
        (("a", "b"), (), "Unreachable: a. The operator tries again; other hosts are done."),
        (("a",), (), "Unreachable: a. The operator tries again."),
        (("a", "b"), ("c", "d"), "Unreachable: a. The operator tries again. No results: c, d."),
    ],
)
def test_other_hosts_are_done_only_if_each_has_results(
    reached: tuple[str, ...], missed: tuple[str, ...], sentence: str
) -> None:
    failure = TaskFailure("Ping", "no route", "", host="a", unreachable=True)
    recaps = tuple(HostRecap(each, 1, 0, 0, int(each == "a")) for each in reached)
    lost = replace(_result(Outcome.FAILED, failure), hosts=recaps, missed=missed)
    assert report.failure_message(lost, NO_MORE).splitlines()[0] == sentence


def test_a_host_that_a_play_added_is_not_named_before_the_message_of_its_task() -> None:
    """Only `localhost` and such hosts are in the runs of a watch without `inventory`; messages stay as they were."""
    assert _failure(NO_MORE, TaskFailure("Ping", "no", "", host="added")).splitlines()[0] == "no"


@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        ("plan", plan_status.made("True", plan_status.CHANGES, "1 to create", PLAN)),
        ("drift", plan_status.drift_found("change", {"hash": "a"})),
        ("hosts", replace(SUCCESS, fields={"hosts": [{"name": "web"}]})),
    ],
    ids=["plan", "drift", "hosts"],
)
def test_a_field_that_a_schema_drops_is_named_and_then_omitted(field: str, wanted: report.StatusReport) -> None:
    written = _write(_object([]), wanted)
    assert dropped_fields(written, wanted, OWN_STATUS) == []
    del written["status"][field]
    assert dropped_fields(written, wanted, OWN_STATUS) == [f"status.{field}"]
    assert field not in without(wanted, frozenset({f"status.{field}"})).fields


def test_control_characters_of_a_message_are_visible() -> None:
    made = conditions.make("Failure", "True", "Failed", "\u202e\x1b[31mRED\x1b]0;pwn\x07\r\nnext")
    assert made["message"] == "\\u202eRED\\x1b]0;pwn\\x07\nnext"
