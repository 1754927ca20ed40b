from __future__ import annotations

import pytest

from runner.core.watches import label_selectors
from runner.core.watches.label_selectors import LabelRequirement


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        (LabelRequirement("a", "In", ("b",)), "a=b"),
        (LabelRequirement("a", "In", ("",)), "a="),
        (LabelRequirement("a", "In", ("c", "b", "c")), "a in (b,c)"),
        (LabelRequirement("a", "NotIn", ("b",)), "a notin (b)"),
        (LabelRequirement("example.com/a", "Exists", ()), "example.com/a"),
        (LabelRequirement("a", "DoesNotExist", ()), "!a"),
    ],
)
def test_a_requirement_is_written_in_the_api_servers_grammar(requirement: LabelRequirement, text: str) -> None:
    assert str(requirement) == text


def test_the_order_of_requirements_does_not_change_the_selector() -> None:
    one, two = LabelRequirement("b", "Exists", ()), LabelRequirement("a", "In", ("x",))
    assert label_selectors.render([one, two]) == label_selectors.render([two, one]) == "a=x,b"
    assert not label_selectors.render([])


@pytest.mark.parametrize("key", ["a", "app.kubernetes.io/name", "A_b-c.d", "a" * 63, "example.com/a"])
def test_a_qualified_name_is_accepted(key: str) -> None:
    assert not label_selectors.key_problem(key)


@pytest.mark.parametrize("key", ["", "-a", "a b", "a" * 64, "Example.com/a", "a/b/c", "/a", "a/", "ä"])
def test_an_invalid_qualified_name_is_refused(key: str) -> None:
    assert repr(key) in label_selectors.key_problem(key)


@pytest.mark.parametrize(("value", "right"), [("", True), ("a", True), ("a b", False), ("-a", False), ("a,b", False)])
def test_a_labels_value_has_rules_of_its_own(value: str, right: bool) -> None:  # noqa: FBT001 - a case, not a flag
    assert (label_selectors.value_problem(value) == "") is right


@pytest.mark.parametrize(
    ("text", "right"), [("cache.example.com", True), ("A.b", False), ("a..b", False), ("a" * 254, False)]
)
def test_a_group_is_a_dns_subdomain(text: str, right: bool) -> None:  # noqa: FBT001 - a case, not a flag
    assert label_selectors.is_subdomain(text) is right
