"""Owners and dependents that wake each other."""

from __future__ import annotations

from runner.drift import News, Target
from runner.loops import Loops
from runner.objects import GVK, ObjectKey

KIND = GVK("apps", "v1", "Deployment")


def news(name: str = "web", owner: str = "mc") -> News:
    return News(
        Target(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", owner)),
        ObjectKey("ns", name),
        "u",
        "changed",
        None,
    )


def test_the_first_few_changes_of_a_dependent_wake_at_once() -> None:
    loops = Loops()
    assert [loops.delay(KIND, news(), float(second)) for second in range(10)] == [0.0] * 10


def test_what_goes_on_waits_longer_each_time_up_to_five_minutes() -> None:
    loops = Loops()
    delays = [loops.delay(KIND, news(), float(second)) for second in range(30)]
    assert delays[10:14] == [2.0, 4.0, 8.0, 16.0]
    assert delays[-1] == 300.0


def test_quiet_lets_it_begin_anew() -> None:
    loops = Loops()
    for second in range(15):
        loops.delay(KIND, news(), float(second))
    assert loops.delay(KIND, news(), 400.0) == 0.0


def test_each_dependent_and_each_owner_is_counted_by_itself() -> None:
    loops = Loops()
    for second in range(15):
        loops.delay(KIND, news(), float(second))
    assert loops.delay(KIND, news("another"), 15.0) == 0.0
    assert loops.delay(KIND, news(owner="another"), 15.0) == 0.0
    assert loops.delay(GVK("", "v1", "Service"), news(), 15.0) == 0.0


def test_many_pairs_are_not_kept_for_ever() -> None:
    loops = Loops()
    for number in range(5000):
        loops.delay(KIND, news(str(number)), 0.0)
    assert len(loops._pairs) == 4096
