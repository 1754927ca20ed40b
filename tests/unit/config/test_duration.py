from __future__ import annotations

import contextlib
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.base.config import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("-0", 0.0),
        ("+0", 0.0),
        ("0s", 0.0),
        ("10h", 36_000.0),
        ("1h2m3.5s", 3_723.5),
        ("500ms", 0.5),
        ("1.5h", 5_400.0),
        (".5s", 0.5),
        ("5.s", 5.0),
        ("-1m", -60.0),
        ("+5s", 5.0),
        ("7ns", 7e-9),
        ("20us", 2e-5),
        ("20\u00b5s", 2e-5),
        ("20\u03bcs", 2e-5),
        ("1s1s", 2.0),
        ("3s1h", 3_603.0),
        ("0.3333333333333333333h", 1_200.0),
        ("1.9ns", 1e-9),
    ],
)
def test_a_duration_means_what_it_means_in_go(text: str, seconds: float) -> None:
    assert duration.parse(text) == pytest.approx(seconds, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no number"),
        ("-", "no number"),
        ("3", "no unit after '3'"),
        ("1h30", "no unit after '30'"),
        ("s", "no number before 's'"),
        (".s", "no number before 's'"),
        ("1d", "unknown unit 'd'"),
        ("1 s", "unknown unit ' s'"),
        ("1H", "unknown unit 'H'"),
        ("--1s", "no number before"),
        ("1..5s", "no unit after"),
        ("\u0661s", "no number before"),
        ("forever", "no number before"),
        ("2562048h", "maximum is about 292 years"),
    ],
)
def test_an_invalid_duration_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        duration.parse(text)


def test_the_longest_duration_is_that_of_go() -> None:
    assert duration.parse("2562047h47m16.854775807s") == pytest.approx(9_223_372_036.854775807)
    with pytest.raises(ValueError, match="maximum is about 292 years"):
        duration.parse("2562047h47m16.854775808s")
    assert duration.parse("-2562047h47m16.854775808s") == pytest.approx(-9_223_372_036.854775808)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (36_000, "10h"),
        (3_723.5, "1h2m3.5s"),
        (3_603, "1h3s"),
        (60, "1m"),
        (0.5, "500ms"),
        (0.0015, "1.5ms"),
        (2e-5, "20us"),
        (7e-9, "7ns"),
        (-90, "-1m30s"),
        (1e-12, "0s"),
    ],
)
def test_a_duration_is_written_short(seconds: float, text: str) -> None:
    assert duration.format(seconds) == text


@given(st.floats(-9e9, 9e9))
def test_any_duration_is_read_back_within_a_nanosecond_or_its_own_precision(seconds: float) -> None:
    assert math.isclose(duration.parse(duration.format(seconds)), seconds, rel_tol=1e-15, abs_tol=1e-9)


@given(st.text(alphabet="0123456789.hmsnu\u00b5+- "))
def test_any_text_parses_or_is_refused_with_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert math.isfinite(duration.parse(text))
