"""Pauses of the writes of one namespace."""

from __future__ import annotations

import pytest

from runner.core.status.kept import SEVERAL, Breaker


@pytest.mark.parametrize(
    ("uids", "lacks_right", "pauses"),
    [
        (["a"] * 2 * SEVERAL, False, 0),
        ([*"abcdefgh"][: SEVERAL - 1], False, 0),
        ([*"abcdefgh"][:SEVERAL], False, 1),
        ([*"abcdefgh"][: SEVERAL + 2], False, 3),
        (["a"], True, 1),
        (["a", "a"], True, 2),
    ],
)
def test_several_objects_or_a_missing_right_pause_a_namespace(
    uids: list[str], pauses: int, *, lacks_right: bool
) -> None:
    breaker = Breaker()
    in_a_row = [breaker.refused(uid, 100.0, lacks_right=lacks_right) for uid in uids]
    assert in_a_row[-1] == breaker.refusals == pauses
    assert (breaker.until > 100.0) is (pauses > 0)
