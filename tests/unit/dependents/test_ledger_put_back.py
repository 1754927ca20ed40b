"""A write that is undone before anybody has read it: what is read is what was there before, and yet it is news."""

from __future__ import annotations

from typing import Any

import pytest

from runner.dependents.ledger import Ledger, Notification, RunWrite
from runner.kube.object_state import ObjectState
from runner.objects import GVK, Object, ObjectKey, ObjectRef

OWNER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"))
OTHER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "other"))
KEY = ObjectKey("ns", "child")


def config_map(version: int, value: str) -> Object:
    meta: dict[str, Any] = {"namespace": "ns", "name": "child", "uid": "u1", "resourceVersion": str(version)}
    return {"metadata": meta, "data": {"value": value}}


class Story:
    """A ConfigMap of version 1 whose value is \"old\"; told what happens to it."""

    def __init__(self, *owners: ObjectRef) -> None:
        self._owners = owners or (OWNER,)
        self._ledger = Ledger(lambda _: False, generation_tells=False)
        self.notifications: list[Notification] = []
        self.event(1).begins_reading().reads(1, "old")
        assert self.notifications == []

    def event(self, version: int) -> Story:
        state = ObjectState.of(config_map(version, "unknown"), self._owners, whole=False)
        self.notifications += self._ledger.applied("", KEY, state).notifications
        return self

    def begins_reading(self) -> Story:
        self._ledger.reads(KEY)
        return self

    def reads(self, version: int, value: str) -> Story:
        self.notifications += self._ledger.read(
            KEY, ObjectState.of(config_map(version, value), self._owners, whole=True)
        )
        return self

    def wrote(self, version: int, value: str) -> Story:
        state = ObjectState.of(config_map(version, value), self._owners, whole=True)
        self.notifications += self._ledger.wrote("", KEY, RunWrite(OWNER, "u1", str(version), state))
        return self

    @property
    def told(self) -> list[tuple[ObjectRef, str]]:
        return [(news.target, news.what) for news in self.notifications]


NEWS = [(OWNER, "changed: content")]


def test_that_it_was_undone_is_news_when_the_write_is_told_after_the_read() -> None:
    story = Story().event(2).begins_reading().reads(3, "old")
    assert story.told == []
    assert story.wrote(2, "new").told == NEWS
    assert story.event(3).told == NEWS


def test_that_it_was_undone_is_news_when_the_write_is_told_before_the_read() -> None:
    assert Story().event(2).wrote(2, "new").begins_reading().reads(3, "old").event(3).told == NEWS
    assert Story().event(2).begins_reading().wrote(2, "new").reads(3, "old").event(3).told == NEWS


def test_that_it_was_undone_is_news_when_its_own_event_comes_last() -> None:
    story = Story().event(2).wrote(2, "new").event(3).begins_reading().reads(3, "old")
    assert story.told == NEWS


def test_a_read_that_began_before_the_event_shows_nothing_of_it() -> None:
    story = Story().event(2).begins_reading().event(3).reads(2, "old").wrote(3, "new")
    assert story.told == []
    assert story.begins_reading().reads(3, "new").told == []


@pytest.mark.parametrize("told_first", [True, False])
def test_a_write_that_was_not_undone_is_no_news_in_the_end(told_first: bool) -> None:  # noqa: FBT001 - a case
    story = Story().event(2)
    story = story.wrote(2, "new").begins_reading() if told_first else story.begins_reading()
    story.reads(3, "new")
    before = len(story.notifications)
    if not told_first:
        story.wrote(2, "new")
    assert len(story.notifications) == before, "what the watch told before the run is taken back by the run's news"
    assert (before == 0) is told_first


def test_others_compare_with_what_they_knew() -> None:
    story = Story(OWNER, OTHER).event(2).wrote(2, "new").begins_reading().reads(3, "old")
    assert story.told == NEWS, "for the other owner nothing has changed"
    story = Story(OWNER, OTHER).event(2).wrote(2, "new").begins_reading().reads(3, "new")
    assert story.told == [(OTHER, "changed: content")]


def test_of_two_writes_the_last_one_counts() -> None:
    story = Story().event(2).event(3).wrote(2, "new").wrote(3, "newer").begins_reading().reads(4, "new")
    assert story.told == NEWS
