from __future__ import annotations

from runner.core.kube.watch_events import Relist
from runner.values.objects import ObjectKey

A, B = ObjectKey("ns", "a"), ObjectKey("ns", "b")


def test_a_known_object_that_the_list_does_not_contain_is_missing() -> None:
    relist = Relist()
    relist.begin("ns", [A, B])
    relist.saw(B)
    assert list(relist.end("ns")) == [A]


def test_a_list_that_starts_over_expects_every_known_object_again() -> None:
    relist = Relist()
    relist.begin("ns", [A, B])
    relist.saw(A)
    relist.begin("ns", [A, B])
    relist.saw(B)
    assert list(relist.end("ns")) == [A]


def test_an_object_that_another_scope_shows_is_not_missing() -> None:
    relist = Relist()
    relist.begin("ns", [A])
    relist.begin("", [])
    relist.saw(A)
    assert not relist.end("ns")


def test_lists_are_initial_until_one_is_complete() -> None:
    relist = Relist()
    assert not relist.is_initial("ns")
    relist.begin("ns", [])
    relist.begin("ns", [])
    assert relist.is_initial("ns")
    relist.end("ns")
    relist.begin("ns", [])
    assert not relist.is_initial("ns")
    assert relist.is_synced("ns")
    assert not relist.is_synced("")


def test_the_requests_of_lists_are_counted_by_scope() -> None:
    relist = Relist()
    relist.request("ns")
    relist.begin("ns", [])
    relist.request("ns")
    assert (relist.round("ns"), relist.round("")) == (2, 0)
