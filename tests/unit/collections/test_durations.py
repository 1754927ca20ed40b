from __future__ import annotations

import pytest
from ansible_collections.operator_sdk.util.plugins.module_utils import durations
from hypothesis import given
from hypothesis import strategies as st

from runner.base.config import duration


@pytest.mark.parametrize("text", ["", "5", "s", "1d", "1 h", "1h 2m", "5sec", "1h-2m", ".s", "1,5s", "\u0665s"])
def test_an_invalid_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no duration: .*30s"):
        durations.seconds(text)


def test_a_negative_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="'-5s' lies in the past"):
        durations.seconds("-5s")


def test_a_duration_outside_of_the_range_of_go_is_refused() -> None:
    with pytest.raises(ValueError, match="is too long"):
        durations.seconds("2600000h")


@given(st.lists(st.tuples(st.integers(0, 9999), st.sampled_from(["h", "m", "s", "ms", "us", "ns"])), min_size=1))
def test_the_operator_reads_what_the_module_accepts(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{number}{unit}" for number, unit in parts)
    try:
        seconds = durations.seconds(text)
    except ValueError:
        with pytest.raises(ValueError, match=r".*"):
            duration.parse(text)
    else:
        assert duration.parse(text) == pytest.approx(seconds)
