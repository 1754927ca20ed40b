"""Two replicas with old views of the objects, crashes and lost writes: no step ever has more objects than its limit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from runner.features.rollout.fields import RolloutPolicy, Step
from runner.features.rollout.member import Member
from runner.features.rollout.state import State
from runner.features.rollout.steps import Fleet, Turns, advance
from tests.features.rollout.unit.test_state import NEW, member

COUNT = 12
NOW = 1_000_000.0
POLICY = RolloutPolicy((Step(1), Step(4), Step(50, is_percent=True)), max_failures=COUNT)


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
        self.fleet = Fleet.of(POLICY, self.state, list(self.cluster.members))

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
        if Turns.of(POLICY, self.state, self.fleet, NOW).wait(each) is not None:
            return
        begun = self.state.started(each.uid)
        if each.uid in self.state.begun or self.save(begun, answered=answered):
            self.cluster.running.add(number)

    def advance(self, *, answered: bool = True) -> None:
        state = self.state
        while (later := advance(POLICY, state, self.fleet, NOW)) != state:
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
