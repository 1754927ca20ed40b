from __future__ import annotations

import pytest

from runner.core.watches import selectors
from runner.core.watches.selectors import LabelRequirement


def test_conditions_are_rendered_in_one_order_whatever_theirs_was() -> None:
    one, other = "spec.mode != off, metadata.name==main", "metadata.name=main,spec.mode!=off,metadata.name=main"
    rendered = {selectors.render_fields(selectors.parse_fields(text)) for text in (one, other)}
    assert rendered == {"metadata.name=main,spec.mode!=off"}


def test_escaped_separators_are_part_of_a_value() -> None:
    (condition,) = selectors.parse_fields(r"spec.text=a\,b\=c")
    assert (condition.field, condition.value) == ("spec.text", r"a\,b\=c")


def test_an_empty_selector_and_an_empty_value_are_accepted() -> None:
    assert selectors.parse_fields(" ") == ()
    assert selectors.render_fields(selectors.parse_fields("spec.nodeName=")) == "spec.nodeName="


@pytest.mark.parametrize("text", ["main", "=main", "a=b,", "a=b=c", "a in (b)", "a~b", "a b=c", "a=b c", ".a=b"])
def test_an_invalid_condition_is_an_error_with_the_valid_syntax(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid field selector .*: use path=value or path!=value"):
        selectors.parse_fields(text)


@pytest.mark.parametrize(
    ("selector", "lasting", "can_be_left"),
    [
        ("", "", False),
        ("metadata.name=main", "metadata.name=main", False),
        ("metadata.name!=main,metadata.namespace=a", "metadata.name!=main,metadata.namespace=a", False),
        ("metadata.name=main,status.phase=Ready", "metadata.name=main", True),
        ("spec.mode!=off", "", True),
    ],
)
def test_names_and_namespaces_are_constant_and_other_fields_can_change(
    selector: str, lasting: str, *, can_be_left: bool
) -> None:
    assert selectors.lasting(selector) == lasting
    assert selectors.can_be_left(selector) is can_be_left


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
    assert selectors.render_labels([one, two]) == selectors.render_labels([two, one]) == "a=x,b"
    assert not selectors.render_labels([])


@pytest.mark.parametrize("key", ["a", "app.kubernetes.io/name", "A_b-c.d", "a" * 63, "example.com/a"])
def test_a_qualified_name_is_accepted(key: str) -> None:
    assert not selectors.key_problem(key)


@pytest.mark.parametrize("key", ["", "-a", "a b", "a" * 64, "Example.com/a", "a/b/c", "/a", "a/", "ä"])
def test_an_invalid_qualified_name_is_refused(key: str) -> None:
    assert repr(key) in selectors.key_problem(key)


@pytest.mark.parametrize(("value", "right"), [("", True), ("a", True), ("a b", False), ("-a", False), ("a,b", False)])
def test_a_labels_value_has_rules_of_its_own(value: str, *, right: bool) -> None:
    assert (selectors.value_problem(value) == "") is right


@pytest.mark.parametrize(
    ("text", "right"), [("cache.example.com", True), ("A.b", False), ("a..b", False), ("a" * 254, False)]
)
def test_a_group_is_a_dns_subdomain(text: str, *, right: bool) -> None:
    assert selectors.is_subdomain(text) is right
