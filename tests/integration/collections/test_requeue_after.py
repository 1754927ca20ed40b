from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("check", [False, True])
def test_the_period_is_returned_as_it_was_given(module: Any, check: bool) -> None:  # noqa: FBT001 - a parameter of the test
    result = module("requeue_after", time="1h30m", check=check)
    assert (result["period"], result["changed"]) == ("1h30m", False)


def test_an_invalid_duration_is_refused(module: Any) -> None:
    result = module("requeue_after", time="tomorrow")
    assert result["failed"]
    assert result["msg"].startswith("time: 'tomorrow' is no duration")
