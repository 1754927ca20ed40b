"""Secret values never appear in a report, and their changes do."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.engine.run_secrets import RunSecrets
from runner.features.plan.changes import CHANGED, MASKED, masked
from runner.features.plan.fields import ABSENT, FieldChange, differences
from runner.values.objects import GVK

SECRET, CONFIG = GVK("", "v1", "Secret"), GVK("", "v1", "ConfigMap")
PASSWORD = "correct-horse-battery"


OTHER = "another-fine-password"


def secrets() -> RunSecrets:
    found = RunSecrets()
    found.add_initial([PASSWORD, OTHER])
    return found


def shown(gvk: GVK, before: Any, after: Any, known: RunSecrets | None = None) -> list[tuple[str, Any, Any]]:
    changes = masked(gvk, differences(before, after), known or secrets())
    return [(each.path, each.before, each.after) for each in changes]


@pytest.mark.parametrize(
    ("gvk", "before", "after", "changes"),
    [
        pytest.param(
            SECRET,
            {"data": {"password": "YQ==", "user": "YQ=="}},
            {"data": {"password": "Yg==", "user": "YQ=="}},
            [("data.password", MASKED, CHANGED)],
            id="a changed value of a Secret",
        ),
        pytest.param(
            SECRET,
            {"data": {"old": "YQ=="}},
            {"data": {"new": "YQ=="}},
            [("data.new", ABSENT, MASKED), ("data.old", MASKED, ABSENT)],
            id="added and removed values of a Secret",
        ),
        pytest.param(
            SECRET,
            {},
            {"data": {"new": "YQ=="}, "stringData": {"x": "y"}},
            [("data", ABSENT, {"new": MASKED}), ("stringData", ABSENT, {"x": MASKED})],
            id="all values of a Secret",
        ),
        pytest.param(
            SECRET,
            {"immutable": False},
            {"immutable": True},
            [("immutable", False, True)],
            id="other fields of a Secret",
        ),
        pytest.param(
            CONFIG,
            {"data": {"url": "https://db"}},
            {"data": {"url": f"https://u:{PASSWORD}@db"}},
            [("data.url", "https://db", "https://u:********@db")],
            id="a known value in another object",
        ),
        pytest.param(
            CONFIG,
            {"data": {"url": f"https://u:{PASSWORD}@db"}},
            {"data": {"url": f"https://u:{OTHER}@db"}},
            [("data.url", "https://u:********@db", f"https://u:{CHANGED}@db")],
            id="a change between two known values is visible",
        ),
    ],
)
def test_secret_values_are_masked_and_their_changes_are_visible(
    gvk: GVK, before: Any, after: Any, changes: list[tuple[str, Any, Any]]
) -> None:
    assert shown(gvk, before, after) == changes


def test_a_new_secret_shows_its_keys_and_no_value() -> None:
    created = FieldChange("", ABSENT, {"metadata": {"name": "x"}, "data": {"password": "YQ=="}, "type": "Opaque"})
    (found,) = masked(SECRET, [created], secrets())
    assert found.after == {"metadata": {"name": "x"}, "data": {"password": MASKED}, "type": "Opaque"}


def test_a_known_value_in_a_list_that_is_replaced_is_visible_as_a_change() -> None:
    (found,) = masked(CONFIG, [FieldChange("args", [PASSWORD], [OTHER])], secrets())
    assert (found.before, found.after) == (["********"], [CHANGED])


def test_values_are_withheld_if_the_run_read_more_secrets_than_can_be_masked() -> None:
    known = RunSecrets()
    known.exhaust("withheld: too many")
    assert shown(CONFIG, {"data": {"a": "1"}}, {"data": {"a": "2"}}, known) == [
        ("(fields)", ABSENT, "withheld: too many")
    ]
