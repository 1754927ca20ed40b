"""How a status and its conditions are merged with the given ones."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.operator_sdk.util.plugins.module_utils import conditions, statuses
from hypothesis import given
from hypothesis import strategies as st

NOW = "2026-01-31T12:00:00Z"
EARLIER = "2025-01-31T12:00:00Z"
READY = {"type": "Ready", "status": "True"}

scalars = st.one_of(st.booleans(), st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=3))
documents = st.recursive(
    st.dictionaries(st.sampled_from("abcde"), scalars, max_size=4),
    lambda inner: st.dictionaries(st.sampled_from("abcde"), st.one_of(scalars, inner), max_size=4),
    max_leaves=12,
)


def applied(current: dict[str, Any], wanted: dict[str, Any], *, replace_lists: bool = False) -> dict[str, Any]:
    result: dict[str, Any] = statuses.applied(current, wanted, replace_lists=replace_lists, now=NOW)
    return result


def patched(target: Any, operations: list[dict[str, Any]]) -> Any:
    """RFC 6902, as far as these patches go; a failing test raises AssertionError."""
    document: dict[str, Any] = {"metadata": {"resourceVersion": "7"}}
    if target is not None:
        document["status"] = copy.deepcopy(target)
    for operation in operations:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        place = document
        for parent in parents:
            place = place[parent]
        if operation["op"] == "test":
            assert place.get(last) == operation["value"]
        elif operation["op"] == "remove":
            del place[last]
        else:
            place[last] = operation["value"]
    return document.get("status")


@pytest.mark.parametrize(
    ("current", "wanted", "merged", "replaced"),
    [
        pytest.param(
            {"a": 1, "b": {"c": 2, "d": 3}},
            {"b": {"d": 4}},
            *[{"a": 1, "b": {"c": 2, "d": 4}}] * 2,
            id="fields that are not mentioned stay",
        ),
        pytest.param(
            {"a": [1], "b": {"c": 2, "d": 3}},
            {"a": None, "b": {"c": None}, "e": None},
            *[{"b": {"d": 3}}] * 2,
            id="a null field is removed at any depth",
        ),
        pytest.param({"a": "text"}, {"a": {"b": 1}}, *[{"a": {"b": 1}}] * 2, id="a map takes the place of a scalar"),
        pytest.param(
            {"a": ["x", "y"]}, {"a": ["y"]}, {"a": ["x", "y"]}, {"a": ["y"]}, id="a list that contains the items stays"
        ),
        pytest.param(
            {"a": ["x", "y"]}, {"a": ["y", "z"]}, *[{"a": ["y", "z"]}] * 2, id="a list with a new item is replaced"
        ),
        pytest.param({"a": ["x"]}, {"a": []}, {"a": ["x"]}, {"a": []}, id="an empty list empties only by replacing"),
        pytest.param({"a": 1, "conditions": [READY]}, {"conditions": None}, *[{"a": 1}] * 2, id="null conditions"),
    ],
)
def test_a_status_is_merged_with_the_given_one(
    current: dict[str, Any], wanted: dict[str, Any], merged: dict[str, Any], replaced: dict[str, Any]
) -> None:
    assert applied(current, wanted) == merged
    assert applied(current, wanted, replace_lists=True) == replaced


def test_null_fields_inside_a_list_are_left_out_as_the_api_server_does() -> None:
    once = applied({}, {"a": [{"b": None, "c": [{"d": None}]}, None]})
    assert once == {"a": [{"c": [{}]}, None]}
    assert applied(once, {"a": [{"b": None, "c": [{"d": None}]}, None]}) == once


def test_conditions_are_merged_by_type_even_when_lists_are_replaced() -> None:
    current = {"conditions": [{"type": "Running", "status": "True", "lastTransitionTime": EARLIER}]}
    wanted = {"conditions": [READY]}
    assert applied(current, wanted, replace_lists=True)["conditions"] == [
        {"type": "Running", "status": "True", "lastTransitionTime": EARLIER},
        {"type": "Ready", "status": "True", "lastTransitionTime": NOW},
    ]


def test_replacing_drops_everything_else_but_keeps_transition_times() -> None:
    current = {"a": 1, "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": EARLIER}]}
    wanted = {"b": {"c": None, "d": 2}, "conditions": [{"type": "Ready", "status": "True", "reason": "Still"}]}
    assert statuses.replaced(current, wanted, now=NOW) == {
        "b": {"d": 2},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Still", "lastTransitionTime": EARLIER}],
    }


def test_a_patch_names_only_what_differs() -> None:
    before = {"same": {"x": 1}, "gone": 1, "map": {"x": 1, "y": 2}}
    after = {"same": {"x": 1}, "new/~": [1], "map": {"x": 1, "y": 3}}
    assert statuses.operations(before, after, "7") == [
        {"op": "remove", "path": "/status/gone"},
        {"op": "add", "path": "/status/new~1~0", "value": [1]},
        {"op": "add", "path": "/status/map/y", "value": 3},
    ]


STRANGE = [
    None,
    [None, {"type": "Old", "status": "True"}, "words"],
    [{"type": "Old"}, {"type": "Old"}, {"type": "Ready", "status": "True"}, {"type": "Ready"}, {"type": ["Ready"]}],
    {"ready": True},
    "words",
]


@pytest.mark.parametrize("conditions", STRANGE, ids=str)
@pytest.mark.parametrize("written", [statuses.applied, statuses.replaced])
def test_conditions_of_any_shape_are_written_with_one_of_each_type(written: Any, conditions: Any) -> None:
    options = {"replace_lists": False} if written is statuses.applied else {}
    after = written({"conditions": conditions}, {"conditions": [READY]}, now=NOW, **options)["conditions"]
    types = [each.get("type") for each in after]
    assert types.count("Ready") == 1
    assert types.count("Old") <= 1
    assert next(each for each in after if each["type"] == "Ready")["status"] == "True"
    patch = statuses.operations({"conditions": conditions}, {"conditions": after}, "7")
    assert [each["path"] for each in patch] == ["/metadata/resourceVersion", "/status/conditions"]


def test_conditions_are_written_only_over_those_that_were_read() -> None:
    before = {"conditions": [{"type": "Running", "status": "True"}], "a": 1}
    after = {"conditions": [READY], "a": 1}
    assert statuses.operations(before, after, "7") == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/status/conditions", "value": after["conditions"]},
    ]


@pytest.mark.parametrize("absent", [None, "no map"])
def test_a_patch_that_adds_the_first_status_tests_that_there_is_none(absent: Any) -> None:
    assert statuses.operations(absent, {"a": 1}, "7") == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/status", "value": {"a": 1}},
    ]
    assert statuses.operations(absent, {}, "7") == []


@given(before=st.one_of(st.none(), documents), after=documents)
def test_a_patch_makes_the_one_status_into_the_other(before: dict[str, Any] | None, after: dict[str, Any]) -> None:
    patch = statuses.operations(before, after, "7")
    assert (patched(before, patch) or {}) == after
    assert bool(patch) == ((before or {}) != after)


@given(current=documents, wanted=documents, replace_lists=st.booleans())
def test_applying_twice_changes_nothing_the_second_time(
    current: dict[str, Any], wanted: dict[str, Any], *, replace_lists: bool
) -> None:
    once = applied(current, wanted, replace_lists=replace_lists)
    assert applied(once, wanted, replace_lists=replace_lists) == once


def test_fields_that_the_server_dropped_are_named_by_their_path() -> None:
    assert statuses.missing({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"c": 1}}) == ["status.a", "status.b.d"]


def test_an_object_that_a_plan_would_create_has_no_version_to_test() -> None:
    assert statuses.operations({}, {"conditions": [{"type": "Ready"}]}, "") == [
        {"op": "add", "path": "/status/conditions", "value": [{"type": "Ready"}]}
    ]
    assert statuses.operations(None, {"a": 1}, "") == [{"op": "add", "path": "/status", "value": {"a": 1}}]


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
