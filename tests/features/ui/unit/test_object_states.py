"""The state of many objects, at the cost of what changed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from runner.features.ui.objects import DisplayState, ObjectStates, display_status
from runner.values.objects import PAUSED
from tests.kit.page_values import AKind, an_object, condition

GONE = {"metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z"}}
LEFT_ALONE = {"metadata": {"annotations": {PAUSED: "true"}}}


@pytest.mark.parametrize(
    ("conditions", "more", "state"),
    [
        ([], {}, DisplayState.UNKNOWN),
        ([condition("Running")], {}, DisplayState.WORKING),
        ([condition("Running", "False")], {}, DisplayState.UNKNOWN),
        ([condition("Running"), condition("Successful")], {}, DisplayState.READY),
        ([condition("Ready")], {}, DisplayState.READY),
        ([condition("Ready", "Unknown"), condition("Reconciling")], {}, DisplayState.WORKING),
        ([condition("Failure"), condition("Reconciling")], {}, DisplayState.FAILING),
        ([condition("Failure", "False"), condition("Ready")], {}, DisplayState.READY),
        ([condition("Failure"), condition("Stalled")], {}, DisplayState.STALLED),
        ([condition("Ready")], LEFT_ALONE, DisplayState.PAUSED),
        ([condition("Failure")], LEFT_ALONE, DisplayState.FAILING),
        ([condition("Failure")], GONE, DisplayState.DELETING),
    ],
)
def test_an_objects_state_is_read_from_its_conditions(
    conditions: list[dict[str, Any]], more: dict[str, Any], state: DisplayState
) -> None:
    assert display_status(an_object("a", conditions, "ns", 1, more)).state is state


def test_since_and_message_are_those_of_the_condition_that_decides() -> None:
    failure = condition("Failure", message="no such image", since="2026-11-21T11:30:00Z")
    found = display_status(an_object("a", [condition("Ready", "False"), failure], "ns", 1, {}))
    assert (found.since, found.message) == ("2026-11-21T11:30:00Z", "no such image")


async def test_a_refresh_parses_only_changed_objects() -> None:
    kind = AKind()
    for number in range(500):
        kind.informer.put(f"one-{number}", condition("Ready"))
    survey = ObjectStates([cast("Any", kind)])
    await survey.refresh()
    assert kind.informer.parsed == 500
    kind.informer.put("one-7", condition("Failure"))
    kind.informer.drop("one-8")
    await survey.refresh()
    await survey.refresh()
    assert kind.informer.parsed == 501
    assert survey.counts(kind.gvk) == {"failing": 1, "ready": 498}


async def test_failing_objects_come_first_and_a_filter_selects_objects() -> None:
    kind = AKind()
    kind.informer.put("bread", condition("Ready"), namespace="b")
    kind.informer.put("milk", condition("Failure"), namespace="b")
    kind.informer.put("Beer", condition("Ready"), namespace="a")
    survey = ObjectStates([cast("Any", kind)])
    await survey.refresh()

    def names(**wish: Any) -> list[str]:
        return [str(row.key) for row in survey.rows(**wish)]

    assert names() == ["b/milk", "a/Beer", "b/bread"]
    assert names(search="BE") == ["a/Beer"]
    assert names(search="b/") == ["b/milk", "b/bread"]
    assert names(state="ready", gvk=kind.gvk) == ["a/Beer", "b/bread"]
    assert names(state="paused") == []
