"""Secret values never appear in a report, and their changes do."""

from __future__ import annotations

from typing import Any

from runner.engine.run_secrets import RunSecrets
from runner.objects import GVK
from runner.plan.fields import ABSENT, FieldChange, differences
from runner.plan.masked import CHANGED, MASKED, masked

SECRET, CONFIG = GVK("", "v1", "Secret"), GVK("", "v1", "ConfigMap")
PASSWORD = "correct-horse-battery"


def secrets(*values: str) -> RunSecrets:
    found = RunSecrets()
    found.add_initial(values)
    return found


def shown(gvk: GVK, before: Any, after: Any, known: RunSecrets | None = None) -> list[tuple[str, Any, Any]]:
    changes = masked(gvk, differences(before, after), known or secrets())
    return [(each.path, each.before, each.after) for each in changes]


def test_a_changed_value_of_a_secret_is_masked_and_visible_as_a_change() -> None:
    before = {"data": {"password": "YQ==", "user": "YQ=="}}
    after = {"data": {"password": "Yg==", "user": "YQ=="}}
    assert shown(SECRET, before, after) == [("data.password", MASKED, CHANGED)]


def test_added_and_removed_values_of_a_secret_are_masked() -> None:
    assert shown(SECRET, {"data": {"old": "YQ=="}}, {"data": {"new": "YQ=="}}) == [
        ("data.new", ABSENT, MASKED),
        ("data.old", MASKED, ABSENT),
    ]
    assert shown(SECRET, {}, {"data": {"new": "YQ=="}, "stringData": {"x": "y"}}) == [
        ("data", ABSENT, {"new": MASKED}),
        ("stringData", ABSENT, {"x": MASKED}),
    ]


def test_a_new_secret_shows_its_keys_and_no_value() -> None:
    created = FieldChange("", ABSENT, {"metadata": {"name": "x"}, "data": {"password": "YQ=="}, "type": "Opaque"})
    (found,) = masked(SECRET, [created], secrets())
    assert found.after == {"metadata": {"name": "x"}, "data": {"password": MASKED}, "type": "Opaque"}


def test_other_fields_of_a_secret_are_shown() -> None:
    assert shown(SECRET, {"immutable": False}, {"immutable": True}) == [("immutable", False, True)]


def test_known_values_are_masked_in_other_objects() -> None:
    known = secrets(PASSWORD)
    before, after = {"data": {"url": "https://db"}}, {"data": {"url": f"https://u:{PASSWORD}@db"}}
    assert shown(CONFIG, before, after, known) == [("data.url", "https://db", "https://u:********@db")]


def test_a_change_between_two_known_values_is_visible() -> None:
    known = secrets(PASSWORD, "another-fine-password")
    before = {"data": {"url": f"https://u:{PASSWORD}@db"}}
    after = {"data": {"url": "https://u:another-fine-password@db"}}
    assert shown(CONFIG, before, after, known) == [("data.url", "https://u:********@db", f"https://u:{CHANGED}@db")]


def test_a_known_value_in_a_list_that_is_replaced_is_visible_as_a_change() -> None:
    known = secrets(PASSWORD, "another-fine-password")
    change = FieldChange("args", [PASSWORD], ["another-fine-password"])
    (found,) = masked(CONFIG, [change], known)
    assert (found.before, found.after) == (["********"], [CHANGED])


def test_values_are_withheld_if_the_run_read_more_secrets_than_can_be_masked() -> None:
    known = secrets()
    known.exhaust("withheld: too many")
    assert shown(CONFIG, {"data": {"a": "1"}}, {"data": {"a": "2"}}, known) == [
        ("(fields)", ABSENT, "withheld: too many")
    ]
