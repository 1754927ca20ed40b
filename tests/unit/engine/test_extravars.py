from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runner.core.engine import extravars
from runner.values.errors import EngineError

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    [
        *("yes", "12", "null", "~", "2020-01-01", "<<", "=", "1_000", "1:30", "0o7", "", "{{ 1 }}", "!vault x"),
        *("\u2028", "#", "k" * 5000),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


class Unsafe(str):
    """What a loader made of a scalar tagged `!unsafe`."""

    __slots__ = ()


class Loader2_18(yaml.SafeLoader):  # noqa: N801 - named after the release whose reading it has
    """Reads `!unsafe` as text, as ansible-core 2.18 does."""


class Loader2_19(yaml.SafeLoader):  # noqa: N801 - named after the release whose reading it has
    """Reads `!unsafe` as if the text stood bare, as ansible-core 2.19 and later do."""


def _as_text(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    return Unsafe(loader.construct_scalar(node))


def _as_if_bare(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    tag = loader.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
    value = loader.construct_object(yaml.ScalarNode(tag, node.value))
    return Unsafe(value) if isinstance(value, str) else value


Loader2_18.add_constructor("!unsafe", _as_text)
Loader2_19.add_constructor("!unsafe", _as_if_bare)


def trusted_strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in trusted_strings(part)]
    if isinstance(value, list):
        return [text for item in value for text in trusted_strings(item)]
    return [value] if isinstance(value, str) and not isinstance(value, Unsafe) else []


@pytest.mark.lengthy
@pytest.mark.parametrize("loader", [Loader2_18, Loader2_19])
@given(values=st.dictionaries(TEXT, JSON, max_size=4))
def test_values_are_read_back_unchanged_and_no_template_is_trusted(
    loader: type[yaml.SafeLoader],
    values: dict[str, Any],
) -> None:
    text = extravars.dump(values, frozenset(values))

    read = yaml.load(text, loader)  # noqa: S506 - a loader made from the safe one

    assert read == values
    assert not [text for text in trusted_strings(read) if "{" in text]


@pytest.mark.lengthy
@given(values=st.dictionaries(TEXT, JSON, max_size=4))
def test_trusted_values_are_written_without_tags(values: dict[str, Any]) -> None:
    text = extravars.dump(values, frozenset())

    assert yaml.safe_load(text) == values


def test_only_what_came_from_the_object_is_unsafe_also_if_a_trusted_value_equals_it() -> None:
    shared = ["{{ a }} with some length"]
    text = extravars.dump({"of_object": shared, "of_watch": shared}, frozenset({"of_object"}))
    assert trusted_strings(yaml.load(text, Loader2_19)) == ["of_watch", *shared]  # noqa: S506 - as above


def test_what_an_outsider_wrote_is_unsafe_within_a_trusted_value() -> None:
    values = {"whole": {"spec": "{{ a }}", "status": extravars.Foreign({"{{ b }}": ["{{ c }}"]})}}
    read = yaml.load(extravars.dump(values, frozenset()), Loader2_18)  # noqa: S506 - as above
    assert read == {"whole": {"spec": "{{ a }}", "status": {"{{ b }}": ["{{ c }}"]}}}
    assert [text for text in trusted_strings(read) if "{" in text] == ["{{ a }}"]


def test_empty_maps_and_lists_have_no_anchors() -> None:
    empty: list[Any] = []
    assert "&" not in extravars.dump({"a": empty, "b": {}, "c": empty}, frozenset()).replace("? ", "")


def test_a_value_of_several_variables_is_written_once() -> None:
    spec = {"text": "x" * 100_000}

    text = extravars.dump({"obj": {"spec": spec}, "spec": spec, "text": spec["text"]}, frozenset({"obj", "spec"}))

    assert len(text) < 250_000


def test_numbers_and_dates_that_json_cannot_write_are_numbers_and_text() -> None:
    values = {"a": math.inf, "b": -math.inf, "c": math.nan, "d": 1e22, "e": dt.date(2026, 11, 21)}
    read = yaml.safe_load(extravars.dump(values, frozenset()))
    assert (read["a"], read["b"], read["d"], read["e"]) == (math.inf, -math.inf, 1e22, "2026-11-21")
    assert math.isnan(read["c"])


def test_a_value_outside_of_json_is_refused_with_its_type() -> None:
    with pytest.raises(EngineError, match="a bytes cannot be an extra var"):
        extravars.dump({"a": b"x"}, frozenset())


@pytest.mark.lengthy
def test_values_that_nest_too_deep_are_refused_by_their_key() -> None:
    deep: Any = []
    for _ in range(20000):
        deep = [deep]

    with pytest.raises(EngineError, match="'deep' nests too deep"):
        extravars.dump({"deep": deep}, frozenset())
