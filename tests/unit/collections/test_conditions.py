from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.operator_sdk.util.plugins.module_utils import conditions

NOW = "2026-01-31T12:00:00Z"
EARLIER = "2025-01-31T12:00:00Z"


def ready(status: str, **fields: Any) -> dict[str, Any]:
    return {"type": "Ready", "status": status, **fields}


def test_options_that_were_not_given_are_left_out() -> None:
    given = ready("True", reason=None, message=None, observedGeneration=3)
    assert conditions.validated([given]) == [ready("True", observedGeneration=3)]


@pytest.mark.parametrize(
    ("condition", "complaint"),
    [
        ("Ready", "condition 1 is 'Ready'; a condition is a map"),
        ({"status": "True"}, "condition 1 has no type"),
        (ready("yes"), "condition 'Ready': status is 'yes'; it must be one of True, False, Unknown"),
        ({"type": "Ready"}, "condition 'Ready': status is None"),
        (ready("True", reason="The ping failed"), "reason is 'The ping failed'; it must be one CamelCase word"),
        (ready("True", lastTransitionTime="26/03/2021 2:00PM"), "lastTransitionTime is '26/03/2021 2:00PM'"),
        (ready("True", lastHeartbeatTime="2026-01-31"), "lastHeartbeatTime is '2026-01-31'"),
    ],
)
def test_a_wrong_condition_is_named(condition: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match="condition") as caught:
        conditions.validated([condition])
    assert complaint in str(caught.value)


def test_a_type_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="'Ready' is given 2 times"):
        conditions.validated([ready("True"), ready("False")])


TIMES = {
    "2026-01-31T12:00:00Z": "2026-01-31T12:00:00Z",
    "2026-01-31 12:00:00+01:00": "2026-01-31T12:00:00+01:00",
    "2026-01-31t12:00:00.5z": "2026-01-31T12:00:00.5Z",
    "2026-01-31T12:00Z": "2026-01-31T12:00:00Z",
}


@pytest.mark.parametrize(
    ("field", "written", "kept"),
    [
        *(("status", status, str(status)) for status in (True, False, "Unknown")),
        *(("reason", reason, reason) for reason in ("PingFailed", "HTTP2Error", "vendor:Reason_1", "A")),
        *(("lastTransitionTime", written, kept) for written, kept in TIMES.items()),
    ],
)
def test_values_are_written_as_the_api_conventions_have_them(field: str, written: Any, kept: str) -> None:
    (condition,) = conditions.validated([{**ready("True"), field: written}])
    assert condition[field] == kept


GIVEN = "2026-01-30T00:00:00Z"


@pytest.mark.parametrize(
    ("wanted", "time"),
    [
        (ready("True", reason="New"), EARLIER),
        (ready("False", reason="New"), NOW),
        (ready("True", reason="New", lastTransitionTime=GIVEN), EARLIER),
        (ready("False", reason="New", lastTransitionTime=GIVEN), GIVEN),
    ],
)
def test_the_transition_time_moves_only_with_the_status_to_the_given_time_or_now(
    wanted: dict[str, Any], time: str
) -> None:
    current = [ready("True", reason="Old", lastTransitionTime=EARLIER)]
    assert conditions.merged(current, [wanted], NOW) == [wanted | {"lastTransitionTime": time}]


def test_conditions_keep_their_order_and_new_ones_come_last() -> None:
    current = [{"type": kind, "status": "True", "lastTransitionTime": EARLIER} for kind in ("Running", "Ready", "Odd")]
    wanted = [{"type": "Added", "status": "True"}, ready("False")]
    assert [entry["type"] for entry in conditions.merged(current, wanted, NOW)] == ["Running", "Ready", "Odd", "Added"]
