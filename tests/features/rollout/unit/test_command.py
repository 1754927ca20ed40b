"""`ansible-operator rollout`: the rollout that `--watch` is asked about, and the lines of the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from runner.features.rollout import commands as rollout
from runner.features.rollout.member import Member, cause_of
from runner.features.rollout.state import RolloutStore, State
from runner.values.errors import ConflictError, ForbiddenError
from runner.values.objects import Object
from tests.features.rollout.unit.test_state import NEW, OLD, member
from tests.kit.watch_values import watch_value

FORMER = State(OLD, 1, ended=True, limits=(1, 4))


class Store(RolloutStore):
    """A ConfigMap, and an operator that writes it with each read of the command."""

    def __init__(self, state: State, *writes: Callable[[State], State]) -> None:
        super().__init__(cast("Any", None), "ns", watch_value().gvk)
        self.state, self.writes = state, list(writes)
        self.errors: list[Exception] = []

    async def load(self) -> State:
        if self.writes:
            self.state = self.writes.pop(0)(self.state)
        return self.state

    async def save(self, state: State) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.state = state


class _ReadOnly:
    """An API server that refuses to store the state."""

    async def get(self, *_: object) -> Object:
        return {"metadata": {"name": "state", "resourceVersion": "1"}, "data": {"state": FORMER.written()}}

    async def request(self, *_: object, **__: object) -> None:
        raise ForbiddenError("configmaps is forbidden", status=403)


def begins(state: State) -> State:
    begun = state.begin(NEW)
    return replace(begun, confirmed=begun.asked)


def ends(state: State) -> State:
    return replace(state, ended=True)


def same(state: State) -> State:
    return state


@pytest.mark.virtual_time
async def test_the_end_of_the_former_rollout_is_not_that_of_the_one_that_a_new_operator_begins() -> None:
    store = Store(FORMER, same, same, same, begins, same, ends)
    found = await rollout._watched(store)
    assert (found.content, found.ended, store.writes) == (NEW, True, [])


@pytest.mark.virtual_time
async def test_a_pause_of_the_former_rollout_does_not_count_either() -> None:
    store = Store(replace(FORMER, ended=False, paused="failed or not Ready: ns/one"), same, same, begins, ends)
    assert (await rollout._watched(store)).paused == ""


@pytest.mark.virtual_time
async def test_an_operator_that_confirms_an_ended_rollout_ends_the_command() -> None:
    store = Store(FORMER, same, same, lambda state: replace(state, confirmed=state.asked))
    store.errors = [ConflictError("modified", status=409)]
    assert (await rollout._watched(store)).content == OLD


@pytest.mark.virtual_time
async def test_without_an_operator_the_command_reports_that_it_waits(capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(FORMER, *[same] * 40, lambda state: replace(state, confirmed=state.asked))
    await rollout._watched(store)
    assert capsys.readouterr().err.count("No operator has confirmed the state of the rollout yet") == 1


@pytest.mark.virtual_time
async def test_a_user_who_may_only_read_gets_the_state_and_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    store = RolloutStore(cast("Any", _ReadOnly()), "ns", watch_value().gvk)
    assert (await rollout._watched(store)).ended
    assert "may be that of the former rollout" in capsys.readouterr().err


def test_the_report_names_objects_whose_roles_are_not_done() -> None:
    members: list[Member] = [member(0, NEW, unfinished=True, unready=True), member(1, NEW, failed=True), member(2)]
    state = State(NEW, limits=(1, 3))
    causes = {members[1]: "Cannot connect", members[2]: "not shown"}
    lines = rollout._report(Store(state), state, members, causes)
    assert lines[2:] == [
        f"2 of 3 objects ran the content {NEW}",
        "in progress: ns/one-000",
        "failed: ns/one-001",
        "  ns/one-001: Cannot connect",
    ]


@pytest.mark.parametrize(
    ("conditions", "cause"),
    [
        ([("Failure", "True", "\x1b[31mno database\nTask 'Install'"), ("Ready", "False", "failed")], "no database"),
        ([("Failure", "False", ""), ("Ready", "False", "1 of 3 pods")], "1 of 3 pods"),
        ([("Failure", "True", None), ("Ready", "False", "a" * 1000)], "a" * 300),
        ([("Failure", "False", "old"), ("Successful", "True", "done")], ""),
    ],
)
def test_the_cause_of_a_failure_is_the_first_line_of_the_condition_of_the_object(
    conditions: list[tuple[str, str, str | None]], cause: str
) -> None:
    names = ("type", "status", "message")
    assert cause_of({"status": {"conditions": [dict(zip(names, each, strict=True)) for each in conditions]}}) == cause


def test_a_restarted_rollout_has_no_content_until_an_operator_begins_it() -> None:
    state = rollout._changed(FORMER, "restart")
    assert (state.content, state.ended, state.step, bool(state.salt)) == ("", False, 0, True)
    assert rollout._report(Store(state), state, [member(0, "")], {})[2].startswith(
        "0 of 1 objects ran the content (not"
    )
