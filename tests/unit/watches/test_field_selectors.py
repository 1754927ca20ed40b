from __future__ import annotations

import pytest

from runner.core.watches import field_selectors


def test_conditions_are_rendered_in_one_order_whatever_theirs_was() -> None:
    one, other = "spec.mode != off, metadata.name==main", "metadata.name=main,spec.mode!=off,metadata.name=main"
    rendered = {field_selectors.render(field_selectors.parse(text)) for text in (one, other)}
    assert rendered == {"metadata.name=main,spec.mode!=off"}


def test_escaped_separators_are_part_of_a_value() -> None:
    (condition,) = field_selectors.parse(r"spec.text=a\,b\=c")
    assert (condition.field, condition.value) == ("spec.text", r"a\,b\=c")


def test_an_empty_selector_and_an_empty_value_are_accepted() -> None:
    assert field_selectors.parse(" ") == ()
    assert field_selectors.render(field_selectors.parse("spec.nodeName=")) == "spec.nodeName="


@pytest.mark.parametrize("text", ["main", "=main", "a=b,", "a=b=c", "a in (b)", "a~b", "a b=c", "a=b c", ".a=b"])
def test_an_invalid_condition_is_an_error_with_the_valid_syntax(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid field selector .*: use path=value or path!=value"):
        field_selectors.parse(text)


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
    selector: str,
    lasting: str,
    can_be_left: bool,  # noqa: FBT001 - a row of the table
) -> None:
    assert field_selectors.lasting(selector) == lasting
    assert field_selectors.can_be_left(selector) is can_be_left
