"""Which objects may run changed content, and when a step of a rollout has ended."""

from __future__ import annotations

import math
import re
import uuid
from dataclasses import replace
from typing import Any

import pytest

from runner.features.rollout.fields import RolloutPolicy, Step, Window
from runner.features.rollout.member import PAUSED, WAITING, Member, Wait
from runner.features.rollout.state import BY_USER, State
from runner.features.rollout.steps import Fleet, Turns, advance
from runner.values.objects import ObjectKey

NEW, OLD = "a" * 24, "b" * 24
NOW = 1_000_000.0
POLICY = RolloutPolicy((Step(1), Step(5), Step(25, is_percent=True), Step(100, is_percent=True)))
READY = "2020-01-01T00:00:00Z"


def member(number: int, content: str = OLD, **different: Any) -> Member:
    plain = Member(
        key=ObjectKey("ns", f"one-{number:03}"),
        uid=f"uid-{number:03}",
        content=content,
        failed=False,
        unready=False,
        ready_since=0.0,
        out="",
        is_next=False,
        is_first=False,
        is_new=False,
        is_changed=False,
    )
    return replace(plain, **different)


class World:
    """A fleet whose objects run as the decisions let them."""

    def __init__(self, count: int, policy: RolloutPolicy = POLICY) -> None:
        self.policy, self.now = policy, NOW
        self.members = [member(number) for number in range(count)]
        self.state = State().begin(NEW)
        self.advance()

    @property
    def fleet(self) -> Fleet:
        return Fleet.of(self.policy, self.state, self.members)

    def advance(self) -> None:
        while (later := advance(self.policy, self.state, self.fleet, self.now)) != self.state:
            self.state = later

    def wait(self, number: int) -> Wait | None:
        return Turns.of(self.policy, self.state, self.fleet, self.now).wait(self.members[number])

    def start(self) -> list[int]:
        """Let each object begin that may, with the fleet as it is at first; return their numbers in their order."""
        fleet, began = self.fleet, []
        numbers = {each.uid: number for number, each in enumerate(self.members)}
        for each in fleet.waiting:
            if Turns.of(self.policy, self.state, fleet, self.now).wait(each) is None:
                self.state = self.state.started(each.uid)
                began.append(numbers[each.uid])
        return began

    def delete(self, *numbers: int) -> None:
        gone = {member(number).uid for number in numbers}
        self.members = [each for each in self.members if each.uid not in gone]
        self.advance()

    def end(self, *numbers: int, **different: Any) -> None:
        for number in numbers:
            self.members[number] = replace(self.members[number], content=NEW, **different)

    def ended(self, *numbers: int, **different: Any) -> None:
        self.end(*numbers, **different)
        self.advance()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.advance()


def obj(*conditions: dict[str, Any], **meta: Any) -> dict[str, Any]:
    found = {"name": "one", "namespace": "ns", "uid": "01234567-89ab-cdef", "generation": 2, **meta}
    return {"metadata": found, "status": {"conditions": list(conditions)}}


def test_each_step_lets_as_many_objects_run_as_its_limit_and_the_last_one_all() -> None:
    world, sizes, order = World(40), list[int](), list[int]()
    while began := world.start():
        sizes.append(len(began))
        order += began
        world.ended(*began)
    assert sizes == [1, 4, 5, 30]
    assert order == list(range(40)), "in the order of their names"
    assert world.state.ended
    assert world.start() == []


def test_a_step_waits_for_each_of_its_objects() -> None:
    world = World(8)
    world.start()
    world.advance()
    assert (world.state.step, world.start()) == (0, [])
    assert world.wait(1) == Wait(WAITING, "Waits for step 2 of 4")
    assert world.wait(6) == Wait(WAITING, "Waits for step 4 of 4")


def test_failed_objects_come_first_then_those_of_the_first_step() -> None:
    world = World(4, RolloutPolicy((Step(1), Step(2)), labels={"tier": "test"}))
    world.members[2] = replace(world.members[2], is_first=True)
    world.members[3] = replace(world.members[3], failed=True)
    world.advance()
    assert world.state.limits == (1, 1, 2, 4)
    assert world.start() == [3]
    world.ended(3, failed=False)
    assert world.start() == [2]


def test_an_object_that_has_begun_continues_even_in_a_paused_rollout() -> None:
    world = World(4)
    world.start()
    world.state = replace(world.state, paused="why")
    assert world.wait(0) is None
    assert world.wait(1) == Wait(PAUSED, "The rollout is paused: why")


def test_a_failure_pauses_the_rollout_until_a_user_resumes_it() -> None:
    world = World(40)
    world.ended(*world.start())
    began = world.start()
    world.end(*began[1:])
    world.ended(began[0], failed=True)
    assert world.state.paused == "failed or not Ready: ns/one-001"
    assert (world.state.step, world.start()) == (1, [])
    world.state = world.state.resumed()
    world.advance()
    assert (world.state.paused, world.state.step, len(world.start())) == ("", 2, 5)


def test_an_object_that_recovers_counts_as_failed_nevertheless() -> None:
    world = World(8)
    began = world.start()
    world.ended(*began, failed=True)
    world.ended(*began, failed=False)
    assert world.state.paused
    assert world.start() == []


def test_as_many_objects_may_fail_as_the_policy_permits() -> None:
    world = World(8, replace(POLICY, max_failures=1))
    world.ended(*world.start(), failed=True)
    assert (world.state.paused, world.state.step) == ("", 1)
    world.ended(*world.start()[:1], failed=True)
    assert world.state.paused == "failed or not Ready: ns/one-000, ns/one-001"


def test_an_object_that_becomes_unready_after_its_run_is_a_failure_and_one_that_never_was_ready_is_not() -> None:
    world = World(8, replace(POLICY, ready=60.0))
    world.ended(*world.start(), ready_since=math.inf, unready=True)
    assert (world.state.paused, world.state.step) == ("", 0)
    world.ended(0, ready_since=world.now, unready=False)
    world.ended(0, ready_since=math.inf, unready=True)
    assert world.state.paused


def test_each_object_of_a_step_must_be_ready_for_the_given_time() -> None:
    world = World(8, replace(POLICY, ready=60.0))
    world.end(*world.start(), ready_since=NOW)
    world.pass_time(59)
    assert world.state.step == 0
    world.pass_time(1)
    assert world.state.step == 1


def test_an_object_that_is_not_ready_delays_no_step_after_a_user_has_resumed_the_rollout() -> None:
    world = World(8, replace(POLICY, ready=60.0))
    world.ended(*world.start(), ready_since=NOW)
    world.ended(0, ready_since=math.inf, unready=True)
    assert world.state.paused
    world.state = world.state.resumed()
    world.advance()
    assert (world.state.step, world.state.paused) == (1, "")


@pytest.mark.parametrize(("jump", "step"), [(-86400.0, 0), (86400.0, 1)])
def test_a_clock_that_jumps_lets_no_more_objects_run_and_the_rollout_continues(jump: float, step: int) -> None:
    world = World(8, replace(POLICY, pause=600.0))
    world.ended(*world.start())
    world.pass_time(jump)
    assert world.state.step == step
    assert len(world.start()) == 4 * step
    world.pass_time(600)
    assert world.state.step == 1


@pytest.mark.parametrize("why", ["it is paused", "the annotation holds it", "it is being deleted"])
def test_an_object_that_is_left_out_neither_runs_nor_delays_a_step(why: str) -> None:
    world = World(3, RolloutPolicy((Step(100, is_percent=True),)))
    world.members[1] = replace(world.members[1], out=why)
    assert world.start() == [0, 2]
    assert world.wait(1) == Wait(WAITING, f"Outdated; {why}")
    world.ended(0, 2)
    assert world.state.ended
    world.members[1] = replace(world.members[1], out="")
    assert world.start() == [1]


def test_an_object_that_is_annotated_runs_next_without_its_step_but_not_in_a_paused_rollout() -> None:
    world = World(8)
    world.members[6] = replace(world.members[6], is_next=True)
    assert world.start() == [6]
    world.state = replace(world.state, begun=frozenset(), paused="why")
    assert world.start() == []


def test_outdated_objects_begin_only_inside_a_window() -> None:
    saturday = Window(frozenset({5}), 22 * 60, 4 * 60, "UTC")
    world = World(3, replace(POLICY, windows=(saturday,)))
    assert world.start() == []
    opens = saturday.opens(NOW)
    assert world.wait(0) == Wait(
        WAITING, "Waits for step 1 of 4, and for a window, which opens at 1970-01-17T22:00:00Z"
    )
    world.now = opens - 1
    assert world.start() == []
    world.now = opens
    assert world.start() == [0]
    world.now = opens + 6 * 3600
    world.ended(0)
    assert (world.state.step, world.start()) == (1, [])


def test_other_content_begins_anew_and_only_the_pause_of_a_user_lasts() -> None:
    world = World(8)
    world.ended(*world.start(), failed=True)
    assert world.state.begin(OLD) == State(OLD, used=False)
    assert replace(world.state, paused=BY_USER).begin(OLD) == State(OLD, used=False, paused=BY_USER)


def test_a_state_is_the_same_after_it_was_written_and_read() -> None:
    state = State(NEW, 2, 12.5, "why", salt="1", limits=(1, 5), begun=frozenset("ab"), failed=frozenset("a"))
    assert State.parse(state.written()) == state
    assert State.parse("") is State.parse("[]") is None
    for other in ('"step": -5', '"asked": 1e30', '"limits": [1e30]', '"done": {}'):
        name = other.partition(":")[0]
        assert State.parse(re.sub(name + r": (\[[^]]*\]|[^,\n]*)", other, state.written())) is None


def test_a_member_shows_what_its_last_run_executed() -> None:
    updated = {"type": "Updated", "status": "True", "reason": "Updated", "message": f"Last run: content {NEW}"}
    failure = {"type": "Failure", "status": "False", "reason": "Successful", "observedGeneration": 2}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2001-09-09T01:46:40Z"}
    found = Member.of(obj(updated, failure, ready, labels={"tier": "test"}), {"tier": "test"}, "apply")
    assert (found.content, found.failed, found.is_first, found.is_new, found.is_changed) == (
        NEW,
        False,
        True,
        False,
        False,
    )
    assert found.ready_since == 1_000_000_000
    assert Member.of(obj(updated, failure, ready), {"tier": "test"}, "apply").is_first is False


def test_a_member_without_a_result_is_new() -> None:
    running = {"type": "Running", "status": "True", "reason": "Running"}
    successful = {"type": "Successful", "status": "True", "reason": "Successful"}
    assert Member.of(obj(running), {}, "apply").is_new
    assert not Member.of(obj(successful), {}, "apply").is_new


@pytest.mark.parametrize(
    ("observed", "is_changed"), [({"observedGeneration": 1}, True), ({"observedGeneration": 2}, False), ({}, None)]
)
def test_a_member_is_changed_if_no_run_has_ended_for_its_generation(
    observed: dict[str, int],
    is_changed: object,
) -> None:
    failure = {"type": "Failure", "status": "False", "reason": "Successful", **observed}
    assert Member.of(obj(failure), {}, "apply").is_changed is is_changed


@pytest.mark.parametrize(
    ("meta", "out"),
    [
        ({"deletionTimestamp": READY}, "it is being deleted"),
        ({"annotations": {"ansible.sdk.operatorframework.io/paused": "true"}}, "it is paused"),
        ({"annotations": {"ansible.sdk.operatorframework.io/mode": "plan"}}, "its mode is plan"),
        (
            {"annotations": {"ansible.sdk.operatorframework.io/rollout": "hold"}},
            "the annotation ansible.sdk.operatorframework.io/rollout holds it",
        ),
        ({}, ""),
    ],
)
def test_a_member_shows_why_no_rollout_runs_it(meta: dict[str, Any], out: str) -> None:
    assert Member.of(obj(**meta), {}, "apply").out == out


def test_the_state_of_as_many_objects_as_the_documentation_allows_fits_into_a_config_map() -> None:
    uids = frozenset(str(uuid.UUID(int=number)) for number in range(14_000))
    assert len(State(NEW, begun=uids, ready=uids).written()) < 1 << 20
