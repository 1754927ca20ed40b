"""Bounds of JSON before it is parsed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.agent.bounds import exceeds

_JSON = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab,[{"\\', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='a,[{"\\', max_size=4), inner),
    max_leaves=12,
)


def _count(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_count, inner))


@given(_JSON)
def test_json_exceeds_a_bound_only_by_its_values_and_not_by_its_texts(value: Any) -> None:
    text = json.dumps(value).encode()
    assert exceeds(text, _count(value) // 2)  # each value but the first follows a comma or begins a map or list
    assert not exceeds(text, 2 * _count(value) + 1)


@pytest.mark.parametrize("text", [b"[[],[],[],[]", b'",,,,,"' + b'""' * 40, b"{" * 9])
def test_invalid_json_exceeds_a_bound_too(text: bytes) -> None:
    assert exceeds(text, 4)


def test_a_long_text_does_not_exceed_a_bound() -> None:
    assert not exceeds(json.dumps({"stdout": json.dumps([[]] * 10_000)}).encode(), 10)
