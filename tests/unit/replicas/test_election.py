"""Who takes, keeps and gives what, decided over Lease values and a clock."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from runner.objects import GVK, ObjectKey
from runner.replicas import election
from runner.replicas.election import (
    LeaseAction,
    LeaseLayout,
    LeaseRecord,
    LeaseStep,
    LeaseTimes,
    ObservedLease,
    ReplicaView,
)

TIMES = LeaseTimes(lease=15, renew=10)
ONE = LeaseLayout("op", 1)
FOUR = LeaseLayout("op", 4)
LAYOUT = LeaseRecord("4-shards", 15, "", "", 0)


def record(holder: str, seconds: int = 15, renewed: str = "t0") -> LeaseRecord:
    return LeaseRecord(holder, seconds, "t0", renewed, 3)


def seen(since: float = 0, **holders: str) -> dict[str, ObservedLease]:
    """Leases of the layout of four: `s0="me"` is a shard, `r0="me"` a place."""
    names = {"s": "op-shard-", "r": "op-replica-"}
    found = {
        names[short[0]] + short[1:]: ObservedLease(record(holder), "1", since) for short, holder in holders.items()
    }
    return {"op": ObservedLease(LAYOUT, "1", since), **found}


def view(
    layout: LeaseLayout = FOUR, now: float = 1, me: str = "me", *, held: tuple[str, ...] = (), **more: object
) -> ReplicaView:
    held_since = dict.fromkeys(held, now)
    fields = {"me": me, "layout": layout, "times": TIMES, "now": now, "seen": {}, "held": held_since, **more}
    return ReplicaView(**fields)  # type: ignore[arg-type]


def steps(action: LeaseAction, wanted: ReplicaView) -> list[str]:
    return [step.name for step in election.plan(wanted) if step.action is action]


def test_the_defaults_are_those_of_other_operators() -> None:
    assert (TIMES.retry, TIMES.lease_seconds) == (2, 15)
    assert TIMES.renew < TIMES.hard < TIMES.lease


def test_one_shard_is_one_lease_of_the_name_that_other_operators_use() -> None:
    assert ONE.seats == ("op",)
    assert ONE.places == ()
    assert not ONE.shared


def test_a_lease_that_is_not_there_or_was_released_is_taken_at_once() -> None:
    assert election.plan(view(ONE)) == [LeaseStep(LeaseAction.TAKE, "op")]
    assert election.plan(view(ONE, seen={"op": ObservedLease(record(""), "1", 1)})) == [
        LeaseStep(LeaseAction.TAKE, "op")
    ]


@pytest.mark.parametrize(("now", "expected"), [(14.9, []), (15.0, [LeaseStep(LeaseAction.TAKE, "op")])])
def test_a_lease_is_taken_after_it_was_unchanged_for_the_duration_that_it_contains(
    now: float, expected: list[LeaseStep]
) -> None:
    assert election.plan(view(ONE, now, seen={"op": ObservedLease(record("other"), "1", 0)})) == expected
    assert election.plan(view(ONE, now + 15, seen={"op": ObservedLease(record("other", 30), "1", 0)})) == expected


def test_time_counts_from_when_a_record_was_first_seen_whatever_times_it_names() -> None:
    first = election.observe({}, {"op": (record("other", renewed="1999"), "1")}, 100)
    same = election.observe(first, {"op": (record("other", renewed="1999"), "2")}, 110)
    renewed = election.observe(same, {"op": (record("other", renewed="2999"), "3")}, 112)
    assert [each["op"].since for each in (first, same, renewed)] == [100, 100, 112]
    assert same["op"].version == "2"
    assert election.observe(renewed, {}, 113) == {}


def test_a_held_lease_is_renewed_every_two_seconds() -> None:
    assert election.plan(view(ONE, 10, held=("op",), seen={"op": ObservedLease(record("me"), "1", 8)})) == []
    due = view(ONE, 10, seen={"op": ObservedLease(record("me"), "1", 8)}, held=())
    assert election.plan(_holding(due, {"op": 8})) == [LeaseStep(LeaseAction.RENEW, "op")]


def _holding(view_: ReplicaView, held: Mapping[str, float]) -> ReplicaView:
    return ReplicaView(
        me=view_.me, layout=view_.layout, times=view_.times, now=view_.now, seen=view_.seen, held=held, busy=view_.busy
    )


def test_the_fields_move_as_other_operators_move_them() -> None:
    taken = record("other").taken("me", TIMES, "t9")
    assert taken == LeaseRecord("me", 15, "t9", "t9", 4)
    assert taken.taken("me", TIMES, "t11") == LeaseRecord("me", 15, "t9", "t11", 4)
    assert taken.released("t12") == LeaseRecord("", 1, "t12", "t12", 4)


def test_an_own_former_lease_is_taken_again_once_its_runs_have_ended() -> None:
    left_over = {"op": ObservedLease(record("me"), "1", 0)}
    assert election.plan(view(ONE, seen=left_over)) == [LeaseStep(LeaseAction.TAKE, "op")]
    assert election.plan(view(ONE, seen=left_over, busy=frozenset({"op"}))) == []


def test_a_replica_plans_nothing_while_replicas_with_another_number_of_shards_run() -> None:
    others = {"op": ObservedLease(LeaseRecord("8-shards", 15, "", "", 0), "1", 0)}
    assert election.plan(view(seen=others)) == []
    leads = {"op": ObservedLease(record("pod-of-an-operator-that-leads"), "1", 0)}
    assert election.plan(view(seen=leads)) == []
    assert election.plan(view(ONE, seen={"op": ObservedLease(LAYOUT, "1", 0)})) == []


def test_a_replica_takes_the_layout_lease_then_a_replica_lease_then_shards() -> None:
    assert election.plan(view(seen=seen())) == [LeaseStep(LeaseAction.TAKE, "op")]
    assert election.plan(view(seen=seen(r0="other"), held=("op",))) == [LeaseStep(LeaseAction.TAKE, "op-replica-1")]
    alone = view(seen=seen(r0="me"), held=("op", "op-replica-0"))
    assert sorted(steps(LeaseAction.TAKE, alone)) == [f"op-shard-{i}" for i in range(4)]


def test_no_more_than_a_share_is_taken() -> None:
    two = view(seen=seen(r0="me", r1="other"), held=("op", "op-replica-0"))
    assert len(steps(LeaseAction.TAKE, two)) == 2


def test_a_shard_beyond_the_share_is_taken_only_if_no_replica_lacks_one() -> None:
    held = ("op", "op-replica-0", "op-shard-0")
    lacking = view(seen=seen(r0="me", r1="b", r2="c", s0="me", s1="b"), held=held)
    assert steps(LeaseAction.TAKE, lacking) == []
    served = view(seen=seen(r0="me", r1="b", r2="c", s0="me", s1="b", s2="c"), held=held)
    assert steps(LeaseAction.TAKE, served) == ["op-shard-3"]


def test_a_new_replica_gets_its_share_from_the_replica_with_most_shards() -> None:
    held = ("op", "op-replica-0", "op-shard-0", "op-shard-1", "op-shard-2")
    sharing = seen(r0="me", r1="b", r2="new", s0="me", s1="me", s2="me", s3="b")
    assert len(steps(LeaseAction.LEAVE, view(seen=sharing, held=held))) == 1
    theirs = view(seen=sharing, me="b", held=("op", "op-replica-1", "op-shard-3"))
    assert election.plan(theirs) == []


def test_shards_being_released_are_not_released_twice_and_only_when_idle() -> None:
    held = ("op", "op-replica-0", "op-shard-0", "op-shard-1", "op-shard-2", "op-shard-3")
    sharing = seen(r0="me", r1="new", s0="me", s1="me", s2="me", s3="me")
    leaving = frozenset({"op-shard-0", "op-shard-1"})
    now = view(seen=sharing, held=held, leaving=leaving, busy=frozenset({"op-shard-0"}))
    assert election.plan(now) == [LeaseStep(LeaseAction.RELEASE, "op-shard-1")]


def test_idle_shards_are_given_first() -> None:
    held = ("op", "op-replica-0", "op-shard-0", "op-shard-1", "op-shard-2", "op-shard-3")
    sharing = seen(r0="me", r1="new", s0="me", s1="me", s2="me", s3="me")
    busy = frozenset({"op-shard-0", "op-shard-2"})
    assert steps(LeaseAction.LEAVE, view(seen=sharing, held=held, busy=busy)) == ["op-shard-1", "op-shard-3"]


def test_balanced_replicas_move_no_seats() -> None:
    held = ("op", "op-replica-0", "op-shard-0", "op-shard-1")
    level = view(seen=seen(r0="me", r1="b", r2="c", s0="me", s1="me", s2="b", s3="c"), held=held)
    assert election.plan(level) == []


def test_a_replica_that_ends_leaves_its_shards_first_then_its_place_and_the_layout_only_when_it_is_the_last() -> None:
    held = ("op", "op-replica-0", "op-shard-0")
    together = seen(r0="me", r1="b", s0="me")
    assert steps(LeaseAction.LEAVE, view(seen=together, held=held, is_draining=True)) == ["op-shard-0"]
    assert steps(LeaseAction.LEAVE, view(seen=together, held=held[:2], is_draining=True)) == ["op-replica-0"]
    last = seen(r0="me")
    assert steps(LeaseAction.LEAVE, view(seen=last, held=held[:2], is_draining=True)) == ["op-replica-0", "op"]


def test_each_object_has_one_fixed_shard_and_objects_spread_over_all_shards() -> None:
    gvk = GVK("cache.example.com", "v1alpha1", "Memcached")
    counts = [0] * 4
    for i in range(4000):
        counts[FOUR.shard_of(gvk, ObjectKey("ns", f"name-{i}"))] += 1
    assert min(counts) > 900
    # This value must never change: replicas of two versions would not agree.
    assert [LeaseLayout("x", 1000).shard_of(gvk, ObjectKey("ns", name)) for name in "abc"] == [582, 695, 573]
    newer = GVK("cache.example.com", "v2", "Memcached")
    assert FOUR.shard_of(newer, ObjectKey("ns", "a")) == FOUR.shard_of(gvk, ObjectKey("ns", "a"))


def test_a_leader_polls_at_each_renewal_and_a_waiting_replica_more_often() -> None:
    assert election.next_poll(view(ONE, held=("op",))) == 2
    assert election.next_poll(view(ONE)) == 0.5
