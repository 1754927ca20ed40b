"""Periodic runs of many objects are spread over the period, in virtual time."""

from __future__ import annotations

import random
from collections import Counter
from uuid import UUID

import pytest

from runner.core.reconcile import decisions

pytestmark = pytest.mark.virtual_time


PERIOD = 3600.0
EPOCH = 1_750_000_000.0


def uids(seed: int, number: int) -> list[str]:
    rng = random.Random(seed)
    return [str(UUID(int=rng.getrandbits(128))) for _ in range(number)]


def fullest(began: list[tuple[str, float]], parts: int = 60) -> int:
    """How many runs begin in the fullest of so many parts of a period."""
    return max(Counter(int(at % PERIOD / PERIOD * parts) for _, at in began).values())


def test_objects_that_are_present_at_start_resync_spread_over_the_period_and_a_restart_moves_no_resync() -> None:
    due = []
    for uid in uids(1, 3000):
        first, second = (
            now + decisions.resync_delay(PERIOD, uid, now, settled=False) for now in (EPOCH, EPOCH + 1.7 * PERIOD)
        )
        assert first - EPOCH <= PERIOD
        assert second % PERIOD == pytest.approx(first % PERIOD, abs=0.01)
        due.append(("", first))
    # 50 to a minute, were they spread evenly; by chance, some more.
    assert fullest(due) < 90


def test_after_a_change_the_resync_comes_within_the_period_and_not_before_half_of_it() -> None:
    for number, uid in enumerate(uids(3, 2000)):
        seconds = decisions.resync_delay(PERIOD, uid, EPOCH + number, settled=True)
        assert PERIOD / 2 <= seconds <= PERIOD


def test_each_object_settles_on_a_resync_time_of_its_own() -> None:
    uid = uids(4, 1)[0]
    times = []
    for start in range(0, int(PERIOD), 97):
        now = EPOCH + start
        for _ in range(4):
            now += decisions.resync_delay(PERIOD, uid, now, settled=True)
        times.append(now % PERIOD)
        assert decisions.resync_delay(PERIOD, uid, now, settled=True) == pytest.approx(PERIOD, abs=0.01)
    assert max(times) - min(times) < 0.01


def test_objects_that_changed_at_once_do_not_resync_at_once() -> None:
    waits = [("", decisions.resync_delay(PERIOD, uid, EPOCH, settled=True)) for uid in uids(5, 3000)]
    # All in the second half of the period, most in its first half: 3 of 4 in a quarter.
    assert fullest(waits) < 200
