"""Who takes, keeps and releases the Lease, decided over its value and a clock."""

from __future__ import annotations

import pytest

from runner.features.replicas import election
from runner.features.replicas.election import LeaseAction, LeaseRecord, LeaseTimes, ObservedLease, ReplicaView

TIMES = LeaseTimes(lease=15, renew=10)


def record(holder: str, seconds: int = 15, renewed: str = "t0") -> LeaseRecord:
    return LeaseRecord(holder, seconds, "t0", renewed, 3)


def view(now: float = 1, seen: LeaseRecord | None = None, since: float = 0, **more: object) -> ReplicaView:
    lease = ObservedLease(seen, "1", since) if seen is not None else None
    fields = {"me": "me", "times": TIMES, "now": now, "seen": lease, "granted_at": None, **more}
    return ReplicaView(**fields)  # type: ignore[arg-type]


def test_the_defaults_are_those_of_other_operators() -> None:
    assert (TIMES.retry, TIMES.lease_seconds) == (2, 15)
    assert TIMES.renew < TIMES.hard < TIMES.lease


@pytest.mark.parametrize("seen", [None, record("")])
def test_a_lease_that_is_not_there_or_was_released_is_taken_at_once(seen: LeaseRecord | None) -> None:
    assert election.plan(view(seen=seen)) is LeaseAction.TAKE


@pytest.mark.parametrize(("now", "expected"), [(14.9, None), (15.0, LeaseAction.TAKE)])
def test_a_lease_is_taken_after_it_was_unchanged_for_the_duration_that_it_contains(
    now: float, expected: LeaseAction | None
) -> None:
    assert election.plan(view(now, record("other"))) is expected
    assert election.plan(view(now + 15, record("other", 30))) is expected


def test_time_counts_from_when_a_record_was_first_seen_whatever_times_it_names() -> None:
    first = election.observe(None, (record("other", renewed="1999"), "1"), 100)
    same = election.observe(first, (record("other", renewed="1999"), "2"), 110)
    renewed = election.observe(same, (record("other", renewed="2999"), "3"), 112)
    assert [each and each.since for each in (first, same, renewed)] == [100, 100, 112]
    assert same is not None
    assert same.version == "2"
    assert election.observe(renewed, None, 113) is None


def test_a_held_lease_is_renewed_every_two_seconds() -> None:
    assert election.plan(view(10, record("me"), granted_at=8.1)) is None
    assert election.plan(view(10, record("me"), granted_at=8)) is LeaseAction.RENEW


def test_the_fields_move_as_other_operators_move_them() -> None:
    def after(action: LeaseAction, before: LeaseRecord, now: str) -> LeaseRecord:
        return election.record_after(action, ObservedLease(before, "1", 0), "me", TIMES, now)

    taken = after(LeaseAction.TAKE, record("other"), "t9")
    assert taken == LeaseRecord("me", 15, "t9", "t9", 4)
    assert after(LeaseAction.RENEW, taken, "t11") == LeaseRecord("me", 15, "t9", "t11", 4)
    assert after(LeaseAction.RELEASE, taken, "t12") == LeaseRecord("", 1, "t12", "t12", 4)
    assert election.record_after(LeaseAction.TAKE, None, "me", TIMES, "t9") == LeaseRecord("me", 15, "t9", "t9", 0)


def test_an_own_former_lease_is_taken_again_once_its_runs_have_ended() -> None:
    assert election.plan(view(seen=record("me"))) is LeaseAction.TAKE
    assert election.plan(view(seen=record("me"), is_busy=True)) is None


def test_a_replica_that_ends_renews_its_lease_until_its_runs_have_ended_and_takes_none() -> None:
    busy = view(10, record("me"), granted_at=8, is_busy=True, is_draining=True)
    assert election.plan(busy) is LeaseAction.RENEW
    assert election.plan(view(10, record("me"), granted_at=8, is_draining=True)) is LeaseAction.RELEASE
    assert election.plan(view(is_draining=True)) is None


def test_a_leader_polls_at_each_renewal_and_another_replica_more_often() -> None:
    assert election.next_poll(view(granted_at=1)) == 2
    assert election.next_poll(view()) == 0.5
    assert election.next_poll(view(granted_at=1, is_draining=True)) == 0.5
