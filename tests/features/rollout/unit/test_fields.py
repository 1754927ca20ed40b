"""`rollout` of a watch: its fields, the sizes of its steps, and its windows."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.features.rollout.fields import ROLLOUT_POLICY, RolloutPolicy, Step, Window
from tests.unit.watches.sample import HEAD, Errors, One

BERLIN = ZoneInfo("Europe/Berlin")
WHOLE = """
  rollout:
    first: {matchLabels: {tier: test}}
    steps: [1, 5, 25%, 100%]
    pause: 10m
    ready: 5m
    maxFailures: 2
    windows:
    - {days: [Mon, Tue], from: "22:00", to: "04:00", timeZone: Europe/Berlin}
    - {from: "00:00", to: "24:00"}
"""


def all_days(start: str, end: str) -> Window:
    minutes = [int(text[:2]) * 60 + int(text[3:]) for text in (start, end)]
    return Window(frozenset(range(7)), minutes[0], minutes[1], "Europe/Berlin")


def at(text: str, zone: ZoneInfo | None = None) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp()


def test_all_fields_are_read(one: One) -> None:
    assert one(WHOLE).more.get(ROLLOUT_POLICY) == RolloutPolicy(
        (Step(1), Step(5), Step(25, is_percent=True), Step(100, is_percent=True)),
        labels={"tier": "test"},
        pause=600.0,
        ready=300.0,
        max_failures=2,
        windows=(
            Window(frozenset({0, 1}), 22 * 60, 4 * 60, "Europe/Berlin"),
            Window(frozenset(range(7)), 0, 24 * 60, "UTC"),
        ),
    )
    number = one("  rollout: {first: 3, steps: [50%]}\n").more.get(ROLLOUT_POLICY)
    assert number == RolloutPolicy((Step(50, is_percent=True),), first=3)
    assert one("").more.get(ROLLOUT_POLICY) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "rollout.steps: missing or empty: use numbers of objects and percentages that grow"),
        ("{steps: []}", "rollout.steps: missing or empty"),
        ("{steps: [0, 5]}", "rollout.steps: invalid step '0'"),
        ("{steps: [101%]}", "rollout.steps: invalid step '101%'"),
        ("{steps: [few]}", "rollout.steps: invalid step 'few'"),
        ("{steps: [5, 1]}", "rollout.steps: steps do not grow"),
        ("{steps: [1, 50%, 25%]}", "rollout.steps: steps do not grow"),
        ("{first: 0, steps: [1]}", "rollout.first: invalid number: use the number of objects that run first"),
        ("{first: {matchLabels: {}}, steps: [1]}", "rollout.first: selects nothing"),
        ("{steps: [1], maxFailures: -1}", "rollout.maxFailures: invalid number -1"),
        ("{steps: [1], pause: soon}", "rollout.pause: "),
        (
            '{steps: [1], windows: [{from: "22:00", to: "22:00"}]}',
            "rollout.windows[0].to: the window has no length",
        ),
        ('{steps: [1], windows: [{from: "00:00", to: "00:00"}]}', "rollout.windows[0].to: the window has no length"),
        ('{steps: [1], windows: [{from: "22", to: "23:00"}]}', "rollout.windows[0].from: invalid time '22'"),
        (
            '{steps: [1], windows: [{from: "22:00", to: "23:00", timeZone: Europe/Nowhere}]}',
            "rollout.windows[0].timeZone: unknown time zone 'Europe/Nowhere'",
        ),
        (
            '{steps: [1], windows: [{from: "22:00", to: "23:00", timeZone: ../etc}]}',
            "rollout.windows[0].timeZone: unknown time zone '../etc'",
        ),
        (
            '{steps: [1], windows: [{days: [Monday], from: "22:00", to: "23:00"}]}',
            "rollout.windows[0].days: invalid day 'Monday': use Mon, Tue",
        ),
    ],
)
def test_an_invalid_rollout_is_refused_with_its_line(errors: Errors, text: str, message: str) -> None:
    (line,) = errors(f"{HEAD}  rollout: {text}\n")
    assert message in line
    assert line.startswith("watches.yaml:")


def test_a_rollout_needs_the_status(errors: Errors) -> None:
    (line,) = errors(f"{HEAD}  manageStatus: false\n  rollout: {{steps: [1]}}\n")
    assert "rollout: needs the status" in line


@pytest.mark.parametrize(("total", "limits"), [(0, (0, 0)), (1, (1, 1)), (3, (1, 1, 3)), (200, (1, 50, 200))])
def test_percentages_are_rounded_up_and_the_last_step_has_all_objects(total: int, limits: tuple[int, ...]) -> None:
    assert RolloutPolicy((Step(1), Step(25, is_percent=True))).limits(total, 0) == limits


@given(
    st.integers(0, 500),
    st.integers(0, 500),
    st.lists(st.builds(Step, st.integers(1, 100), st.booleans()), min_size=1, max_size=6),
    st.integers(0, 20),
)
def test_the_limits_of_any_steps_never_shrink_and_end_with_all_objects(
    total: int, labelled: int, steps: list[Step], first: int
) -> None:
    limits = RolloutPolicy(tuple(steps), first, {"a": "b"} if labelled else {}).limits(total, min(labelled, total))
    assert limits[-1] == total
    assert all(before <= after for before, after in pairwise(limits))


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_opens() -> None:
    friday = Window(frozenset({4}), 22 * 60, 4 * 60, "Europe/Berlin")  # 2026-11-27 is a Friday
    for text, opens in {
        "2026-11-27 21:59": "2026-11-27 22:00",
        "2026-11-27 22:00": "2026-11-27 22:00",
        "2026-11-28 03:59": "2026-11-28 03:59",
        "2026-11-28 04:00": "2026-12-04 22:00",
        "2026-11-27 01:00": "2026-11-27 22:00",
    }.items():
        assert friday.opens(at(text, BERLIN)) == at(opens, BERLIN), text


@pytest.mark.parametrize(
    ("night", "window", "hours"),
    [
        ("2026-03-28 22:00", ("22:00", "04:00"), 5),  # the clock is set forward at 02:00
        ("2026-10-24 22:00", ("22:00", "04:00"), 7),  # and back at 03:00
        ("2026-03-28 22:00", ("02:15", "02:45"), 0.5),  # these times do not exist that night
        ("2026-10-24 22:00", ("01:30", "02:30"), 1),  # 02:30 exists twice
    ],
)
def test_a_change_of_daylight_saving_time_neither_skips_a_window_nor_opens_it_twice(
    night: str, window: tuple[str, str], hours: float
) -> None:
    found, now = all_days(*window), at(night, BERLIN)
    is_open = [found.opens(moment) == moment for moment in (now + 60 * minute for minute in range(12 * 60))]
    assert sum(is_open) == hours * 60
    assert sum(before != after for before, after in pairwise([False, *is_open, False])) == 2


def test_a_whole_day_has_no_gap() -> None:
    found = all_days("00:00", "24:00")
    assert all(
        found.opens(at("2026-10-24 00:00") + 60 * minute) == at("2026-10-24 00:00") + 60 * minute
        for minute in range(2880)
    )
