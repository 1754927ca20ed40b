from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.operator_sdk.util.plugins.module_utils import events

HAPPENED = events.Occurrence(
    name="cache.broken",
    namespace="default",
    type="Warning",
    reason="Broken",
    message="It is broken",
    component="memcached-operator",
    reporting_component="memcached-operator",
    involved={"apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached", "name": "cache", "uid": "u1"},
    time=datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC),
)


NOW, BEFORE = "2026-01-31T12:00:00Z", "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("previous", "count", "first"),
    [
        pytest.param(None, 1, NOW, id="none before"),
        pytest.param({"reason": "Broken", "count": 4, "firstTimestamp": BEFORE}, 5, BEFORE, id="the same reason"),
        pytest.param({"reason": "Fine", "count": 4, "firstTimestamp": BEFORE}, 1, NOW, id="another reason"),
        pytest.param({"reason": "Broken", "count": None, "firstTimestamp": BEFORE}, 2, BEFORE, id="without a count"),
    ],
)
def test_an_event_is_counted_while_its_reason_is_the_same(
    previous: dict[str, Any] | None, count: int, first: str
) -> None:
    event = events.core_event(HAPPENED, previous)
    assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (count, first, NOW)


def test_an_event_of_the_other_group_is_counted_in_its_series() -> None:
    first = events.grouped_again(HAPPENED, {})
    third = events.grouped_again(HAPPENED, first)
    assert first["series"] == {"count": 2, "lastObservedTime": "2026-01-31T12:00:00.250000Z"}
    assert third["series"]["count"] == 3


def test_in_the_other_group_only_an_event_with_the_same_text_is_counted_up() -> None:
    stored: dict[str, Any] = events.grouped_event(HAPPENED, "operator-1")
    assert events.same_grouped(HAPPENED, stored)
    assert not events.same_grouped(replace(HAPPENED, message="It is still broken"), stored)


def test_the_derived_name_is_the_same_each_time_and_another_for_each_type_and_reason() -> None:
    involved = HAPPENED.involved
    names = [events.derived_name(involved, kind, why) for kind in ("Normal", "Warning") for why in ("A", "B")]
    assert len(set(names)) == 4
    assert names[0] == events.derived_name(involved, "Normal", "A")


def test_names_are_cut_to_the_limit_of_the_api_server() -> None:
    long = "a" * 251 + ".b"
    assert len(events.timestamped_name(long, HAPPENED.time)) <= 253
    assert len(events.derived_name({"name": long}, "Normal", "A")) <= 253
    assert events.derived_name({}, "Normal", "A").startswith("event.")


def test_names_with_a_timestamp_differ_by_the_microsecond() -> None:
    later = HAPPENED.time.replace(microsecond=250_001)
    assert events.timestamped_name("a", HAPPENED.time) != events.timestamped_name("a", later)
