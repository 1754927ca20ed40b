"""News that comes while its owner runs."""

from __future__ import annotations

from typing import Any

from runner.dependents.deferred import PendingNews
from runner.dependents.ledger import News, Write
from runner.kube.object_state import State, Target
from runner.objects import GVK, ObjectKey

KIND = GVK("apps", "v1", "Deployment")
OWNER = Target(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"))
KEY = ObjectKey("ns", "child")


def state(version: int, generation: int = 1, **meta: Any) -> State:
    obj = {"metadata": {"uid": "u1", "resourceVersion": str(version), "generation": generation, **meta}}
    return State.of(obj, (OWNER,), whole=False)


def news(now: State | None) -> News:
    return News(OWNER, KEY, "u1", "changed", now)


def write(version: int, generation: int = 1) -> Write:
    return Write(OWNER, "u1", str(version), state(version, generation))


def test_news_of_an_owner_without_run_is_not_held() -> None:
    assert not PendingNews().holds(KIND, news(state(1)))


def test_news_waits_for_the_end_of_the_run() -> None:
    pending = PendingNews()
    pending.began(OWNER)
    assert pending.holds(KIND, news(state(1)))
    assert pending.ended(OWNER) == [(KIND, news(state(1)))]
    assert not pending.holds(KIND, news(state(2)))


def test_news_waits_for_the_last_of_several_runs() -> None:
    pending = PendingNews()
    pending.began(OWNER)
    pending.began(OWNER)
    pending.holds(KIND, news(state(1)))
    assert pending.ended(OWNER) == []
    assert len(pending.ended(OWNER)) == 1


def test_a_write_takes_back_the_news_that_it_caused() -> None:
    pending = PendingNews()
    pending.began(OWNER)
    for now in (state(1), state(2, generation=2), state(3, generation=2)):
        pending.holds(KIND, news(now))
    pending.wrote(KIND, KEY, write(2, generation=2), with_status=False)
    assert pending.ended(OWNER) == [(KIND, news(state(1)))]


def test_a_write_of_one_object_takes_back_nothing_of_another() -> None:
    pending = PendingNews()
    pending.began(OWNER)
    pending.holds(KIND, news(state(1)))
    pending.wrote(KIND, ObjectKey("ns", "another"), write(1), with_status=False)
    pending.wrote(GVK("", "v1", "Service"), KEY, write(1), with_status=False)
    assert len(pending.ended(OWNER)) == 1


def test_a_deletion_takes_back_the_news_of_its_beginning_and_end() -> None:
    pending = PendingNews()
    pending.began(OWNER)
    pending.holds(KIND, news(state(2, deletionTimestamp="t")))
    assert not pending.deleted(KIND, OWNER, "u1")
    pending.holds(KIND, news(None))
    assert pending.deleted(KIND, OWNER, "u1")
    assert pending.ended(OWNER) == []


def test_a_deletion_by_somebody_else_stays_news() -> None:
    pending = PendingNews()
    pending.began(OWNER)
    pending.holds(KIND, news(None))
    pending.wrote(KIND, KEY, write(1), with_status=False)
    assert not pending.deleted(KIND, OWNER, "u2")
    assert len(pending.ended(OWNER)) == 1
