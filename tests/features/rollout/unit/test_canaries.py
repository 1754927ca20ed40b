"""What counts for a step, whatever users, runs, and replicas with old views do."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.features.rollout.fields import RolloutPolicy, Step
from runner.features.rollout.member import FAILED, IN_PROGRESS, WAITING, Member, Wait, not_updated, updated
from runner.features.rollout.state import State
from runner.features.rollout.steps import Fleet, Turns, advance
from tests.features.rollout.unit.test_state import NEW, NOW, OLD, POLICY, World, member, obj

CANARY = RolloutPolicy((Step(1), Step(100, is_percent=True)), pause=20.0)
FIRST = RolloutPolicy((Step(1), Step(5)), labels={"tier": "test"}, pause=20.0)


def test_a_canary_that_is_deleted_while_it_runs_is_no_success_and_another_one_takes_its_place() -> None:
    world = World(4, CANARY)
    assert world.start() == [0]
    world.delete(0)
    world.pass_time(60)
    assert world.state.step == 0
    assert len(world.start()) == 1
    assert world.start() == []


def test_the_pause_begins_again_if_all_canaries_of_the_rollout_are_deleted_meanwhile() -> None:
    world = World(4, CANARY)
    world.ended(*world.start())
    world.pass_time(15)
    world.delete(0)
    (number,) = world.start()
    world.pass_time(15)
    assert world.state.step == 0
    world.members = [
        replace(each, content=NEW) if each.key == member(number + 1).key else each for each in world.members
    ]
    world.advance()
    world.pass_time(19)
    assert world.state.step == 0
    world.pass_time(1)
    assert world.state.step == 1


def test_a_failure_that_was_deleted_counts_no_longer() -> None:
    world = World(6, replace(POLICY, max_failures=1))
    world.ended(*world.start(), failed=True)
    world.delete(0)
    assert world.state.failed == frozenset()


def test_an_object_whose_role_requested_another_run_is_neither_a_success_nor_a_failure() -> None:
    world = World(4, replace(CANARY, ready=10.0))
    world.ended(*world.start(), unfinished=True, ready_since=math.inf, unready=True)
    world.pass_time(600)
    assert (world.state.step, world.state.paused, world.start()) == (0, "", [])
    world.ended(0, unfinished=False, unready=False, ready_since=world.now)
    world.pass_time(10)
    world.pass_time(19)
    assert world.state.step == 0
    world.pass_time(1)
    assert world.state.step == 1


def test_a_member_is_in_progress_until_its_role_is_done_and_ready_since_then() -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2001-09-09T01:46:40Z"}
    found = Member.of(obj(not_updated(IN_PROGRESS, NEW), ready), {}, "apply")
    assert (found.content, found.unfinished, found.failed, found.ready_since) == (NEW, True, False, math.inf)
    earlier = {**updated(obj(), OLD, 1_000_000_000), "lastTransitionTime": "2001-09-09T01:46:40Z"}
    later = {**updated(obj(earlier), NEW, 1_000_000_600), "lastTransitionTime": "2001-09-09T01:46:40Z"}
    assert Member.of(obj(later, ready), {}, "apply").ready_since == 1_000_000_600, "both conditions stayed true"
    assert updated(obj(later), NEW, 2_000_000_000)["message"] == later["message"], "a periodic run changes nothing"


def test_an_object_that_failed_is_a_failed_one_while_it_waits() -> None:
    waits = Wait(WAITING, "Waits for step 2 of 2").condition(OLD, failed=True)
    found = Member.of(obj(waits), {}, "apply")
    assert (found.content, found.failed) == (OLD, True)
    assert Member.of(obj(not_updated(FAILED, OLD)), {}, "apply").failed
    assert not Member.of(obj(Wait(WAITING, "Waits").condition("", failed=True)), {}, "apply").failed


def test_the_first_step_ends_only_when_its_own_objects_are_done() -> None:
    world = World(10, FIRST)
    world.members[8:] = [replace(each, is_first=True) for each in world.members[8:]]
    world.state = world.state.begin(NEW).started("uid-000").started("uid-001")
    world.advance()
    assert world.state.limits == (2, 2, 5, 10)
    assert world.wait(2) == Wait(WAITING, "Waits for step 3 of 4")
    assert world.start() == [8, 9], "users' changes of other objects take no places of the first step"
    world.ended(0, 1)
    assert world.state.step == 0
    world.ended(8, 9)
    world.pass_time(20)
    assert world.state.step == 2, "step 2 has no object, and no pause"
    assert world.start() == [2]


def test_a_rollout_without_outdated_objects_ends_at_once() -> None:
    world = World(0, CANARY)
    world.state = State().begin(NEW)
    world.members = [member(number, NEW) for number in range(30)]
    world.advance()
    assert (world.state.ended, world.state.stable) == (True, NEW)


def test_going_back_begins_with_failed_objects_at_once_and_pauses_only_after_steps_with_objects() -> None:
    world = World(30, replace(POLICY, pause=600.0))
    world.state = replace(State().begin(NEW), stable=NEW)
    reached = {number: number in {3, 6} for number in range(10, 22)} | {3: True, 6: True}
    for number in range(30):
        failed = reached.get(number)
        content = NEW if failed is None else OLD
        world.members[number] = replace(world.members[number], content=content, failed=bool(failed))
    world.advance()
    assert world.start()[:2] == [3, 6], "the failed ones, whatever the limit of the first step"
    world.ended(3, 6, failed=False)
    world.pass_time(600)
    assert world.start() == [10, 11, 12], "a step is a number of outdated objects"


def test_other_content_lets_failed_objects_begin_only_in_their_step() -> None:
    world = World(8)
    world.members[3:5] = [replace(each, failed=True) for each in world.members[3:5]]
    world.state = replace(State().begin(NEW), stable="c" * 24)
    world.advance()
    assert world.start() == [3]


def test_steps_with_equal_limits_cost_one_pause() -> None:
    world = World(6, RolloutPolicy((Step(2), Step(3)), first=2, pause=20.0))
    world.ended(*world.start())
    world.pass_time(20)
    assert (world.state.limits, world.state.step) == ((2, 2, 3, 6), 2)


def test_objects_that_failed_with_this_content_before_do_not_pause_a_rollout_that_goes_back() -> None:
    world = World(4)
    world.members[0] = member(0, NEW, failed=True)
    world.state = State().begin(NEW, {"uid-000"})
    world.advance()
    assert world.state.paused == ""
    world.ended(*world.start(), failed=True)
    assert world.state.paused == "failed or not Ready: ns/one-001"


@pytest.mark.parametrize("ended", [True, False])
def test_the_state_of_an_earlier_version_has_the_content_to_go_back_to_if_its_rollout_ended(*, ended: bool) -> None:
    text = State(NEW, ended=ended).written()
    for name in ("used", "stable", "asked", "confirmed"):
        text = text.replace(f'"{name}"', f'"no-{name}"')
    assert State.parse(text) == State(NEW, ended=ended, stable=NEW if ended else "")


class Busy:
    """A fleet that users, runs and time change; it checks each end of a step."""

    def __init__(self, labelled: int) -> None:
        self.policy = replace(FIRST, max_failures=99, labels={"tier": "test"} if labelled else {})
        self.members = {each.uid: each for each in (member(n, is_first=n >= 12 - labelled) for n in range(12))}
        self.state, self.now, self.running = State().begin(NEW), NOW, set[str]()
        self.settle()

    @property
    def fleet(self) -> Fleet:
        return Fleet.of(self.policy, self.state, self.members.values())

    def settle(self) -> None:
        while (later := advance(self.policy, self.state, self.fleet, self.now)) != self.state:
            if (later.step, later.ended) != (self.state.step, self.state.ended):
                self.check()
            self.state = later

    def check(self) -> None:
        """No object of the step is left, and each that began is done."""
        fleet, turns = self.fleet, Turns.of(self.policy, self.state, self.fleet, self.now)
        assert not [each for each in fleet.waiting if turns.has(each)]
        began = [each for each in self.members.values() if each.uid in self.state.begun and not each.out]
        assert all(each.content == NEW and not each.unfinished for each in began)
        assert self.state.step or not any(each.is_first for each in fleet.waiting)
        assert len(began) >= min(self.state.limit, len(began) + len(fleet.waiting)) or self.state.step == 0

    def start(self, each: Member) -> None:
        if each.content != NEW and Turns.of(self.policy, self.state, self.fleet, self.now).wait(each) is None:
            self.due(each)

    def due(self, each: Member) -> None:
        if each.content != NEW:
            self.state = self.state.started(each.uid)
            self.running.add(each.uid)

    def end(self, each: Member, *, unfinished: bool = False) -> None:
        if each.uid in self.running:
            self.running.discard(each.uid)
            self.members[each.uid] = replace(each, content=NEW, unfinished=unfinished)

    def requeue(self, each: Member) -> None:
        self.end(each, unfinished=True)

    def delete(self, each: Member) -> None:
        self.running.discard(each.uid)
        del self.members[each.uid]

    def hold(self, each: Member) -> None:
        self.members[each.uid] = replace(each, out="" if each.out else "it is held")

    def create(self, each: Member) -> None:
        made = member(100 + int(each.uid[-3:]), NEW)
        self.members[made.uid] = made

    def rest(self) -> None:
        """Let everything end that can."""
        self.now += 60
        for uid, each in self.members.items():
            content = NEW if uid in self.running else each.content
            self.members[uid] = replace(each, out="", unfinished=False, content=content)
        self.running.clear()
        self.settle()
        for each in self.fleet.waiting:
            self.start(each)


EVENTS = st.tuples(
    st.sampled_from(["start", "start", "end", "end", "due", "delete", "create", "hold", "requeue", "pass"]),
    st.integers(0, 30),
)


@given(st.lists(EVENTS, max_size=80), st.integers(0, 3))
def test_whatever_happens_a_step_ends_only_with_its_objects_and_the_rollout_ends(
    events: list[tuple[str, int]], labelled: int
) -> None:
    world = Busy(labelled)
    for what, number in events:
        if what == "pass":
            world.now += number
        elif world.members:
            getattr(world, what)([*world.members.values()][number % len(world.members)])
        world.settle()
    for _ in range(4 * len(world.members) + 8):
        world.rest()
    assert world.state.ended


COUNT = 12
SMALL = RolloutPolicy((Step(1), Step(4), Step(50, is_percent=True)), max_failures=COUNT)


@dataclass
class Cluster:
    """The objects, and the ConfigMap."""

    members: list[Member] = field(default_factory=lambda: [member(number) for number in range(COUNT)])
    state: State = field(default_factory=lambda: State(NEW))
    version: int = 0
    running: set[int] = field(default_factory=set)


class Replica:
    """What a replica has read, which can be old."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.load()
        self.look()

    def load(self) -> None:
        self.state, self.version = self.cluster.state, self.cluster.version

    def look(self) -> None:
        self.fleet = Fleet.of(SMALL, self.state, list(self.cluster.members))

    def save(self, state: State, *, answered: bool) -> bool:
        """Write the state unless it has changed; without an answer, the replica does not know that it did."""
        if self.version != self.cluster.version:
            self.load()
            return False
        self.cluster.state, self.cluster.version = state, self.cluster.version + 1
        if answered:
            self.load()
        return answered

    def start(self, number: int, *, answered: bool = True) -> None:
        each = self.cluster.members[number]
        if each.content == NEW or number in self.cluster.running:
            return
        if Turns.of(SMALL, self.state, self.fleet, NOW).wait(each) is not None:
            return
        begun = self.state.started(each.uid)
        if each.uid in self.state.begun or self.save(begun, answered=answered):
            self.cluster.running.add(number)

    def advance(self, *, answered: bool = True) -> None:
        state = self.state
        while (later := advance(SMALL, state, self.fleet, NOW)) != state:
            state = later
        if state != self.state:
            self.save(state, answered=answered)


def end(cluster: Cluster, number: int) -> None:
    if number in cluster.running:
        cluster.running.discard(number)
        cluster.members[number] = replace(cluster.members[number], content=NEW)


def check(cluster: Cluster) -> None:
    reached = len([each for each in cluster.members if each.content == NEW]) + len(cluster.running)
    assert reached <= max(cluster.state.limit, 0) or cluster.state.ended, (reached, cluster.state)


ACTIONS = st.tuples(
    st.sampled_from(["load", "look", "start", "start", "start", "advance", "end", "end", "crash"]),
    st.integers(0, 1),
    st.integers(0, COUNT - 1),
    st.booleans(),
)


@given(st.lists(ACTIONS, max_size=120))
def test_whatever_happens_no_step_has_more_objects_than_its_limit_and_the_rollout_ends(
    actions: list[tuple[str, int, int, bool]],
) -> None:
    cluster = Cluster()
    replicas = [Replica(cluster), Replica(cluster)]
    for action, which, number, answered in actions:
        replica = replicas[which]
        if action == "crash":
            cluster.running = {each for each in cluster.running if each % 2 != which}  # its runs end without a result
            replicas[which] = Replica(cluster)
        elif action == "end":
            end(cluster, number)
        elif action == "start":
            replica.start(number, answered=answered)
        elif action == "advance":
            replica.advance(answered=answered)
        else:
            getattr(replica, action)()
        check(cluster)
    for _ in range(4 * COUNT):
        for replica in replicas:
            replica.load()
            replica.look()
            replica.advance()
            replica.look()
            for number in range(COUNT):
                replica.start(number)
                check(cluster)
            for number in range(COUNT):
                end(cluster, number)
    assert cluster.state.ended
    assert all(each.content == NEW for each in cluster.members)
